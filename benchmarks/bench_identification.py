"""Identification: which networks are recovered, how accurately, how fast and from how many queries?

    python benchmarks/bench_identification.py                  all parts, under 25 minutes on one core
    python benchmarks/bench_identification.py --part grid      one part
    python benchmarks/bench_identification.py --quick          under a minute, writes no results

Parts: `targets`, requirements and what was reached; `grid`, one property at a time varied around a base case;
`baselines`, learning the network from as many samples as the identification queries; `cost`, seconds, queries and
memory against size; `ordinary`, models with float32, rounded, noisy, shifted and scaled outputs; `processes`, two
threads and two workers of a cluster against one job (needs the extra `distributed`); `budgets`, `max_seconds`;
`unnamed`, units whose activation has no name. Each part replaces its results in results/identification.json;
`report.py` writes them into README.md and draws docs/identification_cost.png. The linear algebra has one thread unless
`--threads` is given.
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
    unnamed,
)
from registry import run_parts

if __name__ == "__main__":
    run_parts("identification", __doc__, threads=1)
