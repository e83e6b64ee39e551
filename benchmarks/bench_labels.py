"""Classifiers from labels alone: how many networks are recovered, how accurately, from how many queries, how fast?

python benchmarks/bench_labels.py                       about thirty minutes on one core
python benchmarks/bench_labels.py --part classifiers    planted networks and perceptrons of scikit-learn
python benchmarks/bench_labels.py --part refusals       models that are no ReLU network, and lying ones
python benchmarks/bench_labels.py --part tanh_boundary  how far two ideas for tanh units get
python benchmarks/bench_labels.py --part public_code    models of Chen et al. (2024) beside their code
python benchmarks/bench_labels.py --quick               one small network per part, writes no results
"""

from __future__ import annotations

from parts.labels import classifiers, public_code, refusals, tanh_boundary  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("labels", __doc__, threads=1)
