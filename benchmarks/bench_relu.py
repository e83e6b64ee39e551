"""ReLU networks with one hidden layer: are they recovered from samples, and what does each step add?

    python benchmarks/bench_relu.py                     about 10 minutes on one core
    python benchmarks/bench_relu.py --part targets      planted networks, known and unknown width; ten million samples
    python benchmarks/bench_relu.py --part large        50 and 100 units in as many dimensions: about 8 minutes
    python benchmarks/bench_relu.py --part inputs       uniform, Student's t, Laplace and correlated inputs
    python benchmarks/bench_relu.py --part noise        noise of 5 and 30 %, unknown width, seven shapes and inputs
    python benchmarks/bench_relu.py --part few_samples  120 to 500 samples, noise of 10 and 30 %, against MLPRegressor
    python benchmarks/bench_relu.py --part missing_unit false alarms and power of the test for a missing unit
    python benchmarks/bench_relu.py --part exact        exact tensors, up to 207 units in 20 dimensions
    python benchmarks/bench_relu.py --part signs        units whose weights cancel: are their signs claimed?
    python benchmarks/bench_relu.py --part orders       more units than pairs of inputs; exact tensors of order 8 and 10
    python benchmarks/bench_relu.py --part tables       diabetes, breast cancer, friedman1 against Ridge
    python benchmarks/bench_relu.py --part ablation     the paper's algorithm, and one change after the other
    python benchmarks/bench_relu.py --part baselines    scikit-learn's MLPRegressor, best of ten, and boosting
    python benchmarks/bench_relu.py --quick             seconds, writes no results

Networks have random unit weights, biases uniform in [-1, 1] and output weights uniform in +-[1, 2]; inputs are standard
normal; noise is relative to the standard deviation of the network's values. Seeds start at 9100 (large: 171000, inputs:
171500); nothing was tuned on them.
"""

from __future__ import annotations

from parts.relu import (  # noqa: F401  (registers the parts)
    ablation,
    baselines,
    exact,
    few_samples,
    inputs,
    large,
    missing_unit,
    noise,
    orders,
    signs,
    tables,
    targets,
)
from registry import run_parts

if __name__ == "__main__":
    run_parts("relu", __doc__)
