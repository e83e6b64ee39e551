"""How good are the estimators on ordinary tables?

    python benchmarks/bench_tables.py             about ten minutes on one core
    python benchmarks/bench_tables.py --part classes, --part regression
    python benchmarks/bench_tables.py --trials 3  shuffled three times
    python benchmarks/bench_tables.py --quick     two small tables, one fold, prints only

Tables that scikit-learn ships or makes; three folds in the order of the file, and three of shuffled rows. Scores are
R^2, the mean over the targets, or accuracy; seconds are processor time of a fit. Estimators are as constructed by
default. xRFM and EBM (packages xrfm and interpret-core) join in where they are installed; on a table where a fit of
theirs takes more than half a minute, or fails, they are left out with a note.
"""

from __future__ import annotations

from parts import tables  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("tables", __doc__)
