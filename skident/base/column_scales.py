"""Scales of input columns that separate classes best: standard deviations, with or without a common floor."""

import numpy as np

from skident.budget.constants import SCORE_ERRORS

from .kernel_reference import kernel_squared_errors

_MAX_SAMPLES = 300  # on which the scales are compared: an eigendecomposition of that order (budget)
_MIN_SAMPLES = 30  # below which errors are too uncertain to compare


def scales_for_classes(X, labels, weights=None, bound=3.0):
    """Standard deviations (D,) of the columns of X (n, D), or these with a floor if that separates the classes better.

    Columns in the same unit, such as pixels or counts, matter according to their variance, and standardizing amplifies
    those that hardly vary; columns in different units must be standardized. With the floor the scales are ``sqrt(var_j
    + mean_k var_k)``. It is used if it lowers the squared leave-one-out errors of kernel ridge regression on the
    classes by more than two standard errors. Columns over their scales are clipped at `bound` there. 1 for constant
    columns if there are no others. `weights` (n,) are those of the samples.
    """
    center = np.average(X, axis=0, weights=weights)
    own = np.sqrt(np.average((X - center) ** 2, axis=0, weights=weights))
    floor = float(np.sqrt(np.mean(own**2)))
    own, damped = np.where(own > 0, own, 1.0), np.hypot(own, floor)
    if floor == 0.0 or len(X) < _MIN_SAMPLES:
        return own
    some = np.linspace(0, len(X) - 1, min(len(X), _MAX_SAMPLES)).astype(int)
    targets = np.eye(int(labels.max()) + 1)[labels[some]]
    errors = []
    for scale in (own, damped):
        Z = np.clip((X[some] - center) / scale, -bound, bound)
        errors.append(kernel_squared_errors(Z, targets, None if weights is None else weights[some], standardize=False))
    gain = errors[0] - errors[1]
    return damped if gain.mean() > SCORE_ERRORS * gain.std() / np.sqrt(len(some)) else own
