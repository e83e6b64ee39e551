from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from skident.network import Activation, FeedforwardNetwork

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = [
    "CertificateOptions",
    "HuberLoss",
    "LandscapeCertificate",
    "LossTerms",
    "PhaseTransition",
    "QuadraticNetClassifier",
    "QuadraticNetRegressor",
    "Separation",
    "TrainingTrials",
    "descent_rate",
    "landscape_certificate",
    "phase_transition",
]

@dataclass(frozen=True)
class CertificateOptions:
    """Tolerance and budget of a certificate."""

    tol: float = ...
    max_products: int = ...
    max_dense: int = ...

@dataclass(frozen=True)
class HuberLoss:
    """The Huber loss ``(f - y)^2 / 2`` up to residuals of `delta`, and linear beyond."""

    delta: float = ...

@dataclass(frozen=True)
class LandscapeCertificate:
    """What is proven or measured at a point of a shallow network's loss landscape."""

    status: Literal["global", "saddle", "not stationary", "undecided"]
    is_global: bool
    reason: str
    loss: float
    lower_bound: float
    gap: float
    null_loss: float
    gradient_norm: float
    residual_norm: float
    wrong_norm: float
    curvature: float
    curvature_bound: float
    curvature_converged: bool
    escape_direction: Array | None
    n_products: int
    radial_slope: float
    output_weights: Array
    activation: str = ...
    terms: LossTerms = ...
    loss_name: Literal["squared", "logistic", "huber", "poisson"] = ...
    radius: float = ...
    def deterministic_bound(self, nuclear_norm: float, *, planted: bool = ...) -> float:
        """Upper bound on the decrease of the loss by a network with output weights of these signs and bounded M'."""
    def lines(self) -> list[str]:
        """Status and its argument."""
    def rows(self) -> list[tuple[str, ...]]:
        """What was proven or measured."""
    def theorem_bound(self, nuclear_norm: float) -> float:
        """Theorem 2.2's bound on the loss, with its constants, for equal output weights and planted Gaussian data."""
    titles: Any

@dataclass(frozen=True)
class LossTerms:
    """Terms of a quadratic network's loss besides the quadratic form: constant and linear terms, and a ridge."""

    alpha: float = ...
    fit_intercept: bool = ...
    fit_linear: bool = ...
    linear_weight: float = ...
    def without_ridge(self) -> LossTerms:
        """The same terms, unpenalized."""

@dataclass(frozen=False)
class PhaseTransition:
    """Success probabilities over a sweep of sizes, and the size at which they cross one half."""

    swept: Literal["n_samples", "n_features", "n_hidden"]
    values: Array
    probabilities: Array
    start_rates: Array
    n_trials: int
    half_point: float
    interval: tuple[float, ...]
    slope: float
    settings: dict[Any, Any]
    losses: Array

class QuadraticNetClassifier(ClassifierMixin, BaseEstimator):
    """A classifier with one hidden layer of quadratic units, with a certificate of global optimality."""

    alpha: float | Literal["auto"]
    fit_intercept: bool
    fit_linear: bool
    tol: float
    random_state: int | RandomState | None
    class_weight: dict[Any, Any] | Literal["balanced"] | None
    classes_: Array
    hidden_weights_: Array
    output_weights_: Array
    quadratic_form_: Array
    coef_: Array
    intercept_: Array
    center_: Array
    scale_: Array
    certificates_: list[LandscapeCertificate]
    certificate_: LandscapeCertificate
    separations_: Any
    alpha_: Array
    linear_weight_: Array
    n_iter_: int
    n_features_in_: int
    def __init__(
        self,
        alpha: float | Literal["auto"] = ...,
        *,
        fit_intercept: bool = ...,
        fit_linear: bool = ...,
        tol: float = ...,
        random_state: int | RandomState | None = ...,
        class_weight: dict[Any, Any] | Literal["balanced"] | None = ...,
    ) -> None: ...
    def decision_function(self, X: ArrayLike) -> Array:
        """Outputs ``z^T Q z + coef_ . z + intercept_``: the logit of the second class, or one per class."""
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = ...) -> Self:
        """Train, and certify the point that training reached."""
    def predict(self, X: ArrayLike) -> Array:
        """Most probable class."""
    def predict_proba(self, X: ArrayLike) -> Array:
        """Class probabilities; for more than two classes, those of each against the rest, normalized."""
    @property
    def report_(self) -> Any: ...
    set_fit_request: Any
    set_score_request: Any

