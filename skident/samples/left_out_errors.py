"""Leave-one-out errors of a ReLU fit to first order, and a warning if another model or the mean is better."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning

from skident.base.better_models import better_model
from skident.budget.constants import RIDGE_OF_PRODUCTS
from skident.linalg import column_units
from skident.linalg.kernel_ridge import ridge_path

from .determined_units import jacobian_blocks
from .input_distribution import distinct_rows

__all__ = ["left_out_squares", "warn_of_better_models"]

_MAX_SAMPLES = 2000  # whose errors are computed (budget)
_MOST_PARAMETERS = 1000  # time: 2,000 P^2 products, 1 s at this size
_MAX_LEVERAGE = 0.99  # of a sample: beyond, its error without itself is not of first order


def left_out_squares(sample, model):
    """Squared leave-one-out errors (n,) of a least squares fit to a sample, to first order, in variances of y.

    Residuals over one minus their leverage, at most the range of y: predictions are clipped. A linear function that
    meets all rows has the errors of interpolations of least norm without them; NaN for other rows that are met.
    """
    Z, y, _ = sample.arrays(np.float64)
    if not model.n_units and model.n_parameters > _MAX_LEVERAGE * len(Z):
        X = np.asarray(sample.X, dtype=np.float64)
        center, scale = column_units(X)
        X = (X - center) / scale
        ridge = np.array([RIDGE_OF_PRODUCTS * max(float(np.sum(X * X)), np.finfo(float).tiny)])
        return np.minimum(ridge_path(X @ X.T, y[:, None], ridge, intercept=True)[0][0, :, 0] ** 2, np.ptp(y) ** 2)
    if model.n_units or model.u.any():
        J = np.vstack(list(jacobian_blocks(Z, Z @ model.V + model.beta > 0, model)))
    else:  # the mean of y, without a linear part
        J = np.ones((len(Z), 1))
    scale = np.linalg.norm(J, axis=0)
    J /= np.where(scale > 0, scale, 1.0)
    root = np.linalg.cholesky(J.T @ J + RIDGE_OF_PRODUCTS * np.eye(J.shape[1]))
    leverage = np.sum(solve_triangular(root, J.T, lower=True, check_finite=False) ** 2, axis=0)
    gaps = np.where(leverage < _MAX_LEVERAGE, 1.0 - leverage, np.nan)
    return np.minimum(((y - model(Z)) / gaps) ** 2, np.ptp(y) ** 2)


def warn_of_better_models(sample, learned, rng):
    """Warn if leave-one-out errors of a `LearnedReLU` are clearly above those of another model, or of the mean.

    Not if a warning named undetermined signs or starts, and not if rows repeat: then no row is left out.
    """
    model = learned.signed.fit.model
    warned = learned.exact or learned.n_flippable or not learned.settled
    if warned or sample.weights is not None or model.n_parameters > _MOST_PARAMETERS:
        return
    if distinct_rows(sample) < sample.n_rows:
        return
    part = sample.draw(_MAX_SAMPLES, rng)
    squares = left_out_squares(part, model) if part is sample else _squared_residuals(part, model)
    X, y = np.asarray(part.X, dtype=np.float64), (part.y - sample.y_center) / sample.y_scale
    if not np.isfinite(squares).any():
        return
    own, name = 1.0 - float(np.nanmean(squares) / np.var(y)), "TensorReLURegressor"
    better = better_model(X, y, squares)
    if better is not None:
        better.warn(name, stacklevel=3)
    elif own <= 0.0:
        warnings.warn(
            f"the fit is no better than the mean of y: R^2 of samples that are left out in turn is {own:.3f} for "
            f"{name}. The target is no sum of few ReLU units, or there are too few samples. Compare "
            "HierarchicalQuadraticNet().fit(X, y).",
            ConvergenceWarning,
            stacklevel=4,
        )


def _squared_residuals(part, model):
    """Squared residuals (n,) of a part of the samples: with many more samples than parameters, leverages are small."""
    Z, y, _ = part.arrays(np.float64)
    return (y - model(Z)) ** 2
