"""Held-out scores of a quadratic network beside other models, and warnings if these are better."""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skident.base.better_models import BetterModel, better_model
from skident.budget.constants import CONSTANT, WORSE_THAN_LINEAR

from .ridge_selection import linear_errors


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
