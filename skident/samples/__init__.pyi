from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from skident.network import FeedforwardNetwork

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = [
    "MissingUnitTest",
    "PassiveNetworkIdentifier",
    "RecoveredUnits",
    "TensorReLURegressor",
    "population_tensors",
    "units_from_tensors",
]

@dataclass(frozen=True)
class MissingUnitTest:
    """Result of a test for a missing unit."""

    p_value: float
    statistic: float
    weights: Array
    bias: float
    n_simulations: int

class PassiveNetworkIdentifier(RegressorMixin, BaseEstimator):
    """Weights, biases and widths of the network behind samples (X, y), without queries."""

    layer_widths: Sequence[int] | Literal["auto"]
    activation: str
    output_activation: str
    tol: float
    n_starts: int
    max_neurons: int
    max_work: float | None
    max_seconds: float | None
    random_state: int | RandomState | None
    verbose: int
    network_: FeedforwardNetwork
    layer_widths_: tuple[int, ...]
    activation_: str
    activation_scores_: dict[Any, Any]
    stderr_: Any
    report_: Any
    n_iter_: int
    n_features_in_: int
    feature_names_in_: Array
    def __init__(
        self,
        layer_widths: Sequence[int] | Literal["auto"] = ...,
        *,
        activation: str = ...,
        output_activation: str = ...,
        tol: float = ...,
        n_starts: int = ...,
        max_neurons: int = ...,
        max_work: float | None = ...,
        max_seconds: float | None = ...,
        random_state: int | RandomState | None = ...,
        verbose: int = ...,
    ) -> None: ...
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = ...) -> Self:
        """Find the network."""
    def predict(self, X: ArrayLike) -> Array:
        """Values of the recovered network."""
    def profile_interval(self, X: ArrayLike, y: ArrayLike, layer: int, index: Any, *, level: float = ...) -> Array:
        """Confidence interval of a weight or bias, also if the curvature does not describe it."""
    set_fit_request: Any
    set_score_request: Any

class RecoveredUnits(NamedTuple):
    """Units ``a_i relu(w_i . x + b_i)`` recovered from tensors; the result of `units_from_tensors`."""

    W: Array
    b: Array
    a: Array
    residual: float
    spectrum: Array
    margins: Array | None = ...

class TensorReLURegressor(RegressorMixin, BaseEstimator):
    """Learns ``f(x) = sum_i a_i relu(w_i . x + b_i)`` from samples, by tensors of its Hermite expansion or a wide fit."""

    n_units: int | None
    order: Literal["auto"] | int
    method: Literal["refined", "literal"]
    alpha: Literal["auto"] | float
    n_candidates: int
    polish: bool
    batch_size: int | None
    noise_level: float | None
    n_jobs: int | None
    random_state: int | RandomState | None
    verbose: int
    network_: FeedforwardNetwork
    linear_: Array
    intercept_: float
    n_units_: int
    tensor_estimate_: FeedforwardNetwork | None
    signs_margin_: Array
    spectrum_: Array
    spectrum_noise_: float
    candidate_losses_: Array
    alpha_: float
    loss_: float
    exact_: bool
    undetected_share_: float
    input_box_: Any
    n_iter_: int
    n_features_in_: int
    feature_names_in_: Array
    def __init__(
        self,
        n_units: int | None = ...,
        *,
        order: Literal["auto"] | int = ...,
        method: Literal["refined", "literal"] = ...,
        alpha: Literal["auto"] | float = ...,
        n_candidates: int = ...,
        polish: bool = ...,
        batch_size: int | None = ...,
        noise_level: float | None = ...,
        n_jobs: int | None = ...,
        random_state: int | RandomState | None = ...,
        verbose: int = ...,
    ) -> None: ...
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = ...) -> Self:
        """Learn the network."""
    def missing_unit_test(self, X: ArrayLike, y: ArrayLike, *, n_simulations: int = ...) -> MissingUnitTest:
        """Test whether the network lacks a unit, with a p-value."""
    def predict(self, X: ArrayLike) -> Array:
        """The network's values; unless the fit is exact, those at the nearest whitened inputs in `input_box_`."""
    @property
    def report_(self) -> Any: ...
    set_fit_request: Any
    set_score_request: Any
    def to_network(self) -> FeedforwardNetwork:
        """The whole function as one ReLU network: with a linear part, two more units (Claim D.14 of [1]_)."""

def population_tensors(W: ArrayLike, b: ArrayLike, a: ArrayLike, order: int) -> Any:
    """Hermite tensors of a network ``f(x) = sum_i a_i relu(w_i . x + b_i)`` of standard normal x (Lemma 3.5 of [1]_)."""

def units_from_tensors(
    tensors: Any,
    order: Literal["auto"] | int = ...,
    *,
    n_units: int | None = ...,
    method: Literal["joint", "literal"] = ...,
    tolerances: tuple[float, ...] = ...,
    n_draws: int = ...,
    random_state: int | RandomState | None = ...,
) -> RecoveredUnits:
    """Recover ReLU units from Hermite tensors: Algorithms 1 to 4 and 6 of [1]_."""
