"""In which units classes are told best: every column's own, or these with a floor that all columns share."""

from __future__ import annotations

import numpy as np

from .kernel_reference import kernel_squared_errors

__all__ = ["scales_for_classes"]

_ROWS, _FEWEST_ROWS = 500, 30  # that are looked at
_MARGIN = 2.0  # standard errors


def scales_for_classes(X, labels, bound=3.0):
    """Standard deviations of the columns, or these with a floor, whichever a kernel tells the classes better with.

    Columns in the same unit, as pixels or counts, say by their variance how much they matter, and standardising lifts
    those that hardly vary; columns in different units must be standardised. The floor is the root of the mean variance
    of all columns.

    Parameters
    ----------
    X : ndarray of shape (n, D)
    labels : ndarray of int of shape (n,)
    bound : float, default=3
        Columns over their scales are clipped there.

    Returns
    -------
    ndarray of shape (D,)
        ``sqrt(var_j + mean_k var_k)`` where the squared leave-one-out errors of kernel ridge regression on the classes
        are lower with it by more than two standard errors, on at most 500 rows; else the standard deviations. One for
        columns that do not vary, where there are no others.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits, load_wine
    >>> from skident.base.column_scales import scales_for_classes
    >>> for load in (load_digits, load_wine):
    ...     X, y = load(return_X_y=True)
    ...     print(np.ptp(np.log10(scales_for_classes(X, y)[1:-1])).round(1))
    0.3
    2.1
    """
    center, own = X.mean(axis=0), X.std(axis=0)
    floor = float(np.sqrt(np.mean(own**2)))
    own, damped = np.where(own > 0, own, 1.0), np.hypot(own, floor)
    if floor == 0.0 or len(X) < _FEWEST_ROWS:
        return own
    some = np.linspace(0, len(X) - 1, min(len(X), _ROWS)).astype(int)
    targets = np.eye(int(labels.max()) + 1)[labels[some]]
    errors = []
    for scale in (own, damped):
        Z = np.clip((X[some] - center) / scale, -bound, bound)
        errors.append(kernel_squared_errors(Z, targets, standardize=False))
    gain = errors[0] - errors[1]
    return damped if gain.mean() > _MARGIN * gain.std() / np.sqrt(len(some)) else own
