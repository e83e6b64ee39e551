"""ONNX files: are networks from scikit-learn, torch and skident read and written without loss?

    python benchmarks/bench_onnx.py          ten seconds on one core
    python benchmarks/bench_onnx.py --quick  seconds, writes no results

Each row has ten tanh or ReLU networks of 3 to 20 inputs and one or two hidden layers of 5 to 40 units. skl2onnx,
torch.onnx.export (the exporter that does not need onnxscript) and `to_onnx` write the files; onnxruntime runs them and
`from_onnx` reads them. Differences on 2,000 samples from N(0, I) are relative to the largest output.
"""

from __future__ import annotations

from parts import onnx_files  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("onnx", __doc__)
