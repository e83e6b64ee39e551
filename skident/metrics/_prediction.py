"""Relative errors of predictions."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_array

__all__ = ["relative_max_error", "relative_mse"]


def _error_and_truth(y_true, y_pred):
    """``y_true - y_pred`` and ``y_true``, both divided by the largest true magnitude, after the checks."""
    y_true, y_pred = (
        check_array(y, dtype=np.float64, ensure_2d=False, input_name=name)
        for y, name in ((y_true, "y_true"), (y_pred, "y_pred"))
    )
    y_true, y_pred = (y[:, None] if y.ndim == 1 else y for y in (y_true, y_pred))
    if y_true.shape != y_pred.shape:
        raise ValueError(
            f"y_true and y_pred must have the same shape, got {y_true.shape} and {y_pred.shape} (one-dimensional "
            "arrays are read as one column); compare outputs at the same inputs."
        )
    scale = np.abs(y_true).max()
    if scale == 0:
        raise ValueError("y_true is zero throughout, so a relative error is undefined; try an absolute error.")
    return (y_true - y_pred) / scale, y_true / scale


def relative_mse(y_true, y_pred):
    """Mean squared error, relative to the mean square of the true values.

    Parameters
    ----------
    y_true : array-like of shape (n,) or (n, m_L)
        True values.
    y_pred : array-like of shape (n,) or (n, m_L)
        Predicted values; ``(n,)`` and ``(n, 1)`` are the same.

    Returns
    -------
    float
        ``sum((y_pred - y_true) ** 2) / sum(y_true ** 2)``, over all entries.

    Raises
    ------
    ValueError
        If the shapes differ, an entry is not finite or `y_true` is zero throughout.

    References
    ----------
    .. [1] C. Fiedler, M. Fornasier, T. Klock, M. Rauchensteiner, "Stable Recovery of Entangled Weights", 2021,
       Section 4.3.

    Examples
    --------
    >>> from skident.metrics import relative_mse
    >>> print(relative_mse([3.0, 4.0], [3.0, 3.0]))
    0.04
    """
    error, truth = _error_and_truth(y_true, y_pred)
    return float(np.sum(error**2) / np.sum(truth**2))


def relative_max_error(y_true, y_pred):
    """Largest absolute error, relative to the largest absolute true value.

    The paper's E_infinity. With several outputs the maxima run over all entries, whichever output they belong to.

    Parameters
    ----------
    y_true : array-like of shape (n,) or (n, m_L)
        True values.
    y_pred : array-like of shape (n,) or (n, m_L)
        Predicted values; ``(n,)`` and ``(n, 1)`` are the same.

    Returns
    -------
    float
        ``max(|y_pred - y_true|) / max(|y_true|)``.

    Raises
    ------
    ValueError
        If the shapes differ, an entry is not finite or `y_true` is zero throughout.

    References
    ----------
    .. [1] C. Fiedler, M. Fornasier, T. Klock, M. Rauchensteiner, "Stable Recovery of Entangled Weights", 2021,
       Section 4.3.

    Examples
    --------
    >>> from skident.metrics import relative_max_error
    >>> print(relative_max_error([3.0, -4.0], [3.0, -3.0]))
    0.25
    """
    error, _ = _error_and_truth(y_true, y_pred)
    return float(np.abs(error).max())
