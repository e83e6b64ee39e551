"""Does the library learn hierarchical targets, and what does training all layers together give?

    python benchmarks/bench_hierarchical.py                     about 15 minutes on one idle core
    python benchmarks/bench_hierarchical.py --quick             small versions, prints only
    python benchmarks/bench_hierarchical.py --part wide --device cuda --cifar FOLDER

Parts: `recovery` (planted targets: errors, seconds, kernels beside), `algorithm1`, `correction` (feature errors against
alpha; the question of Figure 9 of Allen-Zhu and Li, 2020), `layerwise` (Figure 6's question), `signs` (Theorem 4),
`tables` (digits, breast cancer, regression tables; Figure 12's question), `wide` (a wide network on digits, and on
CIFAR-10 where FOLDER holds data_batch_1.npz with the arrays "data" and "labels": nothing is downloaded). Errors are
squared and relative to the variance, on 20 000 fresh rows; seconds are processor time of one fit.
"""

from __future__ import annotations

import argparse
import sys

from parts.hierarchical import (  # noqa: F401  (registers the parts)
    algorithm1,
    correction,
    layerwise,
    recovery,
    signs,
    tables,
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
