"""Networks with few outputs: is a second layer as wide as the first one recovered?

    python benchmarks/bench_patches.py                     about an hour on one core
    python benchmarks/bench_patches.py --part regressors   MLPRegressor (16, 16) and (32, 32) on diabetes and friedman1
    python benchmarks/bench_patches.py --part unknown      (16, 16), unknown widths
    python benchmarks/bench_patches.py --part wide         (50, 50) and (64, 64) on friedman1
    python benchmarks/bench_patches.py --part three        three hidden layers: planted, and (16, 16, 16)
    python benchmarks/bench_patches.py --part few          2 to 4 inputs and layers of 5 to 16 units
    python benchmarks/bench_patches.py --part random       a hundred random networks
    python benchmarks/bench_patches.py --part polish       the final least squares, 5,702 and 25,450 parameters
    python benchmarks/bench_patches.py --quick             seconds, writes no results

The identifier queries function values only. Errors are relative maxima on 2,000 inputs from N(0, I). A network is
identified if its error is at most 1e-10 and its weights, after alignment, are right to 1e-6 (random networks: the error
alone).
"""

from __future__ import annotations

from parts.patches import networks, polish  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("patches", __doc__)
