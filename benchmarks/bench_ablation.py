"""Which optional steps pay: each left out, on paired networks of the rows of `compare_versions.py` and of estimators.

python benchmarks/bench_ablation.py              hours on one core; what was measured is kept, and a further run goes on
python benchmarks/bench_ablation.py --trials 5   fewer networks a row
python benchmarks/bench_ablation.py --quick      one step on one row, writes no results
"""

from __future__ import annotations

from parts import ablation  # noqa: F401  (registers the part)
from registry import run_parts

if __name__ == "__main__":
    run_parts("ablation", __doc__, threads=1)
