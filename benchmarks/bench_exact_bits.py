"""Weights that are float32, float16 or bfloat16 numbers: how many of them are recovered to the last bit?

python benchmarks/bench_exact_bits.py                          about ten minutes on one core
python benchmarks/bench_exact_bits.py --part float64_outputs   torch modules and perceptrons in double precision
python benchmarks/bench_exact_bits.py --part off_grid          networks whose weights are not such numbers
python benchmarks/bench_exact_bits.py --part float32_outputs   networks recovered from float32 outputs alone
python benchmarks/bench_exact_bits.py --part float32_curve     share of bits against queries
python benchmarks/bench_exact_bits.py --quick                  one network per row of the first kind, writes no results
"""

from __future__ import annotations

from parts.exact_bits import float32_outputs, float64_outputs  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("exact_bits", __doc__, threads=1)
