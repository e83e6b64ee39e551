"""Array mathematics: subspaces of symmetric matrices and the rank-one matrices in them.

Everything here is a function on arrays, written against the array API: NumPy arrays and torch tensors on any device
go through the same code.
"""

from .power import RankOneSearch, find_rank_one, projection_norms, subspace_power_iteration
from .symmetric import leading_subspace, n_free_entries, smat, svec, svec_outer

__all__ = [
    "RankOneSearch",
    "find_rank_one",
    "leading_subspace",
    "n_free_entries",
    "projection_norms",
    "smat",
    "subspace_power_iteration",
    "svec",
    "svec_outer",
]
