"""Ridge regression instead of hidden layers when held-out samples do not support hidden layers."""

import numpy as np
import torch
from sklearn.linear_model import RidgeCV

from skident.base.linear_reference import linear_r2
from skident.linalg import column_units

from .problem import Fit

_RIDGES = np.logspace(-2, 6, 17)  # half decades, relative to standardized targets: from no shrinkage to zero weights
_MARGIN_OF_RIDGE = 0.03  # relative squared error by which ridge regression must be better than hidden layers
_FACTOR_OF_LAYERS = 1.5  # by which hidden layers must be better than ridge regression if there are few samples


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
