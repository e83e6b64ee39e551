"""QuadraticNetRegressor: shallow networks with quadratic units, trained to a certified global optimum."""

import warnings
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
import scipy.linalg
from sklearn.base import RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from skident.base.better_models import BetterModel, better_model
from skident.base.checked_data import checked_data, merged_samples
from skident.base.estimator import ReportedEstimator
from skident.base.input_range import input_range
from skident.base.parameters import AT_LEAST_ONE, POSITIVE, Interval, StrOptions, check_magnitudes, forgotten_on_error
from skident.budget.constants import (
    CONSTANT,
    CONSTANT_TOL,
    LARGEST_EXPONENT,
    LEAST_DIVISOR,
    NOISE_FREE,
    WORSE_THAN_LINEAR,
)
from skident.linalg.columns import column_units, root_mean_squares
from skident.network import FeedforwardNetwork
from skident.optim import gram_work, one_thread

from .certificate import CertificateOptions
from .certify import certify_quadratic
from .convex_loss_fits import RidgeGrid, fit_targets, ridge_terms
from .convex_solver import ConvexSolution, least_squares_size, solve_convex
from .descent import descend
from .losses import HuberLoss
from .problem import LossTerms, QuadraticProblem
from .quadratic_form import factorize, quadratic_form
from .ridge_selection import leave_one_out_ridge, linear_errors

_ALONG_OUTPUTS = ("scale_", "quadratic_form_", "coef_", "intercept_")
_LISTS = ("solver_", "history_")


