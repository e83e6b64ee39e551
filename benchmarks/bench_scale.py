"""ReLU networks of the size that people train on MNIST: how many are recovered, from how many queries, how fast?

python benchmarks/bench_scale.py                about five minutes on one core
python benchmarks/bench_scale.py --part relu    two hidden layers with several outputs
python benchmarks/bench_scale.py --quick        one small network, writes no results
"""

from __future__ import annotations

from parts.scale import relu  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("scale", __doc__, threads=1)
