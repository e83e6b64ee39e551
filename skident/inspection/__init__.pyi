from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from numpy.typing import ArrayLike, NDArray

from skident.audit import AuditReport, NetworkVerifier
from skident.hierarchical import BackwardCorrection, HierarchicalQuadraticNet, HierarchicalQuadraticNetClassifier
from skident.identification import EntangledWeightExtractor, IdentificationReport, NetworkIdentifier
from skident.landscape import LandscapeCertificate, PhaseTransition
from skident.network import FeedforwardNetwork

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = [
    "AuditDisplay",
    "BackwardCorrectionDisplay",
    "EscapeDisplay",
    "IdentificationDisplay",
    "LandscapeDisplay",
    "LayerFeatureDisplay",
    "PhaseTransitionDisplay",
    "SingularSpectrumDisplay",
    "SpectrumDisplay",
    "WeightRecoveryDisplay",
]

class AuditDisplay:
    """Differences of the outputs in an audit, and how small a change of each weight it would detect."""

    report: AuditReport
    ax_: Any
    weights_ax_: Any
    figure_: Any
    def __init__(self, report: AuditReport) -> None: ...
    @classmethod
    def from_estimator(cls, verifier: NetworkVerifier, *, ax: Any = ..., **kwargs: Any) -> AuditDisplay:
        """Plot the report of a fitted `NetworkVerifier`."""
    @classmethod
    def from_report(cls, report: AuditReport, *, ax: Any = ..., **kwargs: Any) -> AuditDisplay:
        """Plot the report of `skident.audit.verify_same`."""
    def plot(
        self, ax: Any = ..., *, outputs_kwargs: dict[Any, Any] | None = ..., weights_kwargs: dict[Any, Any] | None = ...
    ) -> AuditDisplay:
        """Plot the differences and the detectable changes."""

class BackwardCorrectionDisplay:
    """Test errors of the protocols of backward feature correction, and how far neurons moved."""

    result: BackwardCorrection
    ax_: Any
    correlation_ax_: Any
    figure_: Any
    def __init__(self, result: BackwardCorrection) -> None: ...
    def plot(self, ax: Any = ...) -> BackwardCorrectionDisplay:
        """Plot the errors and the cosines."""

class EscapeDisplay:
    """The loss of a training with its saddles, or the escape speeds of many restarts."""

    steps: Array | None
    losses: Array | None
    saddles: list[Any]
    speeds: Array | None
    shallow_speed: float | None
    ax_: Any
    figure_: Any
    def __init__(
        self,
        *,
        steps: Array | None = ...,
        losses: Array | None = ...,
        saddles: list[Any] = ...,
        speeds: Array | None = ...,
        shallow_speed: float | None = ...,
    ) -> None: ...
    @classmethod
    def from_estimator(cls, estimator: object, *, ax: Any = ..., **kwargs: Any) -> EscapeDisplay:
        """Plot the record of a training, or the escape speeds of an analysis."""
    def plot(self, ax: Any = ..., *, line_kwargs: dict[Any, Any] | None = ...) -> EscapeDisplay:
        """Plot the loss or the speeds."""

class IdentificationDisplay:
    """Seconds, queries and residual of the stages of an identification."""

    names: list[str]
    seconds: Array
    queries: Array
    residuals: Array
    error: float
    noise: float
    ax_: Any
    residual_ax_: Any
    figure_: Any
    def __init__(
        self, *, names: list[str], seconds: Array, queries: Array, residuals: Array, error: float, noise: float
    ) -> None: ...
    @classmethod
    def from_estimator(cls, estimator: NetworkIdentifier, *, ax: Any = ..., **kwargs: Any) -> IdentificationDisplay:
        """Plot the report of a fitted identifier."""
    @classmethod
    def from_report(cls, report: IdentificationReport, *, ax: Any = ..., **kwargs: Any) -> IdentificationDisplay:
        """Plot the report of a fitted identifier."""
    def plot(
        self, ax: Any = ..., *, bar_kwargs: dict[Any, Any] | None = ..., scatter_kwargs: dict[Any, Any] | None = ...
    ) -> IdentificationDisplay:
        """Plot seconds, queries and residuals."""

class LandscapeDisplay:
    """The loss along a descent direction of a point, and along the descent that starts there."""

    steps: Array
    line: Array
    direction: str
    history: list[float]
    lower_bound: float | None
    ax_: Any
    history_ax_: Any
    figure_: Any
    def __init__(
        self, *, steps: Array, line: Array, direction: str, history: list[float] = ..., lower_bound: float | None = ...
    ) -> None: ...
    @classmethod
    def from_certificate(
        cls,
        certificate: LandscapeCertificate,
        W: Any,
        X: Any,
        y: Any,
        *,
        history: Sequence[float] = ...,
        radius: float | None = ...,
        ax: Any = ...,
    ) -> LandscapeDisplay:
        """Plot the loss of a quadratic network along its escape direction or its gradient, whichever decreases more."""
    def plot(
        self, ax: Any = ..., *, line_kwargs: dict[Any, Any] | None = ..., history_kwargs: dict[Any, Any] | None = ...
    ) -> LandscapeDisplay:
        """Plot the line and the descent."""

