"""How small can a trained network become without changing its answers?

    python benchmarks/bench_compression.py            under 3 minutes on one core
    python benchmarks/bench_compression.py --quick    one small network, seconds, nothing written

Over-wide networks trained by scikit-learn are compressed by `skident.compression.compress_network` to two tolerances.
At the sizes that it ends with, other ways are asked for their error: units and single weights left out by magnitude, as
they are and after Adam, and smaller networks trained on the same inputs and answers from random starts. Errors are
against the trained network's answers, on rows that neither training nor any of the methods saw.
"""

from __future__ import annotations

from parts import compression  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("compression", __doc__)
