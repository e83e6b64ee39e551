"""Alignment of torch modules: are the symmetries applied to a module recovered?

    python benchmarks/bench_alignment.py            7 minutes on one idle core
    python benchmarks/bench_alignment.py --quick    three networks per row, under a minute, writes no results

All groups of units of a network are permuted, rescaled behind ReLU, sign-flipped behind tanh, and flipped and rescaled
in front of batch norm. `skident.network.align_modules` receives both modules. It must recover all parameters and
running statistics to 1e-9 relative to the largest entry of their tensor, within 10 seconds, and may change the function
by at most 1e-12 of its largest value. For permutations alone, the baseline is weight matching of Ainsworth, Hayase and
Srinivasa (2023), reimplemented here and started from the identity.
"""

from __future__ import annotations

from parts import alignment  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("alignment", __doc__)
