"""Hierarchical targets: are they learned, and what does joint training of all layers add?

    python benchmarks/bench_hierarchical.py                     about 15 minutes on one idle core
    python benchmarks/bench_hierarchical.py --quick             small versions, writes no results
    python benchmarks/bench_hierarchical.py --part wide --device cuda --cifar FOLDER

Parts: `recovery` (planted targets: errors, seconds, kernel ridge regression), `algorithm1`, `correction` (feature
errors against alpha, as in Figure 9 of Allen-Zhu and Li, 2020), `layerwise` (as in Figure 6), `signs` (Theorem 4),
`signed` (half of the units subtracted, and quadratic forms from few samples), `unknown_widths` (`widths="auto"` with
noise), `sample_sizes` (errors against the number of samples), `deep` (degree 16 and 32), `tables` (digits, breast
cancer, regression tables, as in Figure 12), `wide` (a wide network on digits, and on CIFAR-10 if FOLDER holds
data_batch_1.npz with the arrays "data" and "labels"; nothing is downloaded). Errors are squared and relative to the
variance, on 20,000 held-out samples; seconds are processor time per fit.
"""

from __future__ import annotations

import argparse
import sys

from parts.hierarchical import (  # noqa: F401  (registers the parts)
    algorithm1,
    correction,
    deep,
    layerwise,
    recovery,
    sample_sizes,
    signed,
    signs,
    tables,
    unknown_widths,
    wide,
)
from registry import run_parts

if __name__ == "__main__":
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--device", default="cpu")
    own.add_argument("--cifar", default=None)
    given, rest = own.parse_known_args()
    wide.SETTINGS.update(vars(given))
    sys.argv[1:] = rest
    run_parts("hierarchical", __doc__)
