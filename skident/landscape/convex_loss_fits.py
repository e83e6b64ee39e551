"""Fits of quadratic networks with logistic, Huber and Poisson losses: ridge, minimizer, factors and certificate."""

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from skident.budget.constants import MAX_LEVERAGE, SOME_SAMPLES

from .certify_losses import certify_convex_loss
from .convex_loss_problem import ConvexLossProblem, minimize_glm
from .losses import Huber, checked_loss
from .problem import LossTerms
from .quadratic_form import factorize

_ALPHAS = tuple(10.0 ** np.arange(-5.0, 1.0, 0.75))  # ridges to choose from, for standardized inputs
_LINEAR_WEIGHTS = (1.0, 10.0, 100.0)  # as `_ALPHAS`
_SELECTION_STEPS = 12  # Newton steps per ridge, from the solution of the one before (budget)
_LARGEST_OUTPUT = 30.0  # of a sample left out, relative to all outputs: the step is no approximation that far


@dataclass(frozen=True)
class RidgeGrid:
    """What is to be selected: "auto" or a given ridge."""

    alpha: float | str

    @property
    def alphas(self):
        """Ridges to choose from, the largest first."""
        return sorted(_ALPHAS, reverse=True) if self.alpha == "auto" else [float(self.alpha)]

    @property
    def linear_weights(self):
        """Linear weights to choose from; 1 for a given ridge."""
        return list(_LINEAR_WEIGHTS) if self.alpha == "auto" else [1.0]


@dataclass(frozen=True)
class ConvexLossFit:
    """A fitted network: hidden weights (k, d) for output weights `v`, side terms, ridge, steps and certificate."""

    problem: ConvexLossProblem
    W: np.ndarray
    v: np.ndarray
    form: np.ndarray
    coef: np.ndarray
    intercept: float
    history: list
    certificate: object


def selection_samples(n, rng):
    """Indices of the samples that select the ridge."""
    return np.arange(n) if n <= SOME_SAMPLES else rng.choice(n, SOME_SAMPLES, replace=False)


def select_ridge(samples, some, loss, terms, grid):
    """Terms with the ridge and linear weight of the least approximate leave-one-out loss, and left-out outputs.

    `samples` are Z (n, d), y (n,) and weights (n,) or None, and `some` the indices (m,) of those that select. Outputs
    (m,) are None if there is nothing to select.
    """
    if len(grid.alphas) * len(grid.linear_weights) == 1:
        return replace(terms, alpha=grid.alphas[0], linear_weight=grid.linear_weights[0]), None
    Z, y, weights = (None if one is None else one[some] for one in samples)
    weights = None if weights is None else weights / weights.mean()
    best, left_out = (np.inf, 0.0, 1.0), None
    for weight in grid.linear_weights if terms.fit_linear else [1.0]:
        problem, params = ConvexLossProblem(Z, y, loss, replace(terms, linear_weight=weight), weights), None
        for alpha in grid.alphas:
            params, _ = minimize_glm(problem.system(alpha), params, _SELECTION_STEPS)
            outputs = _left_out_outputs(problem.system(alpha), params)
            choice = (float(np.average(loss.value(outputs, y), weights=weights)), alpha, weight)
            if choice < best:
                best, left_out = choice, outputs
    return replace(terms, alpha=best[1], linear_weight=best[2]), left_out


def _left_out_outputs(system, params):
    """Outputs (n,) of samples by fits without them, each approximated by one Newton step."""
    Phi, n, loss, y = system.features, len(system.y), system.loss, system.y
    f = system.outputs(params)
    slope, weights = system.weights * loss.slope(f, y), system.weights * loss.curvature(f, y)
    hessian = (Phi * (weights / n)[:, None]).T @ Phi + np.diag(system.ridge)
    hessian[np.diag_indices_from(hessian)] += 1e-12 * np.trace(hessian) / len(hessian)
    factor = scipy.linalg.cholesky(hessian, lower=True)
    half = scipy.linalg.solve_triangular(factor, Phi.T, lower=True)
    leverage = np.einsum("ij,ij->j", half, half) / n
    share = np.minimum(leverage * weights, MAX_LEVERAGE)
    limit = _LARGEST_OUTPUT * max(1.0, float(np.abs(f).max()))
    return np.clip(f + leverage * slope / (1.0 - share), -limit, limit)


def fit_convex_loss(samples, loss, terms, options):
    """Minimize over all forms, factorize with d units of each sign, and certify; samples as of `select_ridge`."""
    problem, d = ConvexLossProblem(*samples[:2], loss, terms, samples[2]), samples[0].shape[1]
    form, history = problem.minimize()
    v = np.repeat([1.0, -1.0], d)
    W, _ = factorize(form, v)
    certificate = certify_convex_loss(problem, W, v, options, form)
    coef, intercept = problem.side_terms(form)
    return ConvexLossFit(problem, W, v, form, coef, intercept, history, certificate)


def fit_targets(samples, loss, terms, means):
    """The fit of a Poisson or Huber loss, outputs in units of y; `means` are the `RidgeGrid`, options and the rng.

    Huber losses are scaled to delta 1, with an intercept about the median: the ridge then has the same meaning.
    """
    Z, y, weights = samples
    loss, offset, unit = checked_loss(loss, y), 0.0, 1.0
    if loss.name == "poisson" and not y.any():
        raise ValueError(
            "all counts y are 0: the log of their mean has no finite optimum. Give samples with counts > 0."
        )
    if loss.name == "huber":
        offset, unit = float(np.median(y)) if terms.fit_intercept else 0.0, loss.delta
        loss, y = Huber(1.0), (y - offset) / unit
    grid, options, rng = means
    some = selection_samples(len(Z), rng)
    terms, _ = select_ridge((Z, y, weights), some, loss, terms, grid)
    fit = fit_convex_loss((Z, y, weights), loss, terms, options)
    numbers = {"form": unit * fit.form, "coef": unit * fit.coef, "intercept": unit * fit.intercept + offset}
    return replace(fit, W=np.sqrt(unit) * fit.W, **numbers)


def ridge_terms(fit_intercept, fit_linear):
    """Terms without ridge."""
    return LossTerms(fit_intercept=bool(fit_intercept), fit_linear=bool(fit_linear))
