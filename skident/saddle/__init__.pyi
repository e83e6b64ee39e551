from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, TypeAlias

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from torch.nn import Module

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = [
    "BiasFreeMLP",
    "SaddleEscapeAnalyzer",
    "SaddleToSaddleClassifier",
    "SaddleToSaddleRegressor",
    "deep_escape_bound",
    "detect_escapes",
    "fastest_planar_escape",
    "fastest_shallow_escape",
]

class BiasFreeMLP(Module):
    """``f(x) = relu(... relu(x W_1) ...) W_L`` without biases: linear layers with ReLU in between."""

    sizes: Sequence[int]
    init_scale: float
    start: list[ArrayLike] | None
    dtype: Any
    layers: Any
    input_noise: Any
    def __init__(
        self, sizes: Sequence[int], init_scale: float = ..., start: list[ArrayLike] | None = ..., dtype: Any = ...
    ) -> None: ...
    @property
    def weights(self) -> Any: ...

class SaddleEscapeAnalyzer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """How fast, and in which direction, training from small weights escapes the saddle at the origin."""

    loss: Literal["auto", "squared_error", "squared", "log_loss", "gradient"] | Call
    depth: int
    width: int
    n_starts: int
    max_iter: int | None
    n_components: int
    layer: int
    fit_intercept: bool
    device: str
    dtype: Literal["float64", "float32"]
    random_state: int | RandomState | None
    verbose: int
    escape_direction_: list[Array]
    escape_speed_: float
    escape_directions_: list[Any] | Array
    escape_speeds_: list[Any] | Array
    restart_speeds_: Array
    n_dead_: int
    shallow_speed_: float
    residual_: float
    layer_singular_values_: list[Array]
    rank_ratio_: Array
    activation_rank_ratio_: Array
    nonlinearity_ratio_: Array
    bottleneck_rank_: int
    theorem_bound_: Array
    near_rank_one_bound_: float
    layer_count_bound_: Array
    log_rank_budget_: tuple[Any, ...]
    classes_: Array
    layer_: int
    n_iter_: int
    n_features_in_: int
    def __init__(
        self,
        loss: Literal["auto", "squared_error", "squared", "log_loss", "gradient"] | Call = ...,
        *,
        depth: int = ...,
        width: int = ...,
        n_starts: int = ...,
        max_iter: int | None = ...,
        n_components: int = ...,
        layer: int = ...,
        fit_intercept: bool = ...,
        device: str = ...,
        dtype: Literal["float64", "float32"] = ...,
        random_state: int | RandomState | None = ...,
        verbose: int = ...,
    ) -> None: ...
    def escape_time_from(self, weights: list[Any], X: ArrayLike, y: ArrayLike, radius: float = ...) -> float:
        """Time of gradient flow on the localized loss from given weights to `radius`, by numerical integration."""
    def extend(self, n_layers: int) -> list[Any]:
        """The escape direction of a network with more layers, at the same speed."""
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = ...) -> Self:
        """Compute the fastest escape direction."""
    def initial_weights(
        self, scale: float = ..., *, noise: float = ..., random_state: int | RandomState | None = ...
    ) -> list[Array]:
        """Small weights aligned with the fastest escape, to initialize training."""
    def predict_escape_time(self, init_scale: float = ..., radius: float = ...) -> float:
        """Time of gradient flow on the localized loss from `init_scale` to `radius` along the escape direction."""
    @property
    def report_(self) -> Any: ...
    set_fit_request: Any
    def transform(self, X: ArrayLike) -> Array:
        """Hidden activations of the escape networks, to inspect what reduces the loss first."""

