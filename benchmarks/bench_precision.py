"""Models with outputs in float32 or coarser: how many networks are recovered, how accurately, from how many queries?

python benchmarks/bench_precision.py                      about three hours on one core
python benchmarks/bench_precision.py --part one_layer     ReLU networks with one hidden layer
python benchmarks/bench_precision.py --part deep          ReLU networks with two hidden layers
python benchmarks/bench_precision.py --part tanh          tanh networks with one to three hidden layers
python benchmarks/bench_precision.py --part growing       GELU, SiLU and softplus networks
python benchmarks/bench_precision.py --part classifiers   softmax classifiers, from probabilities
python benchmarks/bench_precision.py --part onnx          ONNX files and sessions
python benchmarks/bench_precision.py --part coarse        half precision, decimals, noise, against the Cramer-Rao bound
python benchmarks/bench_precision.py --part curve         error against queries
python benchmarks/bench_precision.py --quick              one network per part, writes no results
"""

from __future__ import annotations

from parts.precision import coarse, curve, onnx_models, rows  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("precision", __doc__, threads=1)
