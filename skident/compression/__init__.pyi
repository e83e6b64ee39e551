from collections.abc import Callable
from typing import Any, Literal, Self, TypeAlias

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from skident.network import FeedforwardNetwork

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = ["NetworkCompressor", "compress_network"]

class NetworkCompressor(RegressorMixin, BaseEstimator):
    """The smallest network whose outputs agree with a given one around samples, to a tolerance."""

    estimator: Any
    tol: float
    metric: Literal["auto", "outputs", "probabilities", "labels"]
    held_out: float
    max_iter: int
    max_seconds: float | None
    random_state: int | RandomState | None
    verbose: int
    network_: FeedforwardNetwork
    layer_widths_: tuple[int, ...]
    error_: float
    path_: list[dict[Any, Any]]
    n_iter_: int
    estimator_: object
    classes_: Array
    n_features_in_: int
    def __init__(
        self,
        estimator: Any = ...,
        *,
        tol: float = ...,
        metric: Literal["auto", "outputs", "probabilities", "labels"] = ...,
        held_out: float = ...,
        max_iter: int = ...,
        max_seconds: float | None = ...,
        random_state: int | RandomState | None = ...,
        verbose: int = ...,
    ) -> None: ...
    decision_function: Any
    def fit(self, X: ArrayLike, y: ArrayLike | None = ...) -> Self:
        """Compress the network."""
    def predict(self, X: ArrayLike) -> Array:
        """Outputs of the identified network, or labels if it is a classifier's."""
    predict_proba: Any
    @property
    def report_(self) -> Any: ...
    response_method: Any
    set_score_request: Any

def compress_network(
    network: FeedforwardNetwork,
    X: Array,
    *,
    tol: float = ...,
    rng: RandomState,
    metric: Literal["outputs", "probabilities", "labels"] = ...,
    start: FeedforwardNetwork | None = ...,
    options: Any = ...,
    callback: Call | None = ...,
) -> tuple[FeedforwardNetwork, list[dict[Any, Any]]]:
    """A smaller network whose outputs agree with another one's around given samples, to a tolerance."""
