"""Subspace power method: time to recover all rank-one matrices of a subspace.

    python benchmarks/bench_power_method.py            under 10 minutes on 2 cores
    python benchmarks/bench_power_method.py --quick    the smallest case, under a minute, writes no results

Random unit vectors a_1 ... a_r in R^d are recovered from the span of a_i a_i^T, or from the symmetric tensor
sum_i a_i^{(x)4} whose unfolding has that span. The methods are `skident.linalg.find_rank_one`, Algorithm 2 of Fiedler
et al. (2021) as printed, and TensorLy's symmetric power iteration and alternating least squares. All methods receive
the same vectors in one run.
"""

from __future__ import annotations

from parts import power_method  # noqa: F401  (registers the parts)
from registry import run_parts

if __name__ == "__main__":
    run_parts("power_method", __doc__)