class QuadraticNetRegressor(RegressorMixin, BaseEstimator):
    """A network with one hidden layer of quadratic units, with a certificate of global optimality."""

    n_hidden: int | None
    output_signs: Literal["mixed", "positive", "negative"] | ArrayLike
    solver: Literal["auto", "convex", "descent"]
    alpha: float | Literal["auto"]
    fit_intercept: bool
    fit_linear: bool
    tol: float
    max_iter: int
    random_state: int | RandomState | None
    loss: Literal["squared", "poisson"] | HuberLoss
    hidden_weights_: Array
    output_weights_: Array
    quadratic_form_: Array
    coef_: Array
    intercept_: float
    center_: Array
    scale_: Array
    network_: FeedforwardNetwork
    input_range_: Array | None
    certificate_: LandscapeCertificate
    certificates_: list[LandscapeCertificate]
    alpha_: float
    linear_weight_: float
    held_out_score_: float
    linear_score_: float
    solver_: Literal["convex", "descent"]
    n_iter_: int
    history_: list[float]
    n_features_in_: int
    def __init__(
        self,
        n_hidden: int | None = ...,
        output_signs: Literal["mixed", "positive", "negative"] | ArrayLike = ...,
        solver: Literal["auto", "convex", "descent"] = ...,
        *,
        alpha: float | Literal["auto"] = ...,
        fit_intercept: bool = ...,
        fit_linear: bool = ...,
        tol: float = ...,
        max_iter: int = ...,
        random_state: int | RandomState | None = ...,
        loss: Literal["squared", "poisson"] | HuberLoss = ...,
    ) -> None: ...
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = ...) -> Self:
        """Train, and certify the point that training reached."""
    def predict(self, X: ArrayLike) -> Array:
        """``z^T Q z + coef_ . z + intercept_``; for Poisson losses the exponential of this, the mean."""
    @property
    def report_(self) -> Any: ...
    set_fit_request: Any
    set_score_request: Any

@dataclass(frozen=True)
class Separation:
    """A quadratic function that separates two classes: the logistic loss without ridge has no minimum."""

    quadratic_form: Array
    coef: Array
    intercept: float
    margin: float
    is_complete: bool

@dataclass(frozen=True)
class TrainingTrials:
    """The trials per size: numbers of data sets and starts, labels, budget."""

    n_trials: int = ...
    n_starts: int = ...
    labels: Literal["planted", "random"] = ...
    train_output: bool = ...
    threshold: float = ...
    max_iter: int = ...

def descent_rate(W: ArrayLike, v: ArrayLike, X: ArrayLike, *, activation: str | Activation) -> tuple[float, float]:
    """Largest step size of gradient descent at a network, and the factor by which its loss falls per step there."""

def landscape_certificate(
    W: ArrayLike,
    v: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    activation: Any = ...,
    terms: LossTerms = ...,
    options: CertificateOptions = ...,
    loss: Literal["squared", "logistic", "poisson"] | HuberLoss = ...,
) -> LandscapeCertificate:
    """Certify a point of the landscape of ``1/(2n) sum_i (v . g(W x_i) - y_i)^2`` over the hidden weights W."""

def phase_transition(
    n_samples: Any,
    n_features: Any,
    n_hidden: Any,
    *,
    activation: str | Activation = ...,
    sharpness: float = ...,
    trials: TrainingTrials = ...,
    n_jobs: int | None = ...,
    random_state: int | RandomState | None = ...,
) -> PhaseTransition:
    """Estimate the size at which a shallow network trains successfully from every start, Figures 2 and 3 of [1]_."""
