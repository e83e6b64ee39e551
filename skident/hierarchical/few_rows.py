"""What is left where rows do not support hidden layers: the direct part alone, inputs held in the rows' range."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.linear_model import RidgeCV

from skident.base.linear_reference import linear_r2
from skident.linalg import column_units

from .problem import Fit

__all__ = ["fit_direct", "has_few_rows", "is_better", "ridge_error"]

_ALPHAS = np.logspace(-2, 6, 17)
_AHEAD = 0.03  # relative squared error by which ridge regression must be ahead of hidden layers
_CONVINCES = 1.5  # factor by which hidden layers must be ahead of ridge regression where rows are few


def has_few_rows(problem):
    """Whether there are not more rows than weights, so that hidden layers explain any target.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    bool
    """
    return len(problem.x) <= problem.architecture.n_weights


def ridge_error(problem, folds):
    """Relative squared error of ridge regression on held-out rows.

    Parameters
    ----------
    problem : Problem
    folds : list of ndarray of int

    Returns
    -------
    float
        The mean over the targets.
    """
    return 1.0 - linear_r2(problem.x.cpu().numpy(), problem.y.cpu().numpy(), folds)


def is_better(ridge, network, problem):
    """Whether held-out rows speak for ridge regression; where rows are few, hidden layers have to convince.

    Parameters
    ----------
    ridge, network : float
        Relative squared errors on held-out rows.
    problem : Problem

    Returns
    -------
    bool
    """
    enough = min(ridge, 1.0) / _CONVINCES if has_few_rows(problem) else ridge + _AHEAD
    return not network <= enough


@torch.no_grad()
def fit_direct(problem, error):
    """The limit of infinite l2: hidden layers at zero, and in D ridge regression.

    Its ridge is the largest whose leave-one-out error is within one standard error of the smallest.

    Parameters
    ----------
    problem : Problem
    error : float
        Relative squared error on held-out rows.

    Returns
    -------
    Fit
        With ``l2 = inf``.
    """
    module = problem.build("linear")
    x, y = problem.x.cpu().numpy(), problem.y.cpu().numpy()
    center, unit = column_units(y)
    ridge = RidgeCV([_alpha(x, (y - center) / unit)]).fit(x, (y - center) / unit)
    for p in module.parameters():
        p.zero_()
    coefficients = np.reshape(ridge.coef_, (y.shape[1], -1)).T * unit
    module.direct[: x.shape[1]] = torch.as_tensor(coefficients)
    module.offset.copy_(torch.as_tensor(center + np.reshape(ridge.intercept_, -1) * unit))
    loss = float(((module(problem.x) - problem.y) ** 2).sum() / ((problem.y - problem.y.mean(dim=0)) ** 2).sum())
    return Fit(
        module, None, [loss], [loss], error=error, l2=float("inf"), margin=0.0 if has_few_rows(problem) else None
    )


def _alpha(x, y):
    """By leave-one-out, with one standard error of the difference to the best."""
    errors = RidgeCV(_ALPHAS, store_cv_results=True).fit(x, y).cv_results_.reshape(len(x), y.shape[1], -1).mean(axis=1)
    more = errors - errors[:, [errors.mean(axis=0).argmin()]]
    allowed = more.std(axis=0, ddof=1) / np.sqrt(len(x))
    return _ALPHAS[np.flatnonzero(more.mean(axis=0) <= allowed)[-1]]