class LayerFeatureDisplay:
    """Image features of hidden units: the input with the largest output of a unit, and its gradient there."""

    images: Array
    gradients: Array
    units: Any
    layer: int
    ax_: Any
    figure_: Any
    def __init__(self, *, images: Array, gradients: Array, units: Any, layer: int) -> None: ...
    @classmethod
    def compute(
        cls,
        estimator: HierarchicalQuadraticNet | HierarchicalQuadraticNetClassifier,
        X: ArrayLike,
        *,
        layer: int = ...,
        n_units: int = ...,
        image_shape: tuple[Any, ...] | None = ...,
    ) -> LayerFeatureDisplay:
        """Compute images and gradients without plotting them."""
    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, layer: Any = ..., n_units: Any = ..., image_shape: Any = ..., ax: Any = ...
    ) -> LayerFeatureDisplay:
        """Compute images and gradients, and plot them."""
    def plot(self, ax: Any = ...) -> LayerFeatureDisplay:
        """Plot images above, gradients below."""

class PhaseTransitionDisplay:
    """Success rates against the swept size, with the fitted logistic curve."""

    transition: PhaseTransition
    reference: float | None
    ax_: Any
    figure_: Any
    def __init__(self, transition: PhaseTransition, *, reference: float | None = ...) -> None: ...
    @classmethod
    def from_transition(
        cls, transition: PhaseTransition, *, ax: Any = ..., reference: float | None = ..., **kwargs: Any
    ) -> PhaseTransitionDisplay:
        """Plot a `PhaseTransition`."""
    def plot(self, ax: Any = ..., **kwargs: Any) -> PhaseTransitionDisplay:
        """Plot the rates and the curve."""

class SingularSpectrumDisplay:
    """The largest singular values of every layer over training, one axes per layer."""

    steps: Array
    singular_values: list[Array]
    escapes: list[float]
    axes_: list[Any]
    figure_: Any
    def __init__(self, *, steps: Array, singular_values: list[Array], escapes: list[float]) -> None: ...
    @classmethod
    def from_estimator(cls, estimator: object, *, ax: Any = ..., **kwargs: Any) -> SingularSpectrumDisplay:
        """Plot the record of a fitted SaddleToSaddleClassifier or SaddleToSaddleRegressor."""
    @property
    def n_layers(self) -> Any: ...
    def plot(
        self, ax: list[Any] | None = ..., *, n_singular_values: int = ..., line_kwargs: dict[Any, Any] | None = ...
    ) -> SingularSpectrumDisplay:
        """Plot the singular values of all layers."""

class SpectrumDisplay:
    """Singular values of the Hessians, and every component's distance from their leading subspace."""

    singular_values: Array
    n_weights: int
    phi: Array
    layers: Any
    ax_: Any
    phi_ax_: Any
    figure_: Any
    def __init__(self, *, singular_values: Array, n_weights: int, phi: Array, layers: Any) -> None: ...
    @classmethod
    def from_estimator(cls, extractor: EntangledWeightExtractor, *, ax: Any = ..., **kwargs: Any) -> SpectrumDisplay:
        """Plot the spectrum of a fitted extractor."""
    def plot(
        self, ax: Any = ..., *, spectrum_kwargs: dict[Any, Any] | None = ..., phi_kwargs: dict[Any, Any] | None = ...
    ) -> SpectrumDisplay:
        """Plot the singular values and the distances."""

class WeightRecoveryDisplay:
    """True against recovered weights and biases of a network, and their errors."""

    true_weights: list[Array]
    recovered_weights: list[Array]
    true_biases: list[Array]
    recovered_biases: list[Array]
    ax_: Any
    error_ax_: Any
    figure_: Any
    def __init__(
        self,
        *,
        true_weights: list[Array],
        recovered_weights: list[Array],
        true_biases: list[Array],
        recovered_biases: list[Array],
    ) -> None: ...
    @classmethod
    def from_networks(
        cls, truth: FeedforwardNetwork, network: FeedforwardNetwork, *, ax: Any = ..., **kwargs: Any
    ) -> WeightRecoveryDisplay:
        """Align `network` with `truth` and plot both."""
    @property
    def max_error(self) -> Any: ...
    def plot(
        self, ax: Any = ..., *, scatter_kwargs: dict[Any, Any] | None = ..., line_kwargs: dict[Any, Any] | None = ...
    ) -> WeightRecoveryDisplay:
        """Plot the values and the errors."""
