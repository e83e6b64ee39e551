"""Identification from samples: is the network behind given samples recovered, without queries and with unknown widths?

    python benchmarks/bench_passive.py                     about half an hour on one core
    python benchmarks/bench_passive.py --part one_layer    planted tanh networks, 8 units, Gaussian inputs
    python benchmarks/bench_passive.py --part outputs      the same with three outputs
    python benchmarks/bench_passive.py --part activations  sigmoid, erf, softplus, sin, gelu
    python benchmarks/bench_passive.py --part two_layers   two hidden layers
    python benchmarks/bench_passive.py --part inputs       uniform, Laplace, correlated, binary and continuous inputs
    python benchmarks/bench_passive.py --part noise        1 and 10 % of the targets' standard deviation
    python benchmarks/bench_passive.py --part given_widths the same with widths given; coverage of stderr_
    python benchmarks/bench_passive.py --part from_truth   least squares initialized at the truth, for comparison
    python benchmarks/bench_passive.py --part trained      scikit-learn's MLPRegressor on diabetes as the teacher
    python benchmarks/bench_passive.py --part baselines    MLPRegressor with the true width, best of ten starts
    python benchmarks/bench_passive.py --quick             seconds, writes no results

Networks have 10 inputs, unit weight columns of random direction, biases from N(0, 0.3^2) and linear outputs. There are
10 samples per parameter (20 for trained networks). `met` counts networks with the right widths whose relative maximum
errors, of the parameters and on held-out samples, are at most 1e-10 (1e-6 for trained networks). Seconds are processor
time. For comparison, Expand-and-Cluster (ICML 2024) recovers tanh networks from samples with "< 10 % more units" than
the teacher.
"""

from __future__ import annotations

from parts import passive, passive_from_truth, passive_given_widths  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("passive", __doc__)
