"""Audits: are changes of a network detected and located, and are unchanged networks accepted?

    python benchmarks/bench_audit.py                   about half an hour on one core
    python benchmarks/bench_audit.py --part changed    one weight by a millionth, weights in float16, a removed unit
    python benchmarks/bench_audit.py --part unchanged  the network itself, permuted units, float32
    python benchmarks/bench_audit.py --quick           seconds, writes no results

Tanh and ReLU networks have one to three hidden layers and about 100 to 25,000 parameters. Every audit receives the
reference network and samples from N(0, I), with a budget of ``2 P / m_L`` queries.
"""

from __future__ import annotations

from parts import audit  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("audit", __doc__)
