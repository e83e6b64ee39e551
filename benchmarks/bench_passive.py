"""Which network did these samples come from? Nothing may be asked, widths are not told.

    python benchmarks/bench_passive.py                     about half an hour on one core
    python benchmarks/bench_passive.py --part one_layer    planted tanh networks, 8 units, Gaussian inputs
    python benchmarks/bench_passive.py --part outputs      the same with three outputs
    python benchmarks/bench_passive.py --part activations  sigmoid, erf, softplus, sin, gelu
    python benchmarks/bench_passive.py --part two_layers   two hidden layers
    python benchmarks/bench_passive.py --part inputs       uniform, Laplace, correlated, binary and continuous inputs
    python benchmarks/bench_passive.py --part noise        1 and 10 % of the targets' deviation
    python benchmarks/bench_passive.py --part trained      scikit-learn's MLPRegressor on diabetes as the teacher
    python benchmarks/bench_passive.py --part baselines    MLPRegressor, told the width, best of ten
    python benchmarks/bench_passive.py --quick             seconds, nothing written

Networks have 10 inputs, unit weight columns of random direction, shifts N(0, 0.3^2) and linear outputs; there are 10
rows a parameter (20 of trained ones). `met` counts networks with the right widths and no error, of parameters or on
fresh rows, above 1e-10 (1e-6 of trained ones), both relative maxima. Seconds are those of the processor. Published
beside it: Expand-and-Cluster (ICML 2024) finds tanh networks from samples with "< 10 % more units" than the teacher's.
"""

from __future__ import annotations

from parts import passive  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("passive", __doc__)
