"""Are the symmetries found that were applied to a torch module?

    python benchmarks/bench_alignment.py            7 minutes on one idle core
    python benchmarks/bench_alignment.py --quick    three networks a row, under a minute, nothing written

A network is permuted in all its groups of units, rescaled behind ReLU, flipped behind tanh, and flipped and rescaled in
front of batch norm; `skident.network.align_modules` gets both. All parameters and running statistics must come back to
1e-9 relative to the largest of their tensor, in 10 seconds, and the function change by 1e-12 of its largest value at
most. Beside it, where there are permutations alone, the published algorithm: weight matching of Ainsworth, Hayase and
Srinivasa (2023), written anew here, from the order as it is.
"""

from __future__ import annotations

from parts import alignment  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("alignment", __doc__)
