"""Linear algebra on arrays: rank-one matrices in subspaces, symmetric tensors, pencils, Hermite polynomials.

Everything here is a function on arrays, written against the array API: NumPy arrays and torch tensors on any device
go through the same code.
"""

from .columns import column_units
from .hermite import hermite_features, hermite_polynomials
from .moments import hermite_tensors, moment_sums
from .packing import n_symmetric_entries
from .pencils import JennrichFactors, jennrich, joint_pencil
from .power import RankOneOptions, RankOneSearch, find_rank_one, projection_norms, subspace_power_iteration
from .singular_values import inverse_and_null, svd
from .symmetric import DeficientRankError, leading_subspace, n_free_entries, smat, svec, svec_outer
from .symmetric_rank_one import SymmetricPowers, find_symmetric_powers
from .symmetric_tensors import contract_symmetric, flatten_symmetric, symmetric_power

__all__ = [
    "DeficientRankError",
    "JennrichFactors",
    "RankOneOptions",
    "RankOneSearch",
    "SymmetricPowers",
    "find_rank_one",
    "find_symmetric_powers",
    "hermite_tensors",
    "jennrich",
    "joint_pencil",
    "leading_subspace",
    "subspace_power_iteration",
]