class QuadraticNetRegressor(RegressorMixin, ReportedEstimator):
    """A network with one hidden layer of quadratic units, with a certificate of global optimality.

    Minimizes, over hidden weights W with the output weights v fixed, and over linear and constant terms::

        1/(2n) sum_i (sum_l v_l (w_l . z_i)^2 + b . z_i + c - y_i)^2
            + alpha/2 (||W^T D_v W||_F^2 + ||b||^2 / linear_weight)

    where z are the inputs divided by `scale_`, centered if there are both linear and constant terms. As a function of W
    this is not convex, but of ``M = W^T D_v W`` it is. Training can therefore be proven to have reached a global
    optimum; `certificate_` states whether it has, and if not why.

    Parameters
    ----------
    n_hidden : int, default=None
        Hidden units k. None is enough for a proof: 2 d for mixed output signs, else d.
    output_signs : {"mixed", "positive", "negative"} or array-like of shape (k,), default="mixed"
        Output weights: 1 for one half of the units (the larger) and -1 for the other, all 1, all -1, or given. d
        positive and d negative ones guarantee global optimality (Theorem 2.1 of [1]_), as do d of one sign and no
        other.
    solver : {"auto", "convex", "descent"}, default="auto"
        ``convex``: least squares in M, then factors of M. ``descent``: L-BFGS on W from 0, escaping saddles. ``auto``:
        convex if ``min(n, unknowns)`` is at most 6000 (0.3 GB, seconds).
    alpha : float or "auto", default="auto"
        Ridge on M (of degree four in W); 0 is none. ``auto`` minimizes the leave-one-out error, preferring simpler
        models within a standard error; it is 0 for data without noise.
    fit_intercept, fit_linear : bool, default=True
        Whether there are constant and linear terms. Without both, the network is that of [1]_.
    tol : float, default=1e-10
        Largest gap to the lower bound that counts as zero, relative to the loss of the best constant.
    max_iter : int, default=5000
        Maximum number of descent steps.
    random_state : int, RandomState or None, default=None
        Draws the samples for the choice of alpha if there are over 5000 (over 1000 with more than 1000 unknowns).
    loss : {"squared", "poisson"} or HuberLoss, default="squared"
        ``poisson`` is for counts with mean ``exp(f)``, `skident.landscape.HuberLoss` for targets with outliers, its
        `delta` in units of y. Both take mixed output signs and ``n_hidden=None``, and replace the first sum by ``1/n
        sum_i loss``.

    Attributes
    ----------
    hidden_weights_ : ndarray of shape (k, d)
        W, for unscaled inputs minus `center_`.
    output_weights_ : ndarray of shape (k,)
        v.
    quadratic_form_ : ndarray of shape (d, d)
        ``Q = W^T D_v W``: predictions are ``z^T Q z + coef_ . z + intercept_`` with ``z = x - center_``.
    coef_ : ndarray of shape (d,)
    intercept_ : float
    center_ : ndarray of shape (d,)
        0 unless both linear and constant terms are fitted.
    scale_ : ndarray of shape (d,)
        Scales of the inputs in the ridge: their standard deviations (root mean squares without linear or constant
        terms), with an automatic alpha divided by their relevance if that helps.
    network_ : FeedforwardNetwork
        The same function: k units, and two more for the linear terms. It is not clipped to `input_range_`.
    input_range_ : ndarray of shape (2, d) or None
        Bounds to which `predict` clips inputs: the training range and a quarter of it more on each side. None, without
        clipping, if residuals of an output are rounding, for a given alpha, and for other losses than the squared one.
    certificate_ : LandscapeCertificate
        Of W for inputs divided by `scale_`; with several outputs that of the output which is not proven, or has the
        largest relative gap.
    certificates_ : list of LandscapeCertificate
        One per output.
    alpha_, linear_weight_ : float
        As used.
    held_out_score_, linear_score_ : float
        Leave-one-out R^2, of the selected ridge (units of both signs) and of a linear model with its own; NaN if
        unknown, the first for a given alpha.
    solver_ : {"convex", "descent"}
        As used.
    n_iter_ : int
        Steps of the solver, at least 1.
    history_ : list of float
        The loss after each step.
    n_features_in_ : int

    Notes
    -----
    **Automatic alpha.** The smallest leave-one-out error is taken unless a model without quadratic part, or the mean of
    y, is as good within a standard error. The linear model is alpha 1000 with the
    linear weight that gives the linear terms their best ridge. Inputs that contribute little to a first fit are scaled
    down if that clearly lowers the error.

    **Solvers.** ``convex`` continues by descent if M has eigenvalues of a sign that v has no units for. Costs:
    `skident.landscape.convex_solver.solve_convex`, `skident.landscape.descent.descend`,
    `skident.landscape.landscape_certificate`. Beyond 6000 rows and unknowns, an optimum without ridge can be
    reached but not proven, unless its loss is zero.

    **Other losses.** The minimizer is computed by Newton's method and certified by Fenchel duality. With a Huber loss,
    `certificate_` is about ``(y - median) / delta`` (without intercept ``y / delta``) and a loss with delta 1; with a
    Poisson loss, `network_` returns the logarithm of the mean. An automatic alpha minimizes the approximate
    leave-one-out loss.

    **Several outputs.** With y (n, o), every output has its own block of units, whose other output weights are 0, and
    its own ridge. The losses then do not depend on each other, so that a proof for each of them is one for their sum.
    `hidden_weights_` and `output_weights_`, (k, o), contain the blocks one after the other. `quadratic_form_`, `coef_`,
    `intercept_`, `scale_`, `alpha_`, `linear_weight_`, `held_out_score_` and `linear_score_` have a first axis of
    length o; `solver_` and `history_` are lists.

    **Limits.** Quadratic functions do not suffice for arctangents of ratios (friedman3: R^2 0.04 below the best of
    linear models, kernels and boosting) and squares of squares (hierarchical targets: 0.1); `fit` warns of both.

    References
    ----------
    .. [1] M. Soltanolkotabi, A. Javanmard, J. D. Lee, "Theoretical insights into the optimization landscape of
       over-parameterized shallow neural networks", 2017 (revised 2022).

    Examples
    --------
    >>> import numpy as np
    >>> from skident import QuadraticNetRegressor
    >>> X = np.random.default_rng(0).standard_normal((100, 4))
    >>> reg = QuadraticNetRegressor().fit(X, (X[:, 0] + X[:, 1]) ** 2 - X[:, 2])
    >>> reg.certificate_.status
    'global'
    >>> print(round(reg.score(X, (X[:, 0] + X[:, 1]) ** 2 - X[:, 2]), 10))
    1.0
    """

    _reported = ("certificate_", "solver_", "alpha_", "held_out_score_", "linear_score_", "n_iter_")

    _parameter_constraints = {
        "n_hidden": [AT_LEAST_ONE, None],
        "output_signs": [StrOptions({"mixed", "positive", "negative"}), "array-like"],
        "solver": [StrOptions({"auto", "convex", "descent"})],
        "alpha": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "fit_intercept": ["boolean"],
        "fit_linear": ["boolean"],
        "tol": [POSITIVE],
        "max_iter": [AT_LEAST_ONE],
        "random_state": ["random_state"],
        "loss": [StrOptions({"squared", "poisson"}), HuberLoss],
    }

    def __init__(
        self,
        n_hidden=None,
        output_signs="mixed",
        solver="auto",
        *,
        alpha="auto",
        fit_intercept=True,
        fit_linear=True,
        tol=1e-10,
        max_iter=5000,
        random_state=None,
        loss="squared",
    ):
        self.n_hidden = n_hidden
        self.output_signs = output_signs
        self.solver = solver
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.fit_linear = fit_linear
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.loss = loss

    def fit(self, X, y, sample_weight=None):
        """Train, and certify the point that training reached.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,) or (n, o)
        sample_weight : array-like of shape (n,), default=None
            Nonnegative; integer weights count as repetitions.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X or y is not finite, or so large or small that squares overflow or underflow, the output weights do not
            match `n_hidden`, or ``solver="convex"`` would factorize a matrix of order over 6000. If another loss
            than the squared one is given with other options than its own, or with targets that it does not take.

        Warns
        -----
        ConvergenceWarning
            If a linear model is better on held-out samples than the network on its training samples. With an automatic
            alpha, if a linear model, a kernel or boosting is better on held-out samples by more than 0.015 of R^2.
        UserWarning
            If y is constant up to rounding.
        """
        with forgotten_on_error(self), one_thread(gram_work(X, degree=2)):
            self._validate_params()
            X, y = checked_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
            y, name = np.asarray(y, dtype=np.float64), type(self).__name__
            check_magnitudes(X=X, y=y)
            X, y, weights = merged_samples(X, y, sample_weight)
            if y.ndim == 1:
                self._fit_output(X, y, weights, name)
                self.certificates_ = [self.certificate_]
                return self
            blocks = [clone(self).set_params(random_state=self.random_state) for _ in y.T]
            for j, block in enumerate(blocks):
                block._fit_output(X, y[:, j], weights, name if len(blocks) == 1 else f"{name}, column {j} of y")
            for attribute, value in stacked_blocks(blocks).items():
                setattr(self, attribute, value)
        return self

    def _fit_output(self, X, y, weights, name):
        """The fit of one output; warnings begin with `name`."""
        warn_of_rounded_targets(y, name)
        v = _output_weights(self.output_signs, self.n_hidden, X.shape[1])
        self.center_, self.scale_ = _input_scaling(X, weights, centered=self.fit_intercept and self.fit_linear)
        if self.loss != "squared":
            return self._fit_convex_loss(((X - self.center_) / self.scale_, y, weights))
        problem, scores = self._problem(X - self.center_, y, weights)
        self.solver_ = self._resolve_solver(problem)
        trained = _trained(problem, v, self.solver_, max_iter=self.max_iter)
        options = CertificateOptions(tol=self.tol)
        self.certificate_ = certify_quadratic(problem, trained.W, v, options, trained.solution)
        self._store(problem, v, trained)
        self.held_out_score_, self.linear_score_ = scores.quadratic, scores.linear
        score = r2_score(y, self._values(X), sample_weight=weights) if len(y) > 1 else np.nan
        self.input_range_ = input_range(X) if self.alpha == "auto" and score < 1.0 - NOISE_FREE else None
        warn_of_model_class(scores, score, name)

    def _fit_convex_loss(self, samples):
        """The fit for another than the squared loss; samples as of `fit_targets`."""
        if self.output_signs != "mixed" or self.n_hidden is not None or self.solver == "descent":
            raise ValueError(
                f"loss={self.loss!r} takes output_signs='mixed', n_hidden=None and solver='auto' or 'convex'; got "
                f"{self.output_signs!r}, {self.n_hidden!r} and {self.solver!r}."
            )
        options = CertificateOptions(tol=self.tol)
        grid, rng = RidgeGrid(self.alpha), check_random_state(self.random_state)
        self.input_range_ = None
        fit = fit_targets(samples, self.loss, ridge_terms(self.fit_intercept, self.fit_linear), (grid, options, rng))
        self.solver_, self.certificate_ = "convex", fit.certificate
        self.held_out_score_ = self.linear_score_ = np.nan
        self.alpha_, self.linear_weight_ = fit.problem.alpha, float(fit.problem.terms.linear_weight)
        self.n_iter_, self.history_ = max(1, len(fit.history)), [float(value) for value in fit.history]
        self.hidden_weights_, self.output_weights_ = fit.W / self.scale_, fit.v
        self.quadratic_form_ = fit.form / np.outer(self.scale_, self.scale_)
        self.coef_, self.intercept_ = fit.coef / self.scale_, float(fit.intercept)
        size = np.linalg.norm(fit.coef)
        self.network_ = _network(self.hidden_weights_, fit.v, self.coef_, size, self.intercept_, self.center_)

    def _problem(self, Z, y, weights):
        """The loss with its selected ridge and scales, and the held-out scores."""
        terms = LossTerms(fit_intercept=bool(self.fit_intercept), fit_linear=bool(self.fit_linear))
        alpha, weight, plain = self.alpha, 1.0, QuadraticProblem(Z / self.scale_, y, terms, weights)
        if alpha == "auto":
            selection = leave_one_out_ridge(plain, check_random_state(self.random_state))
            alpha, weight = selection.alpha, selection.linear_weight
            scores = held_out_scores(Z, y, selection, weights)
            self.scale_ = self.scale_ * selection.scales
        else:
            scores = HeldOutScores(linear=linear_score(plain))
        terms = replace(terms, alpha=alpha, linear_weight=weight)
        return QuadraticProblem(Z / self.scale_, y, terms, weights), scores

    def _resolve_solver(self, problem):
        """The solver; ValueError if the convex one would factorize too large a matrix."""
        size, most = least_squares_size(problem), CertificateOptions.max_dense
        if self.solver == "convex" and size > most:
            raise ValueError(
                f"solver='convex' would factorize a matrix of order min(n, unknowns) = min({problem.n}, "
                f"{problem.n_unknowns}) = {size}, {8e-9 * size**2:.2g} GB; at most {most} is allowed. Use solver="
                "'descent', which needs no such matrix."
            )
        return "descent" if self.solver == "descent" or size > most else "convex"

    def _store(self, problem, v, trained):
        """Fitted attributes, for unscaled inputs."""
        b, c = problem.side_terms(quadratic_form(trained.W, v))
        self.alpha_, self.linear_weight_ = problem.alpha, problem.linear_weight
        self.n_iter_, self.history_ = trained.n_iter, trained.history
        self.hidden_weights_, self.output_weights_ = trained.W / self.scale_, v
        self.quadratic_form_ = quadratic_form(self.hidden_weights_, v)
        self.coef_, self.intercept_ = b / self.scale_, float(c)
        self.network_ = _network(self.hidden_weights_, v, self.coef_, np.linalg.norm(b), self.intercept_, self.center_)

    def predict(self, X):
        """``z^T Q z + coef_ . z + intercept_``; for Poisson losses the exponential of this, the mean.

        With `input_range_`, inputs are clipped to it.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,) or (n, o)

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError
            If X is not finite or has another number of columns.
        """
        check_is_fitted(self)
        X = checked_data(self, X, dtype=np.float64, reset=False)
        values = self._values(X if self.input_range_ is None else np.clip(X, *self.input_range_))
        return np.exp(np.minimum(values, LARGEST_EXPONENT)) if self.loss == "poisson" else values

    def _values(self, X):
        """Predictions for validated inputs."""
        Z = X - self.center_
        if self.quadratic_form_.ndim == 2:
            return np.einsum("ij,ij->i", Z @ self.quadratic_form_, Z) + Z @ self.coef_ + self.intercept_
        forms = [np.einsum("ij,ij->i", Z @ form, Z) for form in self.quadratic_form_]
        return np.column_stack(forms) + Z @ self.coef_.T + self.intercept_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@dataclass(frozen=True)
