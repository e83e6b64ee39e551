"""Entangled weights: accuracy, time and queries of the identification of Fiedler et al. (2021).

    python benchmarks/bench_entangled_weights.py                  all parts, about 10 minutes on 2 idle cores
    python benchmarks/bench_entangled_weights.py --part targets   one part
    python benchmarks/bench_entangled_weights.py --quick          under a minute, writes no results

Parts: `table2` and `figure9` of Fiedler, Fornasier, Klock, Rauchensteiner (2021), "Stable Recovery of Entangled
Weights"; `transition`, the number of neurons above which Hessians do not separate them; `targets`, the requirements of
this library. Each part replaces its results in results/entangled_weights.json; `python benchmarks/report.py` writes
them into README.md.
"""

from __future__ import annotations

from parts.entangled_weights import (  # noqa: F401  (registers the parts)
    figure9,
    table2,
    targets,
    transition,
)
from registry import run_parts

if __name__ == "__main__":
    run_parts("entangled_weights", __doc__)
