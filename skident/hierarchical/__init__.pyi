from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = [
    "BackwardCorrection",
    "HierarchicalQuadraticNet",
    "HierarchicalQuadraticNetClassifier",
    "backward_feature_correction",
]

@dataclass(frozen=False)
class BackwardCorrection:
    """Test errors of networks whose layers were trained alone, held fixed, or trained jointly."""

    rows: list[dict[Any, Any]]
    n_layers: int
    classifies: bool
    def error(self, protocol: Any, layer: Any, fixed: Any = ...) -> float:
        """The test error of a trained network."""
    def find(
        self, protocol: Literal["only", "fixed", "layerwise", "all"], layer: int, fixed: int | None = ...
    ) -> dict[Any, Any] | None:
        """The row of a trained network."""

class HierarchicalQuadraticNet(RegressorMixin, TransformerMixin, BaseEstimator):
    """Quadratic DenseNet: hidden features of increasing degree, learned jointly."""

    widths: Sequence[int] | Literal["auto"]
    connections: Literal["paper", "full", "chain"] | Sequence[Any]
    alphas: Sequence[float] | None
    solver: Literal["auto", "lm", "lbfgs", "adam", "sgd", "algorithm1"]
    readout: Literal["auto", "sum", "linear"]
    curvature: float | None
    l2: float | Literal["auto"]
    n_starts: int
    max_iter: int | None
    learning_rate: float | None
    max_epochs: int | None
    batch_size: int | Literal["all"] | None
    algorithm1_options: dict[Any, Any] | None
    callbacks: list[Any] | None
    device: str
    dtype: Literal["float64", "float32"]
    random_state: int | RandomState | None
    verbose: int
    widths_: tuple[Any, ...]
    connections_: tuple[Any, ...]
    alphas_: tuple[Any, ...]
    layer_weights_: Any
    initial_layer_weights_: dict[Any, Any]
    layer_signs_: Any
    readout_: Literal["sum", "linear"]
    l2_: float
    exact_: bool
    undetected_share_: float
    n_iter_: int
    restart_losses_: list[float]
    history_: list[float]
    spectrum_: Any
    stage_history_: list[dict[Any, Any]]
    net_: Any
    n_features_in_: int
    def __init__(
        self,
        widths: Sequence[int] | Literal["auto"] = ...,
        *,
        connections: Literal["paper", "full", "chain"] | Sequence[Any] = ...,
        alphas: Sequence[float] | None = ...,
        solver: Literal["auto", "lm", "lbfgs", "adam", "sgd", "algorithm1"] = ...,
        readout: Literal["auto", "sum", "linear"] = ...,
        curvature: float | None = ...,
        l2: float | Literal["auto"] = ...,
        n_starts: int = ...,
        max_iter: int | None = ...,
        learning_rate: float | None = ...,
        max_epochs: int | None = ...,
        batch_size: int | Literal["all"] | None = ...,
        algorithm1_options: dict[Any, Any] | None = ...,
        callbacks: list[Any] | None = ...,
        device: str = ...,
        dtype: Literal["float64", "float32"] = ...,
        random_state: int | RandomState | None = ...,
        verbose: int = ...,
    ) -> None: ...
    def feature_gradients(self, X: ArrayLike, layer: int) -> Array:
        """Gradients of the hidden features with respect to the standardized inputs."""
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = ...) -> Self:
        """Fit the network."""
    def fit_layers(
        self, X: Any, y: Any, *, depth: int, fixed: Any = ..., start: Any = ..., sample_weight: ArrayLike | None = ...
    ) -> Self:
        """Fit only the layers ``2, ..., depth``, optionally initialized by another fit or held fixed."""
    def get_feature_names_out(self, input_features: Any = ...) -> Any:
        """Names ``layer<l>_<i>`` of the columns of `transform`, layer by layer."""
    def predict(self, X: ArrayLike) -> Array:
        """Predicted targets."""
    @property
    def report_(self) -> Any: ...
    set_fit_request: Any
    set_score_request: Any
    set_transform_request: Any
    def transform(self, X: ArrayLike, layer: int | None = ...) -> Array:
        """Hidden features ``S_l(x)``."""

class HierarchicalQuadraticNetClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):
    """Quadratic DenseNet for classification: `HierarchicalQuadraticNet` on cross-entropy, or on the loss of Theorem 4."""

    widths: Sequence[int]
    loss: Literal["cross_entropy", "theorem4"]
    class_weight: dict[Any, Any] | Literal["balanced"] | None
    offset_column: int | None
    solver: Literal["auto", "sgd", "adam", "lbfgs", "algorithm1"]
    readout: Literal["auto", "sum", "linear"]
    l2: float | Literal["auto"]
    input_noise: float | Literal["auto"]
    classes_: Array
    restart_losses_: list[float]
    input_noise_: float
    held_out_score_: float
    linear_score_: float
    n_features_in_: int
    def __init__(
        self,
        widths: Sequence[int] = ...,
        *,
        connections: Any = ...,
        alphas: Any = ...,
        loss: Literal["cross_entropy", "theorem4"] = ...,
        offset_column: int | None = ...,
        solver: Literal["auto", "sgd", "adam", "lbfgs", "algorithm1"] = ...,
        readout: Literal["auto", "sum", "linear"] = ...,
        curvature: Any = ...,
        l2: float | Literal["auto"] = ...,
        input_noise: float | Literal["auto"] = ...,
        n_starts: Any = ...,
        max_iter: Any = ...,
        learning_rate: Any = ...,
        max_epochs: Any = ...,
        batch_size: Any = ...,
        algorithm1_options: Any = ...,
        callbacks: Any = ...,
        device: Any = ...,
        dtype: Any = ...,
        random_state: Any = ...,
        verbose: Any = ...,
        class_weight: dict[Any, Any] | Literal["balanced"] | None = ...,
    ) -> None: ...
    def decision_function(self, X: ArrayLike) -> Array:
        """Logits ``F(x)``; with two classes, the logit of the second class minus that of the first."""
    def feature_gradients(self, X: ArrayLike, layer: int) -> Array:
        """Gradients of the hidden features with respect to the standardized inputs."""
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = ...) -> Self:
        """Fit the network."""
    def fit_layers(
        self, X: Any, y: Any, *, depth: int, fixed: Any = ..., start: Any = ..., sample_weight: ArrayLike | None = ...
    ) -> Self:
        """Fit only the layers ``2, ..., depth``, optionally initialized by another fit or held fixed."""
    def get_feature_names_out(self, input_features: Any = ...) -> Any:
        """Names ``layer<l>_<i>`` of the columns of `transform`, layer by layer."""
    def predict(self, X: ArrayLike) -> Array:
        """Most probable class."""
    def predict_proba(self, X: ArrayLike) -> Array:
        """Class probabilities."""
    @property
    def report_(self) -> Any: ...
    set_fit_request: Any
    set_score_request: Any
    set_transform_request: Any
    def transform(self, X: ArrayLike, layer: int | None = ...) -> Array:
        """Hidden features ``S_l(x)``."""

def backward_feature_correction(
    estimator: HierarchicalQuadraticNet | HierarchicalQuadraticNetClassifier,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_test: ArrayLike | None = ...,
    y_test: ArrayLike | None = ...,
    target: Any = ...,
) -> BackwardCorrection:
    """Measure backward feature correction: the error of lower layers that are not trained jointly with higher ones."""
