from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin

from skident.network import FeedforwardNetwork

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = [
    "EntangledWeightExtractor",
    "IdentificationReport",
    "IdentifierOptions",
    "NetworkCompletion",
    "NetworkIdentifier",
]

class EntangledWeightExtractor(TransformerMixin, BaseEstimator):
    """Recover the entangled weights of a feedforward network from queries."""

    estimator: Any
    layer_widths: Sequence[int] | None
    activation: str
    output_activation: str
    center: ArrayLike | None
    radius: float
    n_hessians: int
    first_layer: Literal["auto", "saturation", "hessian"]
    last_layer: Literal["jacobian", "hessian"]
    derivatives: Literal["auto", "exact", "finite_difference"]
    max_iter: int
    n_starts: int | None
    n_jobs: int | None
    random_state: int | RandomState | None
    verbose: int
    components_: Array
    layer_assignment_: Array
    phi_: Array
    subspace_: Array | None
    singular_values_: Array
    layer_widths_: tuple[int, ...]
    center_: Array
    scale_: Array
    scales_: Array | None
    biases_: Array | None
    first_layer_method_: Literal["saturation", "hessian", "jacobian"]
    estimator_: object
    n_queries_: int
    n_derivatives_: int
    n_iter_: int
    report_: Any
    n_features_in_: int
    def __init__(
        self,
        estimator: Any = ...,
        *,
        layer_widths: Sequence[int] | None = ...,
        activation: str = ...,
        output_activation: str = ...,
        center: ArrayLike | None = ...,
        radius: float = ...,
        n_hessians: int = ...,
        first_layer: Literal["auto", "saturation", "hessian"] = ...,
        last_layer: Literal["jacobian", "hessian"] = ...,
        derivatives: Literal["auto", "exact", "finite_difference"] = ...,
        max_iter: int = ...,
        n_starts: int | None = ...,
        n_jobs: int | None = ...,
        random_state: int | RandomState | None = ...,
        verbose: int = ...,
    ) -> None: ...
    def fit(self, X: ArrayLike, y: ArrayLike | None = ...) -> Self:
        """Query the model and recover its entangled weights."""
    def get_feature_names_out(self, input_features: Sequence[str] | None = ...) -> Any:
        """``layer1_0, layer1_1, ..., layer2_0, ...``; ``inner_0, ...`` for inner layers that cannot be distinguished."""
    def transform(self, X: ArrayLike) -> Array:
        """Projections on the entangled weights."""

@dataclass(frozen=True)
class IdentificationReport:
    """Validation of a network recovered from queries, its method and stages; `plot` draws the stages."""

    stages: list[Any]
    exact: bool
    agrees: bool
    relative_max_error: float
    checked: int
    noise: float
    route: str
    reason: str
    attempts: int
    n_queries: int
    undetected_share: float
    undetected_share_of_X: float | None = ...
    checked_spread: Array | None = ...
    checked_range: tuple[Any, ...] | None = ...
    deviates_at: Array | None = ...
    input_rounding: float = ...
    undetermined: str | Array = ...
    redundant_units: list[int] = ...
    plan: list[str] = ...
    tried: list[Any] = ...
    reductions: list[str] = ...
    rejected: str = ...
    repeatable: bool = ...
    activation: object | None = ...
    bits: Any = ...
    probability_error: float | None = ...
    lost: float | None = ...
    determined: float | None = ...
    spectrum: Array | None = ...
    never_active: list[int] | None = ...
    always_active: list[int] | None = ...
    explained: Any = ...
    explained_of: Any = ...
    sign_doubt: float | None = ...
    boundary_errors: int | None = ...
    contradicting_labels: int | None = ...
    compared_labels: int | None = ...
    class_pairs: list[Any] | None = ...
    signs_determined: bool | None = ...
    def lines(self) -> list[str]:
        """Validation, method and activation."""
    def plot(self, ax: Any = ..., **kwargs: Any) -> Any:
        """Draw seconds, queries and residual of every stage."""
    def rows(self) -> list[tuple[str, ...]]:
        """The rows of the table: stages, queries besides if there are any, and the total."""
    titles: Any

