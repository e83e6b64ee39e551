"""Is a changed network noticed, are its weights named, and is an unchanged one left in peace?

    python benchmarks/bench_audit.py                   about half an hour on one core
    python benchmarks/bench_audit.py --part changed    one weight by a millionth, weights in half precision, a unit gone
    python benchmarks/bench_audit.py --part unchanged  as it is, units in another order, in single precision
    python benchmarks/bench_audit.py --quick           seconds, nothing written

Tanh and ReLU networks of one to three hidden layers and about 100 to 25 000 parameters. Every audit is told the network
and rows from N(0, I), and may ask ``2 P / m_L`` rows.
"""

from __future__ import annotations

from parts import audit  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("audit", __doc__)
