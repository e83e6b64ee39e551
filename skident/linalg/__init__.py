"""Linear algebra on arrays: rank-one matrices in subspaces, symmetric tensors, pencils, Hermite polynomials.

Everything here is a function on arrays, written against the array API: NumPy arrays and torch tensors on any device
go through the same code.
"""

from .columns import column_units
from .hermite import hermite_contraction, hermite_features, hermite_polynomial, hermite_polynomials
from .moments import hermite_tensors, moment_sums
from .packing import n_symmetric_entries
from .pencils import JennrichFactors, JointPencil, jennrich, joint_pencil, matrix_pencil
from .power import RankOneOptions, RankOneSearch, find_rank_one, projection_norms, subspace_power_iteration
from .singular_values import svd
from .symmetric import DeficientRankError, leading_subspace, n_free_entries, smat, svec, svec_outer
from .symmetric_rank_one import SymmetricPowers, find_symmetric_powers, power_jacobian
from .symmetric_tensors import contract_symmetric, flatten_symmetric, pack_symmetric, symmetric_power, unpack_symmetric

__all__ = [
    "DeficientRankError",
    "column_units",
    "JennrichFactors",
    "JointPencil",
    "RankOneOptions",
    "RankOneSearch",
    "SymmetricPowers",
    "contract_symmetric",
    "find_rank_one",
    "find_symmetric_powers",
    "flatten_symmetric",
    "hermite_contraction",
    "hermite_features",
    "hermite_polynomial",
    "hermite_polynomials",
    "hermite_tensors",
    "jennrich",
    "joint_pencil",
    "leading_subspace",
    "matrix_pencil",
    "moment_sums",
    "n_free_entries",
    "n_symmetric_entries",
    "pack_symmetric",
    "power_jacobian",
    "projection_norms",
    "smat",
    "subspace_power_iteration",
    "svd",
    "svec",
    "svec_outer",
    "symmetric_power",
    "unpack_symmetric",
]
