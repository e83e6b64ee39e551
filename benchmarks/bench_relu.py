"""Is a ReLU network with one hidden layer found from samples, and what does every step bring?

    python benchmarks/bench_relu.py                     about 10 minutes on one core
    python benchmarks/bench_relu.py --part targets      planted networks, width known or not; ten million rows
    python benchmarks/bench_relu.py --part large        50 and 100 units in as many dimensions: about 8 minutes
    python benchmarks/bench_relu.py --part inputs       uniform, Student's t, Laplace and correlated inputs
    python benchmarks/bench_relu.py --part exact        exact tensors, up to 207 units in 20 dimensions
    python benchmarks/bench_relu.py --part tables       diabetes, breast cancer, friedman1 against Ridge
    python benchmarks/bench_relu.py --part ablation     the paper's algorithm, and one change after the other
    python benchmarks/bench_relu.py --part baselines    scikit-learn's MLPRegressor, best of ten, and boosting
    python benchmarks/bench_relu.py --quick             seconds, nothing written

Networks have random unit weights, biases uniform in [-1, 1], output weights uniform in +-[1, 2]; inputs are standard
normal; noise is relative to the standard deviation of the network's values. Seeds from 9100 on (large: 171000, inputs:
171500): none of them was looked at while the library was written.
"""

from __future__ import annotations

from parts.relu import (  # noqa: F401  (registers the parts)
    ablation,
    baselines,
    exact,
    inputs,
    large,
    tables,
    targets,
)
from registry import run_parts

if __name__ == "__main__":
    run_parts("relu", __doc__)
