"""Saddle escape: how do deep ReLU networks leave the saddle at the origin, and what does the analysis cost?

    python benchmarks/bench_saddle.py                       all parts: about 20 minutes on one core
    python benchmarks/bench_saddle.py --quick               small and few, a minute, writes no results
    python benchmarks/bench_saddle.py --part mnist --device cuda [--mnist mnist.npz]

Parts: `exact` (Example 1 by its formulas, extended networks, digits with default settings), `width` (Figure 2 of the
paper: success rate against width on Example 1, and batched restarts against a loop over seeds), `times` (escape times,
the printed and the corrected formula against simulated gradient flow), `depth` (low rank against depth on digits),
`training` (Figures 1, 3 and 4 on digits), `rank_two` (how often six layers reach the second rank), `features` (escape
directions and principal components on five tables), `bounds` (certified upper bounds of speeds at depth two on 20
problems). `mnist` runs only if selected: the paper's own setting, six layers
of width 1000 with batches of 32, on a local file of MNIST (arrays ``x_train``, ``y_train`` as Keras stores them) or on
digits. The paper is Bantzis, Simon, Jacot (2025), "Saddle-to-saddle dynamics in deep ReLU networks: low-rank bias in
the first saddle escape".
"""

from __future__ import annotations

import argparse
import sys
import warnings

from parts.saddle import (  # noqa: F401  (registers the parts)
    bounds,
    depth,
    exact,
    features,
    rank_two,
    times,
    training,
    width,
)
from registry import run_parts

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if "mnist" in sys.argv:
        parser = argparse.ArgumentParser(description="The paper's own setting.")
        parser.add_argument("--part", choices=("mnist",))
        parser.add_argument("--device", default="cpu")
        parser.add_argument("--mnist", default=None, help="a local .npz file with x_train and y_train")
        parser.add_argument("--epochs", type=int, default=100)
        parser.add_argument("--width", type=int, default=1000)
        options = parser.parse_args()
        training.run_mnist(options.mnist, options.device, options.width, options.epochs)
    else:
        run_parts("saddle", __doc__)
