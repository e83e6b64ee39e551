from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from numpy.random import Generator, RandomState
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = [
    "DeficientRankError",
    "JennrichFactors",
    "JointPencil",
    "RankOneOptions",
    "RankOneSearch",
    "SymmetricPowers",
    "column_units",
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

class DeficientRankError(ValueError):
    """Vectors span fewer dimensions than the requested rank, see `leading_subspace`."""

class JennrichFactors(NamedTuple):
    """``T = sum_i u_i (x) v_i (x) w_i``: the result of `jennrich`."""

    U: Array
    V: Array
    W: Array
    residual: float

class JointPencil(NamedTuple):
    """``M_j = sum_i c_ij w_i w_i^T``: the result of `joint_pencil`."""

    vectors: Array
    coefficients: Array
    residual: float

@dataclass(frozen=True)
class RankOneOptions:
    """How `find_rank_one` searches."""

    n_starts: int | None = ...
    phi_min: float = ...
    step_size: Any = ...
    max_iter: Any = ...
    tol: Any = ...
    max_rounds: int = ...
    chunk_bytes: int | None = ...
    def climb(self, basis: Any, deflated: Any, u: Any) -> Any:
        """A few steps in the deflated subspace, if any, then in the full one until convergence."""

@dataclass(frozen=True)
class RankOneSearch:
    """Result of `find_rank_one`."""

    vectors: Any
    phi: Any
    n_iter: int
    n_starts: int

@dataclass(frozen=True)
class SymmetricPowers:
    """Result of `find_symmetric_powers`."""

    vectors: Array
    residuals: Array

def column_units(A: Array, constant: float = ...) -> Array:
    """Mean and standard deviation of every column, also if squares of its entries overflow or underflow."""

def contract_symmetric(packed: Any, n_features: int, order: int, by: Any, by_order: int) -> Any:
    """Contractions of a packed symmetric tensor with packed ones of lower order."""

def find_rank_one(
    basis: Any,
    n_features: int,
    *,
    n_vectors: int | None = ...,
    known: Any = ...,
    options: RankOneOptions | None = ...,
    rng: RandomState | Generator | None = ...,
    callback: Call | None = ...,
) -> RankOneSearch:
    """All rank-one matrices of a subspace: power iterations from random starts, then from deflated ones."""

def find_symmetric_powers(
    basis: Array,
    n_features: int,
    order: int,
    rng: RandomState,
    *,
    max_rounds: int = ...,
    n_starts: int = ...,
    farthest: float | None = ...,
) -> SymmetricPowers:
    """All vectors whose symmetric powers lie in a subspace, as many as it has dimensions."""

def flatten_symmetric(packed: Any, n_features: int, orders: Any) -> Any:
    """A packed symmetric tensor as a matrix or an order-3 tensor in packed coordinates of its parts."""

def hermite_contraction(
    X: Any,
    y: Any,
    order: int,
    vectors: Any = ...,
    *,
    matrices: Any = ...,
    sample_weight: Any = ...,
    batch_size: int = ...,
) -> Any:
    """The coefficient tensor ``T_k = mean_n y_n He_k(x_n)`` contracted down to matrices, without forming it."""

def hermite_features(X: Any, order: int) -> Any:
    """Packed Hermite tensors ``He_k(x)`` of the rows of X."""

def hermite_polynomial(k: int, x: Any) -> Any:
    """Probabilists' Hermite polynomial ``He_k`` at an array of any shape."""

def hermite_polynomials(degree: int, x: Any) -> Any:
    """Probabilists' Hermite polynomials ``He_0(x), ..., He_degree(x)``, stacked in front: (degree + 1, ...)."""

def hermite_tensors(sums: tuple[Array, ...], total: float) -> Any:
    """Packed coefficient tensors ``T_k = E[r He_k(z)]`` from the sums of a sample."""

def jennrich(
    T: ArrayLike, rank: int, *, symmetric: bool = ..., n_draws: int = ..., rng: RandomState | Generator | None = ...
) -> JennrichFactors:
    """Rank-one terms of an order-3 tensor ``T = sum_i u_i (x) v_i (x) w_i`` by Jennrich's algorithm."""

def joint_pencil(
    matrices: ArrayLike,
    rank: int,
    *,
    base: ArrayLike | None = ...,
    n_draws: int = ...,
    max_iter: int = ...,
    rng: RandomState | Generator | None = ...,
) -> JointPencil:
    """Common factors of symmetric matrices ``M_j = sum_i c_ij w_i w_i^T``, by random pencils and Newton steps."""

def leading_subspace(chunks: Sequence[Any], rank: int) -> tuple[Any, Any]:
    """Leading right singular subspace of a tall or wide matrix given by blocks of rows."""

def matrix_pencil(A: ArrayLike, B: ArrayLike, rank: int) -> Array:
    """Common factors of ``A = W D_A Z^T`` and ``B = W D_B Z^T``: eigenvectors of ``A B^+`` on the range of B."""

def moment_sums(Z: Array, r: Array) -> tuple[Array, ...]:
    """Sums ``sum_n r_n z_n^k`` for k = 0 to 4, every symmetric product once."""

def n_free_entries(n_features: int) -> int:
    """``D (D + 1) / 2``, the dimension of the symmetric D x D matrices."""

def n_symmetric_entries(n_features: int, order: int) -> int:
    """``C(D + k - 1, k)``, the dimension of the symmetric tensors of order k over R^D."""

def pack_symmetric(T: Any) -> Any:
    """Packed vector of a full symmetric tensor; only entries with ascending indices are read."""

def power_jacobian(X: Array, order: int) -> Array:
    """Derivatives of the packed symmetric powers ``x^{(x) k}`` by x."""

def projection_norms(basis: Any, u: Any) -> Any:
    """``Phi(u) = ||P_W(u u^T)||_F^2`` for unit rows u (n, D) and an orthonormal basis (q, m): (n,)."""

def smat(s: Any, n_features: int) -> Any:
    """Vectors (..., q) back to symmetric matrices (..., D, D): the inverse of `svec`."""

def subspace_power_iteration(
    basis: Any, starts: Any, *, step_size: float = ..., max_iter: int = ..., tol: float = ...
) -> tuple[Any, Any, int]:
    """Projected gradient ascent of ``Phi(u) = ||P_W(u u^T)||_F^2`` on the sphere, all starts at once."""

def svd(A: Array, full_matrices: bool = ..., compute_uv: bool = ...) -> tuple[Array, Array, Array]:
    """Singular value decomposition of matrices (..., m, n), as `numpy.linalg.svd` returns it."""

def svec(A: Any) -> Any:
    """Symmetric matrices (..., D, D) to vectors (..., q), keeping Frobenius products."""

def svec_outer(u: Any) -> Any:
    """``svec(u u^T)`` of the rows of u (n, D): (n, q), without forming the matrices."""

def symmetric_power(X: Any, order: int) -> Any:
    """Packed symmetric powers ``x^{(x) k}`` of the rows of X."""

def unpack_symmetric(packed: Any, n_features: int, order: int) -> Any:
    """Full symmetric tensors (..., D, ..., D) of packed ones (..., n_k): the inverse of `pack_symmetric`."""
