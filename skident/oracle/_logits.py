"""Class probabilities as logits, with the error that rounding leaves in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._accuracy import Precision
from ._errors import BlackBoxError

__all__ = ["logits_from_probabilities", "precise_half", "probabilities_from_logits", "probability_error"]

_ARITHMETIC = 4.0  # roundings, relative, that a softmax and a logarithm make of ``2 + |log p|``
_ON_GRID = 4.0  # spacings that a probability computed as 1 - q may be off by: the rounding of q and of what led to it
_SUM_TOLERANCE = 1e-4  # probabilities in single precision, a thousand classes
_ROUNDED_SUM = 1e-2  # farther from 1, they are no probabilities of exclusive classes


@dataclass(frozen=True)
class _Digits:
    """How probabilities are rounded: relative unit, absolute grid, and the smallest that are read on it and off it.

    A probability that a classifier computes as 1 - q is a multiple of the spacing of numbers in [1/2, 1), the grid.
    """

    unit: float
    grid: float
    smallest_on_grid: float
    smallest: float


# On the grid, the logarithm of what is smaller is uncertain by 4e-9 and more in double precision, 0.04 in single.
_DOUBLE = _Digits(2.0**-52, 2.0**-53, 2.0**-53 / 1e-9, 1e-290)
_SINGLE = _Digits(2.0**-23, 2.0**-24, 2.0**-24 / 1e-2, 1e-37)


def _digits_of(precision):
    """The rounding of probabilities that come in such numbers."""
    precision = Precision() if precision is None else precision
    if precision.kind == "decimals":
        step = 10.0**-precision.decimals
        return _Digits(2.0**-52, step / _ON_GRID, step, step)
    return _SINGLE if precision.kind == "float32" else _DOUBLE


def logits_from_probabilities(P, precision=None):
    """Logits in their standard form, bounded where probabilities are too near 0 or 1 to tell them.

    Parameters
    ----------
    P : ndarray of shape (n, K)
        Probabilities of K exclusive classes; with ``K = 1`` those of the second of two classes.
    precision : Precision, default=None
        The numbers in which P comes; double precision by default.

    Returns
    -------
    Z : ndarray of shape (n, K) or (n, 1)
        ``log p_k - mean_j log p_j``: of all logits with these probabilities the ones with zero mean, since the softmax
        determines them only up to a number common to all classes. With two classes the log-odds of the second.
    error : ndarray of shape (n,)
        Bound of the largest error of a row's logits, from the rounding of P and of its softmax; infinite where they
        were bounded.

    Raises
    ------
    BlackBoxError
        (a ValueError) If an entry lies outside [0, 1], or rows do not sum to 1.

    Notes
    -----
    With eps the relative spacing of P's numbers, a softmax gives small probabilities to full relative precision: their
    logarithms are good to ``4 eps (2 + |log p|)``, log-odds z to ``4 eps (2 + |z|)``, down to ``p = 1e-290`` (1e-37 in
    single precision). A binary classifier that answers ``(1 - q, q)``, as scikit-learn's do, gives one of the two only
    to an absolute ``eps / 4`` and what led to q: log-odds then lose up to ``2 eps / (1 - q)`` more, and are bounded at
    ``log(1e-9 / 2^-53) = 16`` (12 in single precision). Such probabilities are recognised because they are multiples of
    ``eps / 2``; others that small almost never are. Rounded to k decimals, they are good to ``10^-k / p``.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import logits_from_probabilities
    >>> Z, error = logits_from_probabilities(np.array([[0.25, 0.75]]))
    >>> print(round(float(np.exp(Z[0, 0])), 6))
    3.0
    """
    digits = _digits_of(precision)
    P = _checked(P, digits)
    if P.shape[1] == 1:
        P = np.hstack([1.0 - P, P])
    on_grid = np.rint(P / digits.grid) * digits.grid == P
    if precision is not None and precision.kind == "decimals":
        on_grid[:] = True
    elif P.shape[1] > 2:
        on_grid &= P > 0  # a softmax that underflows, not a difference
    floor = np.where(on_grid, digits.smallest_on_grid, digits.smallest)
    bounded = floor > P
    P = np.maximum(P, floor)
    logs, lost = np.log(P), np.where(on_grid, _ON_GRID * digits.grid / P, 0.0)
    Z = (logs[:, 1] - logs[:, 0])[:, None] if P.shape[1] == 2 else logs - logs.mean(axis=1, keepdims=True)
    size = np.abs(Z if P.shape[1] == 2 else logs)
    error = _ARITHMETIC * digits.unit * (2.0 + size.max(axis=1)) + lost.max(axis=1)
    return Z, np.where(bounded.any(axis=1), np.inf, error)


def probabilities_from_logits(Z):
    """The softmax of logits, or of two classes the sigmoid of their log-odds.

    Parameters
    ----------
    Z : ndarray of shape (n, K) or (n, 1)

    Returns
    -------
    ndarray of shape (n, K) or (n, 2)
    """
    if Z.shape[1] == 1:
        Z = np.hstack([np.zeros_like(Z), Z])
    E = np.exp(Z - Z.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


def probability_error(Z, error, found, precision=None):
    """Largest difference of the probabilities of two sets of logits, and where the first ones are lost.

    Parameters
    ----------
    Z, error : ndarray of shape (n, m) and (n,)
        From `logits_from_probabilities`.
    found : ndarray of shape (n, m)
    precision : Precision, default=None
        See `logits_from_probabilities`.

    Returns
    -------
    error : float
        Where Z is bounded, differences below the bound (1e-7 in double precision) do not count.
    lost : float
        Share of the rows whose logits are bounded.
    """
    bounded = np.isinf(error)
    gap = np.abs(probabilities_from_logits(Z) - probabilities_from_logits(found)).max(axis=1)
    gap = np.where(bounded, np.maximum(gap - 1.01 * _digits_of(precision).smallest_on_grid, 0.0), gap)
    return float(gap.max(initial=0.0)), float(np.mean(bounded))


def _checked(P, digits):
    tolerance = max(_SUM_TOLERANCE, 0.5 * _ON_GRID * P.shape[1] * digits.grid)
    low, high = float(P.min()), float(P.max())
    if low < 0.0 or high > 1.0 + max(tolerance, _ROUNDED_SUM):
        raise BlackBoxError(
            f"response_method='predict_proba' expects probabilities, but answers range from {low:.3g} to {high:.3g}; "
            "use response_method='predict' for answers that are no probabilities."
        )
    sums = P.sum(axis=1)
    if P.shape[1] > 1 and np.abs(sums - 1.0).max() > tolerance:
        worst = sums[np.argmax(np.abs(sums - 1.0))]
        several = (
            "labels that do not exclude each other (multilabel) are not supported; identify one label at a time, with "
            "a callable that gives (n,) probabilities."
        )
        rounded = "they are rounded too coarsely, or not normalised; ask for more digits, or divide them by their sum."
        raise BlackBoxError(
            f"the probabilities of the {P.shape[1]} classes sum to {worst:.6g} instead of 1: "
            f"off by {worst - 1.0:+.1e}, {rounded if abs(worst - 1.0) < _ROUNDED_SUM else several}"
        )
    return np.minimum(P, 1.0)


# Uncertainties of logits, in units of rounding, up to which they serve to fit parameters, the better first: 8e-13 to
# 8e-10 in double precision.
_PRECISE = (3.6e3, 3.6e4, 3.6e5, 3.6e6)


def precise_half(error, precision=None):
    """The precise rows: by the strictest standard that at least half of them meet, or else by the mildest.

    Parameters
    ----------
    error : ndarray of shape (n,)
        Uncertainty of every row's logits.
    precision : Precision, default=None
        See `logits_from_probabilities`. Of rounded ones the strictest standard is ``2 10^-k``.

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    digits = _digits_of(precision)
    decimals = precision is not None and precision.kind == "decimals"
    unit = 2.0 * digits.smallest / _PRECISE[0] if decimals else digits.unit
    limits = [k * unit for k in _PRECISE if 2 * np.count_nonzero(error <= k * unit) >= len(error)]
    return error <= (limits[0] if limits else _PRECISE[-1] * unit)
