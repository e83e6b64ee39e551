"""Models as people have them: what does the default call do with them?

python benchmarks/bench_real_models.py                   about 20 minutes on one core
python benchmarks/bench_real_models.py --part networks   networks, and some that nearly are
python benchmarks/bench_real_models.py --part connections  residual blocks, concatenated skips, averages
python benchmarks/bench_real_models.py --part convolutions  what `structure()` recognizes
python benchmarks/bench_real_models.py --part wide       tanh (64, 32)
python benchmarks/bench_real_models.py --part others     trees, neighbors, kernels, splines, recurrent networks, labels
python benchmarks/bench_real_models.py --part layer_norm  attempts at LayerNorm with what is in the package
python benchmarks/bench_real_models.py --part totals     counts over the results of the other parts
python benchmarks/bench_real_models.py --quick           three kinds per part, writes no results
"""

from __future__ import annotations

from parts import convolutions, layer_norm, real_models, real_models_totals  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("real_models", __doc__, threads=1)
