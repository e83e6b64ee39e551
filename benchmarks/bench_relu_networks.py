"""Deep ReLU networks: are they recovered from queries with unknown depth and widths, and at what cost?

    python benchmarks/bench_relu_networks.py                     about an hour on one core
    python benchmarks/bench_relu_networks.py --part random       random networks of two to four hidden layers
    python benchmarks/bench_relu_networks.py --part regressors   scikit-learn's MLPRegressor on diabetes and friedman1
    python benchmarks/bench_relu_networks.py --part classifiers  MLPClassifier on breast cancer, digits, wine and iris
    python benchmarks/bench_relu_networks.py --part tanh         the same with tanh and given widths
    python benchmarks/bench_relu_networks.py --part others       leaky ReLU; rounded and float32 outputs
    python benchmarks/bench_relu_networks.py --part wide         784 inputs
    python benchmarks/bench_relu_networks.py --quick             seconds, writes no results

Widths and depth are unknown except with tanh. Errors are relative maxima on 20,000 inputs from N(0, I) and from
N(0, 9 I), for classifiers those of the probabilities. For comparison, the cryptanalytic extraction of Carlini,
Jagielski and Mironov (2020) is given the architecture and takes 301,964 queries for 40-20-10-1.
"""

from __future__ import annotations

from parts import relu_networks  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("relu_networks", __doc__)
