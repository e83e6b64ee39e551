"""Least squares fits with linear readouts and a direct part, or ridge regression instead."""

import copy
from operator import attrgetter

import numpy as np
import torch
from sklearn.linear_model import RidgeCV

from skident.base.linear_reference import linear_r2
from skident.budget.constants import FEWEST_FOLDED, FULL_STEPS, HALVING_STEPS, MAX_STARTS, NEAR_STEPS, RANGE_MARGIN
from skident.linalg import column_units
from skident.optim import best_of

from .problem import Attempt, Fit
from .scaling import clipped_inputs
from .solvers import set_trainable, warm_start_readout

# Relative to targets of variance one; tuned: selected from decades by cross-validation, R^2 falls by up to 0.4 on 200
# noisy samples of make_hierarchical_target, and on 18 tables rises by at most 0.007.
_L2 = 1e-2
_INITIAL_SIZE = 0.5  # factor of N(0, 1 / fan in): squares of squares of larger weights overflow on outliers
_INITIAL_RIDGE = 1e-2  # per sample, of the readouts at the start
_RIDGES = np.logspace(-2, 6, 17)  # half decades, relative to standardized targets: from no shrinkage to zero weights
_MARGIN_OF_RIDGE = 0.03  # relative squared error by which ridge regression must be better than hidden layers
_FACTOR_OF_LAYERS = 1.5  # by which hidden layers must be better than ridge regression if there are few samples


def fit_linear(problem, options, l2="auto", cross_validate=False):
    """Fit linear readouts and a direct part by least squares, initialized by ridge regression.

    The error of the `Fit` is the relative squared error in 3-fold cross-validation; for a given l2 it is estimated only
    if `cross_validate`, and for less than nine samples never. l2="auto" is 0.01. Best of two starts.
    """
    automatic = l2 == "auto"
    l2, error, squares = _L2 if automatic else float(l2), float("inf"), None
    validated = (automatic or cross_validate) and len(problem.x) >= FEWEST_FOLDED
    folds = np.array_split(np.arange(len(problem.x)), 3)  # samples come in random order
    if validated:
        squares = _cross_validated(problem, options, l2, folds)
        error = problem.relative_error(squares)
    if automatic and problem.start is None:
        ridge = ridge_error(problem, folds) if validated else 1.0
        if prefers_ridge(ridge, error, problem):
            return fit_ridge_only(problem, ridge)
    attempts = (_attempt(problem, options, l2) for _ in range(min(MAX_STARTS, options.n_starts)))
    best, losses = best_of(attempts, attrgetter("loss"))
    margin = 0.0 if validated and has_few_samples(problem) else RANGE_MARGIN
    held_out = {"error": error, "squares": squares}
    return Fit(best.module, best.initial, losses, best.history, best.converged, l2=l2, margin=margin, **held_out)


def _attempt(problem, options, l2):
    """One start; its loss is relative to the variance."""
    module = _start(problem)
    initial, samples = copy.deepcopy(module), problem.samples()
    result = options.minimize(module, samples, l2=l2, max_iter=options.n_steps(FULL_STEPS), patience=HALVING_STEPS)
    scale = len(problem.x) * problem.variance()
    history = [cost / scale for cost in result.history]
    return Attempt(module, initial, result.cost / scale, history, result.status != "max_iter")


def _start(problem):
    """Small random weights with readouts by ridge regression, or the given start; all but fixed layers trainable."""
    module = problem.build("linear")
    if problem.start is None:
        with torch.no_grad():
            for W in module.weights:
                W *= _INITIAL_SIZE
        warm_start_readout(module, problem.samples(), _INITIAL_RIDGE)
    set_trainable(module, fixed=problem.fixed)
    return module


def _cross_validated(problem, options, l2, folds):
    """Squared errors (n,) of samples left out, each fold from new starts; infinite if a fit overflows."""
    n, squares = len(problem.x), np.empty(len(problem.x))
    for fold in folds:
        part = problem.part(np.setdiff1d(np.arange(n), fold))
        module = _start(part)
        options.minimize(module, part.samples(), l2=l2, max_iter=options.n_steps(NEAR_STEPS), patience=HALVING_STEPS)
        x = clipped_inputs(problem.x[fold], part.x, 0.0 if has_few_samples(problem) else RANGE_MARGIN)
        with torch.no_grad():
            squares[fold] = ((module(x) - problem.y[fold]) ** 2).sum(dim=1).cpu()
    return np.nan_to_num(squares, nan=np.inf, posinf=np.inf)


def has_few_samples(problem):
    """Whether there are at most as many samples as weights, so that hidden layers can fit any target."""
    return len(problem.x) <= problem.architecture.n_weights


def ridge_error(problem, folds):
    """Relative squared error of ridge regression on held-out samples, mean over the targets."""
    return 1.0 - linear_r2(problem.x.cpu().numpy(), problem.y.cpu().numpy(), folds, problem.sample_weights)


def prefers_ridge(ridge, network, problem):
    """Whether ridge regression is preferred, from relative squared errors on held-out samples.

    With few samples, hidden layers must be better by a factor; else ridge regression must be ahead by a margin.
    """
    enough = min(ridge, 1.0) / _FACTOR_OF_LAYERS if has_few_samples(problem) else ridge + _MARGIN_OF_RIDGE
    return not network <= enough


@torch.no_grad()
def fit_ridge_only(problem, error):
    """The limit of infinite l2: hidden layers zero, and D from ridge regression; `error` is its held-out error.

    The ridge is that of the smallest leave-one-out error.
    """
    module = problem.build("linear")
    x, y, w = problem.x.cpu().numpy(), problem.y.cpu().numpy(), problem.sample_weights
    center, unit = column_units(y, weights=w)
    ridge = RidgeCV(_RIDGES).fit(x, (y - center) / unit, w)
    for p in module.parameters():
        p.zero_()
    coefficients = np.reshape(ridge.coef_, (y.shape[1], -1)).T * unit
    module.direct[: x.shape[1]] = torch.as_tensor(coefficients)
    module.offset.copy_(torch.as_tensor(center + np.reshape(ridge.intercept_, -1) * unit))
    loss = float(problem.mean((module(problem.x) - problem.y) ** 2).sum()) / problem.variance()
    return Fit(
        module, None, [loss], [loss], error=error, l2=float("inf"), margin=0.0 if has_few_samples(problem) else None
    )
