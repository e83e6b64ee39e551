from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = ["AuditReport", "Difference", "NetworkVerifier", "verify_same"]

@dataclass(frozen=True)
class AuditReport:
    """Whether a black box is the network that is known, how it was queried, and what remains unseen."""

    same: bool | None
    differences: list[Difference] = ...
    causes: list[Any] = ...
    instead: list[Difference] = ...
    largest: float = ...
    excess: float = ...
    input: Array
    kind: Literal["float64", "float32", "float16", "bfloat16", "decimals", "noise", "identical files"]
    n_queries: int = ...
    n_inputs: int = ...
    unseen_units: list[Any] = ...
    constant_columns: Any
    visible: list[Array] = ...
    excesses: Array = ...
    relative_tolerance: float = ...
    batch_dependent: bool = ...
    casts_inputs: bool = ...
    data_rows: tuple[Any, ...] | None = ...
    bits: tuple[Any, ...] | None = ...
    def lines(self) -> list[str]:
        """Verdict, evidence and scope of the audit."""
    def missed(self, size: float) -> float:
        """Probability that the change of one weight, drawn evenly from those that are not 0, would not have shown."""
    def rows(self) -> list[tuple[str, ...]]:
        """The rows of the table; empty strings for absent values."""
    titles: Any
    def to_dict(self) -> dict[Any, Any]:
        """The report in numbers, lists and strings only, as for JSON."""
    @property
    def verdict(self) -> Any: ...

@dataclass(frozen=True)
class Difference:
    """A weight, a bias or a unit that the black box has otherwise."""

    layer: int
    row: int | None
    unit: int
    known: float
    found: float
    removed: bool = ...
    @property
    def name(self) -> Any: ...

class NetworkVerifier(BaseEstimator):
    """Is a black box the network that is known, and if not, which weights differ?"""

    estimator: Any
    network: Any
    tol: float | None
    max_queries: int | None
    response_method: Literal["auto", "predict", "predict_proba"]
    random_state: int | RandomState | None
    same_: bool | None
    differences_: list[Difference]
    report_: AuditReport
    n_queries_: int
    estimator_: object
    n_features_in_: int
    def __init__(
        self,
        estimator: Any = ...,
        *,
        network: Any = ...,
        tol: float | None = ...,
        max_queries: int | None = ...,
        response_method: Literal["auto", "predict", "predict_proba"] = ...,
        random_state: int | RandomState | None = ...,
    ) -> None: ...
    def fit(self, X: ArrayLike, y: ArrayLike | None = ...) -> Self:
        """Audit the black box."""

def verify_same(
    black_box: Any,
    network: Any,
    X: ArrayLike,
    *,
    tol: float | None = ...,
    max_queries: int | None = ...,
    response_method: Literal["auto", "predict", "predict_proba"] = ...,
    random_state: int | RandomState | None = ...,
) -> AuditReport:
    """Compare a black box with a network whose weights are known, and name the weights that differ."""
