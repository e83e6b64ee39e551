"""Landscapes of shallow networks: is training globally optimal, and what does it cost?

    python benchmarks/bench_landscape.py                  all parts, under 15 minutes on one core
    python benchmarks/bench_landscape.py --part rate      one part
    python benchmarks/bench_landscape.py --quick          under a minute, writes no results

Parts: `targets`, requirements and what was reached; `figures`, Figures 2 to 4 of Soltanolkotabi, Javanmard and Lee
(2017) with the optimizer of this library; `rate`, the convergence rate of Theorem 2.5 near a planted network, predicted
and observed; `comparison`, both solvers of `QuadraticNetRegressor` against polynomial regression and Adam from random
starts; `proofs`, certificates of collinear data against exact rational arithmetic; `losses`, certificates of other
losses and accuracies of classifiers; `one_sign`, fits with output weights of one sign. Each part replaces its results
in results/landscape.json. The linear algebra has one thread unless `--threads` is given; seconds are processor time.
"""

from __future__ import annotations

from parts.landscape import (  # noqa: F401  (registers the parts)
    comparison,
    figures,
    losses,
    one_sign,
    proofs,
    rate,
    targets,
)
from registry import run_parts

if __name__ == "__main__":
    run_parts("landscape", __doc__, threads=1)
