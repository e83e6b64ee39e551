from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = [
    "BatchedNormalEquations",
    "BatchedResult",
    "DenseNormalEquations",
    "Ending",
    "KrylovNormalEquations",
    "LeastSquaresResult",
    "LinearSolution",
    "SphereAscentResult",
    "WorkBudget",
    "all_threads",
    "batched_levenberg_marquardt",
    "best_of",
    "bisect",
    "conjugate_gradients",
    "fit_coefficients",
    "give_up_when_slow",
    "gram_work",
    "in_order",
    "levenberg_marquardt",
    "one_blas_thread",
    "one_thread",
    "sphere_ascent",
    "unit_norm",
]

class BatchedNormalEquations:
    """Gauss-Newton models ``J^T J`` (B, P, P) and ``J^T r`` (B, P), damped by their own diagonals."""

    matrix: Array
    gradient: Array
    floor: float
    longest: Array | None
    def __init__(self, matrix: Array, gradient: Array, floor: float = ..., longest: Array | None = ...) -> None: ...
    def solve(self, damping: Array) -> tuple[Array, Array]:
        """Damped steps (B, P), and the decreases (B,) of the costs that the linear models predict."""

@dataclass(frozen=True)
class BatchedResult:
    """Where the problems ended."""

    x: Array
    cost: Array
    n_iter: Array
    history: Array
    damping: Array

class DenseNormalEquations:
    """``(J^T J, J^T r)`` with columns scaled to norm 1, solved by Cholesky."""

    matrix: Any
    gradient: Any
    uniform: bool
    def __init__(self, matrix: Any, gradient: Any, *, uniform: bool = ...) -> None: ...
    def solve(self, damping: float) -> tuple[Any, float]:
        """The step ``-(J^T J + damping S^2)^-1 J^T r``, S the column norms, and the decrease that the model predicts."""

@dataclass(frozen=True)
class Ending:
    """When a problem of a batch has ended, and how damped it begins."""

    max_iter: Any = ...
    target: Any = ...
    ftol: Any = ...
    rounding: Any = ...
    damping: Any = ...
    max_damping: Any = ...
    deadline: Any = ...
    budget: Any = ...
    @property
    def over(self) -> Any: ...

class KrylovNormalEquations:
    """``J^T J`` known by its products, solved by preconditioned conjugate gradients."""

    product: Call
    gradient: Any
    diagonal: Any
    preconditioner: Call
    tol: float
    max_iter: int
    def __init__(
        self,
        product: Call,
        gradient: Any,
        diagonal: Any,
        preconditioner: Call,
        *,
        tol: float = ...,
        max_iter: int = ...,
    ) -> None: ...
    def solve(self, damping: float) -> tuple[Any, float]:
        """Approximate damped step and predicted decrease, as `DenseNormalEquations.solve`."""

@dataclass(frozen=False)
class LeastSquaresResult:
    """Where a least-squares iteration ended."""

    x: Any
    cost: float
    n_iter: int
    status: Literal["target", "stationary", "stalled", "max_iter"]
    history: list[float] = ...
    damping: float = ...

@dataclass(frozen=True)
class LinearSolution:
    """Where conjugate gradients ended."""

    x: Any
    residual: Any
    n_products: int

@dataclass(frozen=True)
class SphereAscentResult:
    """Where `sphere_ascent` ended."""

    blocks: list[Any]
    values: Any
    n_iter: int

class WorkBudget:
    """Products of Jacobians that a search may form, and a deadline as a guard."""

    max_work: float
    n_values: float
    deadline: float
    work: float
    late: bool
    def __init__(self, max_work: float = ..., n_values: float = ..., deadline: float = ...) -> None: ...
    @property
    def exhausted(self) -> Any: ...
    def extend(self) -> Any:
        """Allow as much work again, up to the same deadline, for what follows a search."""
    def spend(self, n_problems: int, n_parameters: int) -> Any:
        """Count a step of some fits."""
    @property
    def spent(self) -> Any: ...
    @property
    def stopped_by(self) -> Any: ...

def all_threads(work: float) -> Any:
    """A block of large products inside `one_thread`, with the threads from before."""

def batched_levenberg_marquardt(problems: object, x0: Array, ending: Ending) -> BatchedResult:
    """Minimize many sums of squares in one batch."""

def best_of(attempts: Any, cost: Call, enough: Call | None = ...) -> tuple[object, list[float]]:
    """The attempt of least cost, of as many as it takes."""

def bisect(holds: Call, low: Array, high: Array, n_steps: int) -> Array:
    """Halve intervals to where a condition begins to hold: it does not at `low`, and does at `high`."""

def conjugate_gradients(
    product: Call,
    right: Any,
    *,
    precondition: Call | None = ...,
    tol: float = ...,
    own_norm: bool = ...,
    max_iter: int = ...,
) -> LinearSolution:
    """Solve ``A x = b`` from x = 0, until a direction of curvature that is not positive."""

def fit_coefficients(Phi: Array, Y: Array, rank_tol: float = ...) -> Any:
    """Minimize ``||Phi C - Y||`` over C, for one matrix Phi or a batch of them."""

def give_up_when_slow(patience: int, good: float) -> Call:
    """A callback that stops an iteration whose cost is above `good` and has not halved within `patience` steps."""

def gram_work(X: ArrayLike, degree: int = ...) -> float:
    """Floating-point operations of the Gram matrix of all monomials of one degree in the columns of X."""

def in_order(
    function: Call, pieces: Any, n_jobs: int | None = ..., *, prefer: Literal["threads", "processes"] | None = ...
) -> object:
    """Results of ``function(*piece)`` in the order of the pieces, computed in parallel by joblib."""

def levenberg_marquardt(
    cost: Call,
    linearize: Call,
    x0: Any,
    *,
    max_iter: int = ...,
    target: float = ...,
    ftol: float = ...,
    damping: float = ...,
    callback: Call | None = ...,
) -> LeastSquaresResult:
    """Minimize ``sum(r(x) ** 2)`` by damped Gauss-Newton steps."""

def one_blas_thread() -> Any:
    """A block whose products take one BLAS thread, however large: for pieces of parallel work."""

def one_thread(work: float = ...) -> Any:
    """A block whose linear algebra takes one thread, except for large products (`all_threads`)."""

def sphere_ascent(
    value_and_gradient: Call,
    blocks: list[Any],
    *,
    step_size: float = ...,
    last_step_size: float = ...,
    max_iter: int = ...,
    callback: Call | None = ...,
) -> SphereAscentResult:
    """Maximize a function of several matrices of unit norm from R starts: ``W_l <- P(W_l + eta_t g_l / ||g_l||)``."""

def unit_norm(block: Any) -> Any:
    """Divide every matrix of a batch by its Frobenius norm, except matrices of zeros."""
