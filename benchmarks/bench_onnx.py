"""Do networks come through ONNX as they are: from scikit-learn, from torch, their own files there and back?

    python benchmarks/bench_onnx.py          ten seconds on one core
    python benchmarks/bench_onnx.py --quick  seconds, nothing written

Ten tanh or ReLU networks a row, of 3 to 20 inputs and one or two hidden layers of 5 to 40 units. Files are written by
skl2onnx, by torch.onnx.export (the exporter that needs no onnxscript) and by `to_onnx`, run by onnxruntime and read by
`from_onnx`. Differences on 2 000 rows from N(0, I) are relative to the largest answer.
"""

from __future__ import annotations

from parts import onnx_files  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("onnx", __doc__)