class IdentifierOptions(BaseEstimator):
    """Options of `NetworkIdentifier` that few people change."""

    strategy: Literal["auto", "saturation", "hessian"]
    extractor: EntangledWeightExtractor | None
    completion: NetworkCompletion | None
    polish: bool
    n_check: int
    n_attempts: int
    max_neurons: int | None
    n_starts: int | None
    emulate: Literal["torch"] | Call | None
    batch_size: int | None
    vectorized: bool
    def __init__(
        self,
        *,
        strategy: Literal["auto", "saturation", "hessian"] = ...,
        extractor: EntangledWeightExtractor | None = ...,
        completion: NetworkCompletion | None = ...,
        polish: bool = ...,
        n_check: int = ...,
        n_attempts: int = ...,
        max_neurons: int | None = ...,
        n_starts: int | None = ...,
        emulate: Literal["torch"] | Call | None = ...,
        batch_size: int | None = ...,
        vectorized: bool = ...,
    ) -> None: ...

class NetworkCompletion(RegressorMixin, BaseEstimator):
    """Complete entangled weights to a network: fit its scales and biases."""

    layer_widths: Sequence[int] | None
    activation: str
    output_activation: str
    solver: Literal["lm", "gd", "adam"]
    max_iter: int | None
    tol: float
    learning_rate: float
    n_starts: int
    start: tuple[Any, ...] | None
    device: str
    dtype: Literal["float64", "float32"]
    callbacks: list[Any] | None
    random_state: int | RandomState | None
    verbose: int
    network_: FeedforwardNetwork
    scales_: Array
    biases_: list[Array]
    mixings_: list[Array]
    layer_widths_: tuple[int, ...]
    residual_: float
    history_: list[float]
    n_iter_: int
    net_: Any
    n_features_in_: int
    def __init__(
        self,
        layer_widths: Sequence[int] | None = ...,
        *,
        activation: str = ...,
        output_activation: str = ...,
        solver: Literal["lm", "gd", "adam"] = ...,
        max_iter: int | None = ...,
        tol: float = ...,
        learning_rate: float = ...,
        n_starts: int = ...,
        start: tuple[Any, ...] | None = ...,
        device: str = ...,
        dtype: Literal["float64", "float32"] = ...,
        callbacks: list[Any] | None = ...,
        random_state: int | RandomState | None = ...,
        verbose: int = ...,
    ) -> None: ...
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit scales and biases."""
    def predict(self, X: ArrayLike) -> Array:
        """Outputs of the completed network."""
    @property
    def report_(self) -> Any: ...
    set_score_request: Any

class NetworkIdentifier(RegressorMixin, BaseEstimator):
    """Recover all weights and biases of a black-box network from queries."""

    estimator: Any
    layer_widths: Sequence[int] | Literal["auto"] | None
    activation: str
    output_activation: str
    response_method: Literal["auto", "predict", "predict_proba", "labels"]
    input_range: tuple[Any, ...] | float | None
    tol: float
    max_seconds: Any
    max_queries: Any
    weight_dtype: Literal["float32", "float16", "bfloat16"] | None
    options: IdentifierOptions | None
    n_jobs: int | None
    random_state: int | RandomState | None
    verbose: int
    network_: FeedforwardNetwork
    report_: IdentificationReport
    stderr_: tuple[Any, ...] | None
    extractor_: Any
    completion_: Any
    layer_widths_: tuple[int, ...]
    estimator_: object
    n_queries_: int
    n_features_in_: int
    classes_: Array
    def __init__(
        self,
        estimator: Any = ...,
        *,
        layer_widths: Sequence[int] | Literal["auto"] | None = ...,
        activation: str = ...,
        output_activation: str = ...,
        response_method: Literal["auto", "predict", "predict_proba", "labels"] = ...,
        input_range: tuple[Any, ...] | float | None = ...,
        tol: float = ...,
        max_seconds: Any = ...,
        max_queries: Any = ...,
        weight_dtype: Literal["float32", "float16", "bfloat16"] | None = ...,
        options: IdentifierOptions | None = ...,
        n_jobs: int | None = ...,
        random_state: int | RandomState | None = ...,
        verbose: int = ...,
    ) -> None: ...
    decision_function: Any
    def fit(self, X: Any, y: ArrayLike | None = ...) -> Self:
        """Query the black box and recover its network."""
    def predict(self, X: ArrayLike) -> Array:
        """Outputs of the identified network, or labels if it is a classifier's."""
    predict_proba: Any
    set_score_request: Any
