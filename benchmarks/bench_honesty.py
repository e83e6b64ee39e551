"""False claims and budgets: are claims of exactness true, and do limits of time, memory and threads hold?

python benchmarks/bench_honesty.py                       about two hours on two cores
python benchmarks/bench_honesty.py --part clipped        clipped outputs: none called exact, most identified
python benchmarks/bench_honesty.py --part exact          NetworkIdentifier on guards, rare units, offsets
python benchmarks/bench_honesty.py --part relu           TensorReLURegressor on the same cases
python benchmarks/bench_honesty.py --part passive        PassiveNetworkIdentifier on the same cases
python benchmarks/bench_honesty.py --part hierarchical   HierarchicalQuadraticNet and NetworkCompressor
python benchmarks/bench_honesty.py --part global         certificates against exact rational arithmetic
python benchmarks/bench_honesty.py --part coverage       standard errors of PassiveNetworkIdentifier
python benchmarks/bench_honesty.py --part audit          audits of quantized and unchanged models
python benchmarks/bench_honesty.py --part budgets        max_seconds on 20 models, beside two busy processes
python benchmarks/bench_honesty.py --part memory         peak memory of networks that are too large
python benchmarks/bench_honesty.py --part threads        default threads against one thread
python benchmarks/bench_honesty.py --quick               small and few, writes no results
"""

from __future__ import annotations

from parts.honesty import (  # noqa: F401  (registers the parts)
    audit,
    budgets,
    clipped,
    coverage,
    exact,
    global_minimum,
    hierarchical,
    memory,
    passive,
    relu,
    threads,
)
from registry import run_parts

if __name__ == "__main__":
    run_parts("honesty", __doc__)
