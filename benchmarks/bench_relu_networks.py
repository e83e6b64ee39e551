"""Are ReLU networks found from their answers alone, whatever their depth, and what does it take?

    python benchmarks/bench_relu_networks.py                     about an hour on one core
    python benchmarks/bench_relu_networks.py --part random       random networks of two to four hidden layers
    python benchmarks/bench_relu_networks.py --part regressors   scikit-learn's MLPRegressor on diabetes and friedman1
    python benchmarks/bench_relu_networks.py --part classifiers  MLPClassifier on breast cancer, digits, wine and iris
    python benchmarks/bench_relu_networks.py --part tanh         the same with tanh, widths told
    python benchmarks/bench_relu_networks.py --part others       leaky ReLU; rounded answers and single precision
    python benchmarks/bench_relu_networks.py --part wide         784 inputs
    python benchmarks/bench_relu_networks.py --quick             seconds, nothing written

Widths and depth are not told but for tanh. Errors are relative maxima on 20 000 inputs from N(0, I) and from N(0, 9 I),
of classifiers those of probabilities. Published beside it: the cryptanalytic extraction of Carlini, Jagielski and
Mironov (2020) is told the architecture and took 301 964 queries for 40-20-10-1.
"""

from __future__ import annotations

from parts import relu_networks  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("relu_networks", __doc__)
