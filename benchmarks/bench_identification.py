"""Which networks are identified, how exactly, how fast and from how few answers?

    python benchmarks/bench_identification.py                  all parts, under 25 minutes on one core
    python benchmarks/bench_identification.py --part grid      one part
    python benchmarks/bench_identification.py --quick          a look, under a minute, nothing written

Parts: `targets`, what was aimed at against what was reached; `grid`, one property at a time varied around a base case;
`baselines`, learning the network from as many answers; `cost`, seconds, queries and memory against size, with bars of
its own; `ordinary`, boxes that answer in single precision, rounded, with noise, shifted and scaled; `processes`, two
threads and two workers of a cluster beside one job (needs the extra `distributed`). Every part replaces its own results
in results/identification.json; `report.py` puts them into README.md and draws
docs/identification_cost.png. The linear algebra has one thread unless `--threads` says otherwise.
"""

from __future__ import annotations

from parts.identification import (  # noqa: F401  (registers the parts)
    baselines,
    budgets,
    cost,
    grid,
    ordinary,
    processes,
    targets,
)
from registry import run_parts

if __name__ == "__main__":
    run_parts("identification", __doc__, threads=1)
