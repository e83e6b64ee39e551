"""QuadraticNetClassifier: shallow networks with quadratic units and logistic loss, trained to a certified optimum."""

import warnings
from dataclasses import dataclass, field, replace
from numbers import Real

import numpy as np
import scipy.sparse
from scipy.optimize import linprog
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from skident.base.better_models import better_model
from skident.base.checked_data import checked_data, merged_samples
from skident.base.column_scales import scales_for_classes
from skident.base.estimator import ReportedEstimator
from skident.base.parameters import CLASS_WEIGHT, POSITIVE, Interval, StrOptions, check_magnitudes, forgotten_on_error
from skident.base.predictions import added_constants
from skident.linalg.columns import root_mean_squares
from skident.optim import gram_work, one_thread

from .certificate import CertificateOptions
from .convex_loss_fits import RidgeGrid, fit_convex_loss, ridge_terms, select_ridge, selection_samples
from .losses import LogisticLoss

_SEPARATING_RIDGE = 1e-6  # where the classes are separable: small enough for a large margin, large enough for a solver
_ROUNDINGS = 4.0  # times eps and the number of terms: the rounding of an output, relative to its terms' magnitudes
_LARGEST_PROGRAM = 2e6  # entries of the linear program (budget): seconds
_PROGRAM_TOL = 1e-7  # tolerance of the linear program, for margins of at most 1


