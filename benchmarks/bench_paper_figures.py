"""The remaining figures of the five papers, reproduced.

    python benchmarks/bench_paper_figures.py                      all parts, about five minutes on one idle core
    python benchmarks/bench_paper_figures.py --part circle        one part
    python benchmarks/bench_paper_figures.py --quick              under a minute, writes no results

Parts: `distributions`, `dimensions` and `descent` are Figures 3 to 8 of Fiedler et al. at half their size;
`activations` is Figure 1 of Soltanolkotabi et al.; `circle` is Figures 5 and 6 of Bantzis et al.; `digits` is the
protocol of Figures 9, 10 and 14 of Allen-Zhu and Li. The reproduction page of the site reads
results/paper_figures.json.
"""

from __future__ import annotations

from parts.paper_figures import entangled_weights, other_papers  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("paper_figures", __doc__)