class SaddleToSaddleClassifier(ClassifierMixin, BaseEstimator):
    """A bias-free ReLU network trained from small weights on the log loss, with its saddles on record."""

    depth: int
    width: int
    init_scale: float
    n_escapes: int | Literal["all"] | None
    standardize: bool
    initial_weights: list[ArrayLike] | None
    relative_step: float
    learning_rate: float
    max_iter: int
    batch_size: int | None
    record_every: int
    device: str
    dtype: Literal["float64", "float32"]
    callbacks: list[Any] | None
    random_state: int | RandomState | None
    verbose: int
    class_weight: dict[Any, Any] | Literal["balanced"] | None
    classes_: Array
    intercept_: Array
    saddles_: list[Any]
    history_: dict[Any, Any]
    escape_step_: int | None
    held_out_score_: float
    linear_score_: float
    input_noise_: float
    weights_: list[Array]
    loss_: float
    net_: Any
    n_iter_: int
    n_features_in_: int
    def __init__(
        self,
        depth: int = ...,
        width: int = ...,
        *,
        n_escapes: int | Literal["all"] | None = ...,
        standardize: bool = ...,
        init_scale: float = ...,
        initial_weights: list[ArrayLike] | None = ...,
        relative_step: float = ...,
        learning_rate: float = ...,
        max_iter: int = ...,
        batch_size: int | None = ...,
        record_every: int = ...,
        device: str = ...,
        dtype: Literal["float64", "float32"] = ...,
        callbacks: list[Any] | None = ...,
        random_state: int | RandomState | None = ...,
        verbose: int = ...,
        class_weight: dict[Any, Any] | Literal["balanced"] | None = ...,
    ) -> None: ...
    def decision_function(self, X: ArrayLike) -> Array:
        """Logits."""
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = ...) -> Self:
        """Train the network."""
    def predict(self, X: ArrayLike) -> Array:
        """The most probable label of each sample."""
    def predict_proba(self, X: ArrayLike) -> Array:
        """Class probabilities, in the order of `classes_`."""
    @property
    def report_(self) -> Any: ...
    set_fit_request: Any
    set_score_request: Any

class SaddleToSaddleRegressor(RegressorMixin, BaseEstimator):
    """A bias-free ReLU network trained from small weights on the squared error, with its saddles on record."""

    depth: int
    width: int
    init_scale: float
    n_escapes: int | Literal["all"] | None
    standardize: bool
    initial_weights: list[ArrayLike] | None
    relative_step: float
    learning_rate: float
    max_iter: int
    batch_size: int | None
    record_every: int
    device: str
    dtype: Literal["float64", "float32"]
    callbacks: list[Any] | None
    random_state: int | RandomState | None
    verbose: int
    intercept_: Array
    target_scale_: Array
    saddles_: list[Any]
    history_: dict[Any, Any]
    escape_step_: int | None
    held_out_score_: float
    linear_score_: float
    input_noise_: float
    weights_: list[Array]
    loss_: float
    net_: Any
    n_iter_: int
    n_features_in_: int
    def __init__(
        self,
        depth: int = ...,
        width: int = ...,
        *,
        n_escapes: int | Literal["all"] | None = ...,
        standardize: bool = ...,
        init_scale: float = ...,
        initial_weights: list[ArrayLike] | None = ...,
        relative_step: float = ...,
        learning_rate: float = ...,
        max_iter: int = ...,
        batch_size: int | None = ...,
        record_every: int = ...,
        device: str = ...,
        dtype: Literal["float64", "float32"] = ...,
        callbacks: list[Any] | None = ...,
        random_state: int | RandomState | None = ...,
        verbose: int = ...,
    ) -> None: ...
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = ...) -> Self:
        """Train the network."""
    def predict(self, X: ArrayLike) -> Array:
        """Predicted targets, in the units of y."""
    @property
    def report_(self) -> Any: ...
    set_fit_request: Any
    set_score_request: Any

def deep_escape_bound(
    X: ArrayLike, gradient: ArrayLike, *, tol: Any = ..., max_regions: Any = ..., random_state: Any = ...
) -> float:
    """Upper bound of ``-<G, f(X)>`` over bias-free ReLU networks f of every depth and width, layers of norm one."""

def detect_escapes(
    steps: ArrayLike,
    losses: ArrayLike,
    singular_values: list[ArrayLike] | None = ...,
    *,
    smoothing: float = ...,
    prominence: float = ...,
    min_drop: float = ...,
    rank_tol: float = ...,
) -> list[Any]:
    """Detect plateaus and escapes of a training curve."""

def fastest_planar_escape(X: ArrayLike, gradient: ArrayLike, *, tol: float = ..., max_subsets: int = ...) -> Any:
    """Maximize ``-<G, w_3 relu(relu(X W_1) w_2)>`` over layers of norm one and any number of first-layer units."""

def fastest_shallow_escape(
    X: ArrayLike,
    gradient: ArrayLike,
    *,
    tol: float = ...,
    max_regions: int = ...,
    random_state: int | RandomState | None = ...,
) -> Any:
    """Maximize ``-<G, relu(X W_1) w_2>`` over layers of norm one and any number of units."""