class QuadraticNetClassifier(ClassifierMixin, ReportedEstimator):
    """A classifier with one hidden layer of quadratic units, with a certificate of global optimality.

    Minimizes, over hidden weights W with output weights v of 1 and -1, and over linear and constant terms::

        1/n sum_i log(1 + exp(-y_i f(z_i))) + alpha/2 (||W^T D_v W||_F^2 + ||b||^2 / linear_weight)
        f(z) = sum_l v_l (w_l . z)^2 + b . z + c

    where z are the standardized inputs and y_i is 1 or -1. The loss is convex in ``M = W^T D_v W``; a dual solution
    (Fenchel) proves that training has reached a global optimum. More than two classes are fitted one against the rest.

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        Ridge on M; 0 is none. ``auto`` minimizes the approximate leave-one-out loss.
    fit_intercept, fit_linear : bool, default=True
        Whether there are constant and linear terms.
    tol : float, default=1e-10
        Largest gap to the lower bound that counts as zero, relative to the loss of the best constant.
    random_state : int, RandomState or None, default=None
        Draws the samples for the choice of alpha if there are over 2000.
    class_weight : dict, "balanced" or None, default=None
        Factors of the sample weights by label; ``balanced`` gives all classes the same total weight. Set it if rare
        classes matter as much as frequent ones.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    hidden_weights_ : ndarray of shape (n_forms, 2 d, d)
        W, for unscaled inputs minus `center_`: one network for two classes, otherwise one per class.
    output_weights_ : ndarray of shape (2 d,)
        v.
    quadratic_form_ : ndarray of shape (n_forms, d, d)
    coef_ : ndarray of shape (n_forms, d)
    intercept_ : ndarray of shape (n_forms,)
        With weighted samples and an automatic ridge, plus the constant of the lowest loss on samples left out: a rare
        class is fitted more closely than new samples of it.
    center_, scale_ : ndarray of shape (d,)
        Means of the inputs and their standard deviations, with a floor if that separates the classes better
        (`skident.base.column_scales`); zeros and root mean squares without linear or constant terms.
    certificates_ : list of LandscapeCertificate
        One per network, of W for inputs divided by `scale_`.
    certificate_ : LandscapeCertificate
        The one with the largest gap.
    separations_ : list
        Of `Separation` or None. Without ridge: a function that separates the classes, so that the loss has no minimum.
    alpha_, linear_weight_ : ndarray of shape (n_forms,)
        As used.
    n_iter_ : int
        Newton steps, of the network that took most.
    n_features_in_ : int

    Notes
    -----
    The minimizer is computed by Newton's method in ``min(n, d (d + 3) / 2)`` unknowns; 569 samples with 30 inputs take
    seconds, with a given alpha less than one. Without ridge, classes that a quadratic function separates have no
    optimum; `fit` warns, and fits with a ridge of 1e-6.

    Examples
    --------
    >>> import numpy as np
    >>> from skident import QuadraticNetClassifier
    >>> X = np.random.default_rng(0).standard_normal((200, 3))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same sign", "opposite")
    >>> clf = QuadraticNetClassifier(alpha=0.01).fit(X, y)
    >>> print(clf.certificate_.status, bool(clf.score(X, y) > 0.95))
    global True
    """

    _reported = ("certificate_", "alpha_", "n_iter_")

    _parameter_constraints = {
        "alpha": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "fit_intercept": ["boolean"],
        "fit_linear": ["boolean"],
        "tol": [POSITIVE],
        "random_state": ["random_state"],
        "class_weight": CLASS_WEIGHT,
    }

    def __init__(
        self,
        alpha="auto",
        *,
        fit_intercept=True,
        fit_linear=True,
        tol=1e-10,
        random_state=None,
        class_weight=None,
    ):
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.fit_linear = fit_linear
        self.tol = tol
        self.random_state = random_state
        self.class_weight = class_weight

    def fit(self, X, y, sample_weight=None):
        """Train, and certify the point that training reached.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n,), default=None
            Nonnegative; integer weights count as repetitions.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X is not finite, or so large or small that squares overflow or underflow, there is one class, or the
            features would take more than 4 GB.

        Warns
        -----
        ConvergenceWarning
            If there is no ridge and the classes are separable, so that the loss has no minimum. With an automatic
            ridge, if a linear model, a kernel or boosting is better on held-out samples by more than 0.015.
        """
        with forgotten_on_error(self), one_thread(gram_work(X, degree=2)):
            self._validate_params()
            X, y = checked_data(self, X, y, dtype=np.float64)
            check_classification_targets(y)
            check_magnitudes(X=X)
            X, y, weights = merged_samples(X, y, sample_weight, self.class_weight)
            self.classes_, labels = np.unique(y, return_inverse=True)
            if len(self.classes_) < 2:
                raise ValueError(
                    f"y has one class, {self.classes_[0]!r}, in all {len(y)} samples; a classifier needs two or more."
                )
            if self.fit_intercept and self.fit_linear:
                self.center_ = np.average(X, axis=0, weights=weights)
                self.scale_ = scales_for_classes(X, labels, weights)
            else:
                self.center_, self.scale_ = np.zeros(X.shape[1]), root_mean_squares(X, weights)
            Z, rng = (X - self.center_) / self.scale_, check_random_state(self.random_state)
            numbers = [1] if len(self.classes_) == 2 else range(len(self.classes_))
            some = selection_samples(len(Z), rng)
            fits = [self._fit_one((Z, np.where(labels == i, 1.0, -1.0), weights), some) for i in numbers]
            self._store([fit for fit, _ in fits])
            left_out = [outputs for _, outputs in fits]
            if left_out[0] is not None:
                if weights is not None:
                    pairs = zip(numbers, left_out)
                    added = [added_constants(f[:, None], (labels == i)[some] * 1, weights[some]) for i, f in pairs]
                    self.intercept_ += np.ravel(added)
                    left_out = np.array(left_out) + added
                found = left_out[0] > 0.0 if len(numbers) == 1 else np.argmax(left_out, axis=0)
                losses, w = (found != labels[some]).astype(float), None if weights is None else weights[some]
                better = better_model(X[some], labels[some], losses, quadratic=True, weights=w)
                if better is not None:
                    better.warn(type(self).__name__, stacklevel=2)
        return self

    def _fit_one(self, samples, some):
        """The fit of one class against the rest with a `Separation` or None, and left-out outputs of samples `some`.

        `samples` are those of `select_ridge`.
        """
        loss, plain = LogisticLoss(), ridge_terms(self.fit_intercept, self.fit_linear)
        terms, left_out = select_ridge(samples, some, loss, plain, RidgeGrid(self.alpha))
        options = CertificateOptions(tol=self.tol)
        if terms.alpha > 0:
            return (fit_convex_loss(samples, loss, terms, options), None), left_out
        ridged = fit_convex_loss(samples, loss, replace(terms, alpha=_SEPARATING_RIDGE), options)
        separation = find_separation(ridged.problem, ridged.form, ridged.problem.side_params(ridged.form))
        if separation is None:
            return (fit_convex_loss(samples, loss, terms, options), None), left_out
        how = "strictly" if separation.is_complete else "with samples on the boundary"
        warnings.warn(
            f"a quadratic function separates the classes ({how}, margin {separation.margin:.1e}): without ridge the "
            f"loss has no minimum. A ridge of {_SEPARATING_RIDGE:.0e} was used; set alpha='auto' or alpha > 0.",
            ConvergenceWarning,
            stacklevel=3,
        )
        return (ridged, separation), left_out

    def _store(self, fits):
        """Fitted attributes, for unscaled inputs."""
        parts = [fit for fit, _ in fits]
        self.separations_ = [separation for _, separation in fits]
        self.alpha_ = np.array([fit.problem.alpha for fit in parts])
        self.linear_weight_ = np.array([fit.problem.terms.linear_weight for fit in parts])
        self.output_weights_ = parts[0].v
        self.hidden_weights_ = np.stack([fit.W / self.scale_ for fit in parts])
        self.quadratic_form_ = np.stack([fit.form / np.outer(self.scale_, self.scale_) for fit in parts])
        self.coef_ = np.stack([fit.coef / self.scale_ for fit in parts])
        self.intercept_ = np.array([fit.intercept for fit in parts])
        self.certificates_ = [fit.certificate for fit in parts]
        self.certificate_ = max(self.certificates_, key=lambda certificate: certificate.gap)
        self.n_iter_ = max(1, *(len(fit.history) for fit in parts), 1)

    def decision_function(self, X):
        """Outputs ``z^T Q z + coef_ . z + intercept_``: the logit of the second class, or one per class.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If X is not finite or has another number of columns.
        """
        check_is_fitted(self)
        Z = checked_data(self, X, dtype=np.float64, reset=False) - self.center_
        forms = [np.einsum("ij,ij->i", Z @ Q, Z) for Q in self.quadratic_form_]
        f = np.column_stack(forms) + Z @ self.coef_.T + self.intercept_
        return f[:, 0] if len(self.classes_) == 2 else f

    def predict_proba(self, X):
        """Class probabilities; for more than two classes, those of each against the rest, normalized.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_classes)
            In the order of `classes_`.
        """
        f = self.decision_function(X)
        if f.ndim == 1:
            return np.column_stack([expit(-f), expit(f)])
        # Relative to the largest, so that far from all classes the sum is not zero.
        logs = -np.logaddexp(0.0, -f)
        p = np.exp(logs - logs.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    def predict(self, X):
        """Most probable class.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
        """
        f = self.decision_function(X)
        return self.classes_[(f > 0).astype(int) if f.ndim == 1 else f.argmax(axis=1)]


@dataclass(frozen=True)
class Separation:
    """A quadratic function that separates two classes: the logistic loss without ridge has no minimum.

    Attributes
    ----------
    quadratic_form : ndarray of shape (d, d)
    coef : ndarray of shape (d,)
    intercept : float
        ``g(z) = z^T M z + coef . z + intercept``, for the inputs of the certificate, divided by the largest ``|g|``.
    margin : float
        Smallest ``y g(z)`` over the samples.
    is_complete : bool
        Whether all samples are strictly on their side, proven with the rounding of g. Otherwise some lie on the
        boundary to the tolerance of a linear program.
    """

    quadratic_form: np.ndarray = field(repr=False)
    coef: np.ndarray = field(repr=False)
    intercept: float = field(repr=False)
    margin: float
    is_complete: bool


def find_separation(problem, form, side):
    """A `Separation` of the classes of a `ConvexLossProblem`, or None; the function (`form`, `side`) is tried first."""
    found = _separation(problem, form, side)
    if found.is_complete:
        return found
    system = problem.system()
    if system.features.size > _LARGEST_PROGRAM:
        return None
    # Margins t_i in [0, 1] with the largest sum; it is 0 if no function separates, and the loss has a minimum.
    n, p = system.features.shape
    sizes = np.abs(system.features).max(axis=0)
    rows = -problem.y[:, None] * system.features / np.where(sizes > 0, sizes, 1.0)
    matrix = scipy.sparse.hstack([scipy.sparse.csr_array(rows), scipy.sparse.eye_array(n)]).tocsr()
    bounds = [(None, None)] * p + [(0.0, 1.0)] * n
    result = linprog(np.r_[np.zeros(p), -np.ones(n)], A_ub=matrix, b_ub=np.zeros(n), bounds=bounds, method="highs")
    if result.status != 0 or -result.fun <= _PROGRAM_TOL * n:
        return None
    form, side = problem.unpack(result.x[:p] / np.where(sizes > 0, sizes, 1.0))
    return _separation(problem, form, side)


def _separation(problem, form, side):
    """The function as a `Separation`, its margin measured and its rounding bounded."""
    outputs = problem.forms(form) + problem.side_features @ side
    terms = np.einsum("ij,ij->i", np.abs(problem.X) @ np.abs(form), np.abs(problem.X))
    terms = terms + np.abs(problem.side_features) @ np.abs(side)
    error = _ROUNDINGS * (2 * problem.d + len(side)) * np.finfo(float).eps * terms
    size = float(np.abs(outputs).max()) or 1.0
    margins = problem.y * outputs
    coef, intercept = problem.split(side / size)
    return Separation(form / size, coef, intercept, float(margins.min()) / size, bool((margins > error).all()))
