"""Whether a quadratic network is the right model for a table, by what other models reach on rows left out."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skident.base.kernel_reference import kernel_squared_errors

from .ridge import is_clear, linear_alone

__all__ = ["HeldOutScores", "held_out_scores", "linear_score", "warn_of_class", "warn_of_rounded_targets"]

_KERNEL_ROWS, _FEWEST_ROWS = 500, 30  # that a kernel is asked about
_CONSTANT = 1e-13  # standard deviation of y relative to its mean: a few hundred roundings (2^-53), mostly noise
_BEHIND_LINEAR, _BEHIND_KERNEL, _MARGIN = 0.03, 0.02, 2.0  # R^2, R^2 and standard errors


@dataclass(frozen=True)
class HeldOutScores:
    """R^2 on rows left out one by one; NaN where not known.

    Attributes
    ----------
    quadratic, linear : float
        With the ridge as chosen, of the quadratic network; with its best ridge, of a linear model.
    kernel : float
        Of kernel ridge regression, on at most 500 of the rows, where it is clearly better: by .02 of the variance and
        two standard errors.
    """

    quadratic: float = np.nan
    linear: float = np.nan
    kernel: float = np.nan


def held_out_scores(X, y, choice):
    """What a quadratic network, a linear model and a smooth function reach on rows left out.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    choice : RidgeChoice

    Returns
    -------
    HeldOutScores
    """
    X, y = X[choice.rows], y[choice.rows]
    variance = float(np.mean((y - y.mean()) ** 2))
    if variance == 0.0 or len(y) < 3:
        return HeldOutScores()
    quadratic, linear = (1.0 - float(np.mean(s)) / variance for s in (choice.squares, choice.linear_squares))
    if choice.alpha == 0.0 or len(y) < _FEWEST_ROWS:
        return HeldOutScores(quadratic, linear)
    some = np.linspace(0, len(y) - 1, min(len(y), _KERNEL_ROWS)).astype(int)
    squares, kernel = choice.squares[some], kernel_squared_errors(X[some], y[some])
    gain = float(np.mean(squares - kernel)) / variance
    better = gain > _BEHIND_KERNEL and is_clear(squares, kernel, _MARGIN)
    return HeldOutScores(quadratic, linear, 1.0 - float(np.mean(kernel)) / variance if better else np.nan)


def linear_score(problem):
    """R^2 of a linear model on rows left out, its ridge the best one.

    Parameters
    ----------
    problem : QuadraticProblem
        Columns of X should have comparable units.

    Returns
    -------
    float
        NaN for fewer than three rows, or targets that do not vary.
    """
    variance = float(np.mean((problem.y - problem.y.mean()) ** 2))
    if variance == 0.0 or problem.n < 3:
        return np.nan
    return 1.0 - float(np.mean(linear_alone(problem)[0])) / variance


def warn_of_class(scores, in_sample, name):
    """Say where another class of functions is better.

    Parameters
    ----------
    scores : HeldOutScores
    in_sample : float
        R^2 of the network on the rows that it was fitted to.
    name : str
        Of the estimator.

    Warns
    -----
    ConvergenceWarning
        If a linear model is better on rows left out than the network on its own, by more than .03.
    UserWarning
        If kernel ridge regression is clearly better.
    """
    # Where the ridge was chosen, a linear model that is not clearly better than the mean has been turned down.
    if in_sample < np.fmin(scores.linear, scores.quadratic) - _BEHIND_LINEAR:
        warnings.warn(
            f"{name}: a linear model is better for these data: R^2 on rows left out is {scores.linear:.3f}, and "
            f"{in_sample:.3f} of the network even on its own rows. Lower alpha, or allow linear terms and both signs.",
            ConvergenceWarning,
            stacklevel=3,
        )
    elif not np.isnan(scores.kernel):
        warnings.warn(
            f"{name}: a function of second degree seems too little for these data: R^2 on rows left out is about "
            f"{scores.quadratic:.3f}, and that of kernel ridge regression {scores.kernel:.3f}. Take a larger class, as "
            "HierarchicalQuadraticNet.",
            UserWarning,
            stacklevel=3,
        )


def warn_of_rounded_targets(y, name):
    """Warn of targets that are constant except for rounding.

    Parameters
    ----------
    y : ndarray of shape (n,)
    name : str
        Of the estimator.

    Warns
    -----
    UserWarning
        If the standard deviation of y is below 1e-13 of its mean and not 0.
    """
    mean = float(y.mean())
    spread = float(np.std(y - mean))
    if np.ptp(y) > 0 and spread <= _CONSTANT * abs(mean):
        warnings.warn(
            f"{name}: y is constant up to rounding: its standard deviation is {spread:.3g} at a mean of {mean:.6g}, "
            f"where float64 values are {np.spacing(abs(mean)):.3g} apart. The fit describes these roundings; the "
            "certificate holds for y as stored. Subtract the offset where y is computed, before it is rounded, and fit "
            "the difference.",
            UserWarning,
            stacklevel=3,
        )
