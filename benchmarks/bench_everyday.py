"""Ordinary deployments: columns, float32 audits, rounded outputs, input ranges, budgets, local deviations, files.

python benchmarks/bench_everyday.py           all parts, about an hour on one idle core
python benchmarks/bench_everyday.py --quick   small and few, writes no results
"""

from __future__ import annotations

from parts.everyday import (  # noqa: F401  (registers the parts)
    columns,
    deadlines,
    few_queries,
    files,
    float32_audits,
    layouts,
    local_differences,
    logits,
    probability_audits,
    public,
    ranged_services,
    reductions,
    rounded_outputs,
    undetected,
)
from registry import run_parts

if __name__ == "__main__":
    run_parts("everyday", __doc__)