class _Trained:
    """Weights (k, d) at the end of training, steps, losses, and the least squares solution if there is one."""

    W: np.ndarray
    n_iter: int
    history: list[float]
    solution: ConvexSolution | None


def _trained(problem, v, solver, *, max_iter):
    """Hidden weights at the least loss: factors of the convex solution, or descent from what can be kept of it."""
    W, solution, n_iter, history = np.zeros((len(v), problem.d)), None, 1, [problem.null_value]
    if solver == "convex":
        solution = solve_convex(problem)
        W, lost = factorize(solution.M, v)
        n_iter = max(1, solution.n_iter)
        history.append(problem.value(quadratic_form(W, v)))
        if not lost > CONSTANT_TOL * np.linalg.norm(solution.M):
            return _Trained(W, n_iter, history, solution)
    result = descend(problem, W, v, max_iter=max_iter)
    return _Trained(result.W, n_iter + result.n_iter, history + result.history[1:], solution)


def _output_weights(signs, n_hidden, d):
    """Output weights (k,) from `output_signs` and `n_hidden`, for d inputs."""
    if not isinstance(signs, str):
        v = check_array(signs, ensure_2d=False, dtype=np.float64, input_name="output_signs")
        if v.ndim != 1 or n_hidden not in (None, len(v)):
            raise ValueError(
                f"output_signs given as an array must have one entry a unit, n_hidden = {n_hidden}; got shape "
                f"{v.shape}."
            )
        if not v.any():
            raise ValueError("output_signs are all 0: no unit has an output weight, there is nothing to train.")
        return v.copy()
    k = int(n_hidden or 0) or (2 * d if signs == "mixed" else d)
    v = np.full(k, -1.0 if signs == "negative" else 1.0)
    if signs == "mixed":
        v[(k + 1) // 2 :] = -1.0
    return v


def _input_scaling(X, weights, *, centered):
    """Center and scale of each input: mean and standard deviation, or 0 and the root mean square."""
    return column_units(X, weights=weights) if centered else (np.zeros(X.shape[1]), root_mean_squares(X, weights))


def _network(W, v, linear, size, constant, center):
    """The same function as a network: two more units make the linear terms b . z; `size` is |b| for scaled inputs."""
    # In units of its own standard deviation, b . z = |b| / 4 ((u + 1)^2 - (u - 1)^2) with u = b . z / |b|.
    pair = np.stack([linear, linear]) / size if size > 0 else np.zeros((0, len(linear)))
    rows = np.vstack([W, pair])
    biases = -rows @ center + np.concatenate([np.zeros(len(v)), [1.0, -1.0][: len(pair)]])
    outputs = np.concatenate([v, [0.25 * size, -0.25 * size][: len(pair)]])
    return FeedforwardNetwork([rows.T, outputs[:, None]], [biases, [constant]], "quadratic", "identity")


_ALONG_OUTPUTS += ("alpha_", "linear_weight_", "held_out_score_", "linear_score_")


def stacked_blocks(blocks):
    """Fitted attributes of `QuadraticNetRegressor` for several outputs, from one fitted to each output."""
    stacked = {name: np.stack([getattr(block, name) for block in blocks]) for name in _ALONG_OUTPUTS}
    stacked |= {name: [getattr(block, name) for block in blocks] for name in _LISTS}
    certificates = [block.certificate_ for block in blocks]
    columns = [block.output_weights_[:, None] for block in blocks]
    ranges = [block.input_range_ for block in blocks]
    return stacked | {
        "certificates_": certificates,
        "certificate_": max(certificates, key=lambda c: (not c.is_global, c.gap / max(c.null_loss, LEAST_DIVISOR))),
        "center_": blocks[0].center_,
        "input_range_": None if any(one is None for one in ranges) else ranges[0],
        "hidden_weights_": np.vstack([block.hidden_weights_ for block in blocks]),
        "output_weights_": scipy.linalg.block_diag(*columns),
        "n_iter_": max(block.n_iter_ for block in blocks),
        "network_": _block_network([block.network_ for block in blocks]),
    }


def _block_network(networks):
    """One network (d, k, o) of networks (d, k_j, 1) with the same inputs."""
    first, last = (list(layer) for layer in zip(*(net.weights for net in networks), strict=True))
    hidden, constants = (list(layer) for layer in zip(*(net.biases for net in networks), strict=True))
    weights = [np.hstack(first), scipy.linalg.block_diag(*last)]
    return FeedforwardNetwork(weights, [np.concatenate(hidden), np.concatenate(constants)], "quadratic", "identity")


@dataclass(frozen=True)
class HeldOutScores:
    """Leave-one-out R^2; NaN if unknown."""

    quadratic: float = np.nan  # of the quadratic network with the selected ridge
    linear: float = np.nan  # of a linear model with its best ridge
    better: BetterModel | None = None  # a model that is clearly better than the network, on at most 1,000 samples


def held_out_scores(X, y, choice, weights=None):
    """`HeldOutScores` of X (n, d), y (n,) with `weights` (n,) for a `RidgeSelection`."""
    X, y, w = X[choice.rows], y[choice.rows], None if weights is None else weights[choice.rows]
    w = w if w is None else w / w.mean()
    variance = _variance(y, w)
    if variance == 0.0 or len(y) < 3:
        return HeldOutScores()
    quadratic, linear = (1.0 - float(np.mean(s)) / variance for s in (choice.squares, choice.linear_squares))
    if choice.alpha == 0.0:
        return HeldOutScores(quadratic, linear)
    losses = choice.squares if w is None else choice.squares / w
    return HeldOutScores(quadratic, linear, better_model(X, y, losses, quadratic=True, weights=w))


def linear_score(problem):
    """Leave-one-out R^2 of a linear model with its best ridge; NaN for fewer than three samples or constant targets."""
    variance = _variance(problem.y, problem.weights)
    if variance == 0.0 or problem.n < 3:
        return np.nan
    return 1.0 - float(np.mean(linear_errors(problem)[0])) / variance


def _variance(y, weights):
    """Variance of y (n,) with weights (n,) or None."""
    return float(np.average((y - np.average(y, weights=weights)) ** 2, weights=weights))


def warn_of_model_class(scores, in_sample, name):
    """Warn if another class of functions is better on held-out samples.

    If a linear model is better than the network even on its training samples (R^2 `in_sample`) by
    more than .03, or if another model is clearly better on held-out samples.
    """
    # With a selected ridge, a linear model that is not clearly better than the mean has been rejected.
    if in_sample < np.fmin(scores.linear, scores.quadratic) - WORSE_THAN_LINEAR:
        warnings.warn(
            f"{name}: a linear model is better for these data: R^2 on held-out samples is {scores.linear:.3f}, and "
            f"{in_sample:.3f} on training samples for the network. Lower alpha, or allow linear terms, both signs.",
            ConvergenceWarning,
            stacklevel=4,
        )
    elif scores.better is not None:
        scores.better.warn(name, stacklevel=4)


def warn_of_rounded_targets(y, name):
    """Warn if y is constant except for rounding: a standard deviation below 1e-13 of its mean, but not 0."""
    mean = float(y.mean())
    spread = float(np.std(y - mean))
    if np.ptp(y) > 0 and spread <= CONSTANT * abs(mean):
        warnings.warn(
            f"{name}: y is constant up to rounding: its standard deviation is {spread:.3g} at a mean of {mean:.6g}, "
            f"where float64 values are {np.spacing(abs(mean)):.3g} apart. The fit describes these roundings; the "
            "certificate holds for y as stored. Subtract the offset where y is computed, before it is rounded, and fit "
            "the difference.",
            UserWarning,
            stacklevel=4,
        )
