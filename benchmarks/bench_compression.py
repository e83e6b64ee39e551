"""Compression: how small can a trained network become at a given error of its outputs?

    python benchmarks/bench_compression.py            under 3 minutes on one core
    python benchmarks/bench_compression.py --quick    one small network, seconds, writes no results

`skident.compression.compress_network` compresses over-wide networks trained by scikit-learn to two tolerances. The
baselines have the sizes that it ends with: pruning of units and of single weights by magnitude, with and without
retraining by Adam, and smaller networks trained from random starts on the same inputs and outputs. Errors are relative
to the trained network's outputs, on samples that neither training nor any method used.
"""

from __future__ import annotations

from parts import compression  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("compression", __doc__)
