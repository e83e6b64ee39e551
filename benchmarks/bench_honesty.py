"""Is anything called exact, global or the same that is not, and do budgets of time, memory and threads hold?

python benchmarks/bench_honesty.py                   about two hours on two cores
python benchmarks/bench_honesty.py --part clipped    clipped outputs: none called exact, most identified
python benchmarks/bench_honesty.py --part exact      NetworkIdentifier on guards, rare units, offsets
python benchmarks/bench_honesty.py --part relu       TensorReLURegressor on the same
python benchmarks/bench_honesty.py --part passive    PassiveNetworkIdentifier on the same
python benchmarks/bench_honesty.py --part hierarchical    HierarchicalQuadraticNet and NetworkCompressor
python benchmarks/bench_honesty.py --part global     certificates against exact rational arithmetic
python benchmarks/bench_honesty.py --part coverage   standard errors of PassiveNetworkIdentifier
python benchmarks/bench_honesty.py --part audit      audits of quantized and unchanged models
python benchmarks/bench_honesty.py --part budgets    max_seconds on 20 models, two busy processes beside
python benchmarks/bench_honesty.py --part memory     peak memory of networks that are too large
python benchmarks/bench_honesty.py --part threads    default threads against one
python benchmarks/bench_honesty.py --quick           small and few, nothing written
"""

from __future__ import annotations

import _honesty_audit
import _honesty_budgets
import _honesty_clipped
import _honesty_coverage
import _honesty_exact
import _honesty_global
import _honesty_hierarchical
import _honesty_memory
import _honesty_passive
import _honesty_relu
import _honesty_threads
from _common import run_parts

PARTS = {
    "clipped": _honesty_clipped,
    "exact": _honesty_exact,
    "relu": _honesty_relu,
    "passive": _honesty_passive,
    "hierarchical": _honesty_hierarchical,
    "global": _honesty_global,
    "coverage": _honesty_coverage,
    "audit": _honesty_audit,
    "budgets": _honesty_budgets,
    "memory": _honesty_memory,
    "threads": _honesty_threads,
}


if __name__ == "__main__":
    run_parts("honesty", PARTS, __doc__.splitlines()[0])
