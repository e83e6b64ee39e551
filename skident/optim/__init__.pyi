from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = ["DenseNormalEquations", "LeastSquaresResult", "levenberg_marquardt"]

class DenseNormalEquations:
    """``(J^T J, J^T r)`` with columns scaled to norm 1, solved by Cholesky."""

    matrix: Any
    gradient: Any
    uniform: bool
    def __init__(self, matrix: Any, gradient: Any, *, uniform: bool = ...) -> None: ...
    def solve(self, damping: float) -> tuple[Any, float]:
        """The step ``-(J^T J + damping S^2)^-1 J^T r``, S the column norms, and the decrease that the model predicts."""

@dataclass(frozen=False)
class LeastSquaresResult:
    """Where a least-squares iteration ended."""

    x: Any
    cost: float
    n_iter: int
    status: Literal["target", "stationary", "stalled", "max_iter"]
    history: list[float] = ...
    damping: float = ...

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
