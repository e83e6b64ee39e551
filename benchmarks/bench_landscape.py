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

import _landscape_comparison
import _landscape_figures
import _landscape_proofs
import _landscape_rate
import _landscape_targets
from _common import _limit_threads, run_parts

PARTS = {
    "targets": _landscape_targets,
    "figures": _landscape_figures,
    "rate": _landscape_rate,
    "comparison": _landscape_comparison,
    "proofs": _landscape_proofs,
}

if __name__ == "__main__":
    _limit_threads(1)
    run_parts("landscape", PARTS, __doc__.splitlines()[0])
