"""Are shallow networks trained to the end, how fast, and what does it take?

    python benchmarks/bench_landscape.py                  all parts, under 15 minutes on one core
    python benchmarks/bench_landscape.py --part rate      one part
    python benchmarks/bench_landscape.py --quick          a look, under a minute, nothing written

Parts: `targets`, what was aimed at against what was reached; `figures`, Figures 2 to 4 of Soltanolkotabi, Javanmard
and Lee (2017) with our optimiser; `rate`, Theorem 2.5's rate of convergence near a planted network, predicted against
observed; `comparison`, both solvers of `QuadraticNetRegressor` against polynomial regression and Adam from random
starts; `proofs`, certificates of collinear data against exact rational arithmetic. Every part replaces its own results
in results/landscape.json. The linear algebra has one thread unless `--threads` says otherwise, and seconds are
processor time.
"""

from __future__ import annotations

from parts.landscape import (  # noqa: F401  (registers the parts)
    comparison,
    figures,
    proofs,
    rate,
    targets,
)
from registry import run_parts

if __name__ == "__main__":
    run_parts("landscape", __doc__, threads=1)
