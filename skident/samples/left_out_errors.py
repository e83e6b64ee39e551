"""Leave-one-out errors of a ReLU fit to first order, and a warning if another model or the mean is better."""

import warnings

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial import cKDTree
from sklearn.exceptions import ConvergenceWarning

from skident.base.better_models import better_model
from skident.budget.constants import RIDGE_OF_PRODUCTS, SOME_SAMPLES

from .input_distribution import SAMPLING_ERRORS, distinct_rows
from .penalized_fit import MOST_UNITS, penalty_matrix
from .ridge_model import jacobian_blocks

_MOST_PARAMETERS = 1000  # time: 2,000 P^2 products, 1 s at this size
_MAX_LEVERAGE = 0.99  # of a sample: beyond, its error without itself is not of first order


def left_out_squares(sample, model, alpha=0.0):
    """Squared leave-one-out errors (n,) of a fit with penalty `alpha` to a sample, to first order, in variances of y.

    Weights enter the leverages, not the errors. Residuals over one minus their leverage, at most the range of y:
    predictions are clipped. NaN for rows that the fit meets without others to check it.
    """
    Z, y, w = sample.arrays(np.float64)
    penalty = 0.0
    if alpha:
        penalty = alpha * sample.total * penalty_matrix(sample, model.n_units, model.skip)
    J = np.vstack(list(jacobian_blocks(Z, model, w)))
    scale = np.linalg.norm(J, axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    J /= scale
    root = np.linalg.cholesky(J.T @ J + penalty / np.outer(scale, scale) + RIDGE_OF_PRODUCTS * np.eye(J.shape[1]))
    leverage = np.sum(solve_triangular(root, J.T, lower=True, check_finite=False) ** 2, axis=0)
    gaps = np.where(leverage < _MAX_LEVERAGE, 1.0 - leverage, np.nan)
    return np.minimum(((y - model(Z)) / gaps) ** 2, np.ptp(y) ** 2)


def warn_of_better_models(sample, learned, rng):
    """Warn if leave-one-out errors of a `LearnedReLU` are clearly above those of another model, or of the mean.

    Not if a warning named undetermined signs or starts, and not if rows repeat: then no row is left out.
    """
    model = learned.signed.fit.model
    warned = learned.exact or learned.n_flippable or not learned.settled
    if warned or model.n_parameters > _MOST_PARAMETERS:
        return
    if distinct_rows(sample) < sample.n_rows:
        return
    part = sample.draw(SOME_SAMPLES, rng)
    squares = left_out_squares(part, model, learned.signed.fit.alpha) if part is sample else _squares(part, model)
    X, y = np.asarray(part.X, dtype=np.float64), (part.y - sample.y_center) / sample.y_scale
    if not np.isfinite(squares).any():
        return
    w, known = np.ones(len(y)) if part.weights is None else part.weights, np.isfinite(squares)
    better = better_model(X, y, squares, weights=w)
    variance = np.average((y - np.average(y, weights=w)) ** 2, weights=w)
    own = 1.0 - float(np.average(squares[known], weights=w[known]) / variance)
    if better is not None:
        better.warn("TensorReLURegressor", stacklevel=3)
        return
    agreement = _agreement_of_neighbors(part, model) if own > 0.0 else 0.0
    if own <= 0.0:
        said, compared = "the fit is no better than the mean of y", ""
    elif agreement > 0.0:
        said = "the fit is an approximation: residuals of neighboring samples agree"
        compared = f", and the correlation of residuals with those of the nearest sample is {agreement:.2f}"
    elif learned.signed.fit.alpha and model.n_units >= MOST_UNITS:
        said, compared = f"the fit is an approximation: it takes {model.n_units} units, the most that were tried", ""
    else:
        return
    warnings.warn(
        f"{said}. R^2 of samples that are left out in turn is {own:.3f} for TensorReLURegressor{compared}. The target "
        "is no sum of few ReLU units, or there are too few samples. Compare HierarchicalQuadraticNet().fit(X, y), and "
        "sklearn.ensemble.HistGradientBoostingRegressor().fit(X, y).",
        ConvergenceWarning,
        stacklevel=4,
    )


def _agreement_of_neighbors(part, model):
    """Correlation of residuals with those of the nearest sample, if it is above what noise gives; else 0.

    Noise is independent; a function that the fit lacks is not.
    """
    scale = part.column_scale()
    U = np.asarray(part.X, dtype=np.float64) / np.where(scale > 0, scale, 1.0)
    Z, y, _ = part.arrays(np.float64)
    r = y - model(Z)
    products = r * r[cKDTree(U).query(U, k=2)[1][:, 1]]
    # Two samples that are nearest to each other give one product twice.
    errors = SAMPLING_ERRORS * np.sqrt(2.0 / len(r)) * products.std()
    return float(products.mean() / np.mean(r * r)) if products.mean() > errors else 0.0


def _squares(part, model):
    """Squared residuals (n,) of a part of the samples: with many more samples than parameters, leverages are small."""
    Z, y, _ = part.arrays(np.float64)
    return (y - model(Z)) ** 2
