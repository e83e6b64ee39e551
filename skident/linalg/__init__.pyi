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

class DeficientRankError(ValueError):
    """Vectors span fewer dimensions than the requested rank, see `leading_subspace`."""

class JennrichFactors(NamedTuple):
    """``T = sum_i u_i (x) v_i (x) w_i``: the result of `jennrich`."""

    U: Array
    V: Array
    W: Array
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
) -> Any:
    """Common factors of symmetric matrices ``M_j = sum_i c_ij w_i w_i^T``, by random pencils and Newton steps."""

def leading_subspace(chunks: Sequence[Any], rank: int) -> tuple[Any, Any]:
    """Leading right singular subspace of a tall or wide matrix given by blocks of rows."""

def subspace_power_iteration(
    basis: Any, starts: Any, *, step_size: float = ..., max_iter: int = ..., tol: float = ...
) -> tuple[Any, Any, int]:
    """Projected gradient ascent of ``Phi(u) = ||P_W(u u^T)||_F^2`` on the sphere, all starts at once."""
