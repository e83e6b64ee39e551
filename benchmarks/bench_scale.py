"""Networks of the size that people train on MNIST: how many are recovered, from how many queries, how fast?

python benchmarks/bench_scale.py                      all parts: hours on one core
python benchmarks/bench_scale.py --part relu          two hidden ReLU layers with several outputs: about ten minutes
python benchmarks/bench_scale.py --part large         784-512-512-10 and trained networks
python benchmarks/bench_scale.py --part deep          five to eight hidden ReLU layers
python benchmarks/bench_scale.py --part deep_curve    three to eight hidden layers of 8 units, two to five of 16
python benchmarks/bench_scale.py --part one_output    two wide ReLU layers and one output
python benchmarks/bench_scale.py --part one_output_curve  30-n-n-1 by width
python benchmarks/bench_scale.py --part saturating    tanh and sigmoid, two and three hidden layers
python benchmarks/bench_scale.py --part polish        fits of all parameters to Jacobians and outputs
python benchmarks/bench_scale.py --part single_precision  two hidden ReLU layers, outputs rounded to float32
python benchmarks/bench_scale.py --quick              one small network per part, writes no results
"""

from __future__ import annotations

from parts.scale import one_output, polish, relu, saturating, single_precision  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("scale", __doc__, threads=1)
