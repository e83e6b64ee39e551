"""Class probabilities as logits, with a bound of the error that rounding leaves in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._accuracy import Precision
from ._errors import BlackBoxError

__all__ = ["logits_from_probabilities", "precise_half", "probabilities_from_logits", "probability_error"]

_SOFTMAX_ULPS = 4.0  # roundings of ``2 + |log p|`` by a softmax and a logarithm
_GRID_ULPS = 4.0  # error of a probability computed as 1 - q, in spacings: the rounding of q and of its computation
_SUM_TOL = 1e-4  # rounding of the sum of a thousand probabilities in single precision
_MAX_SUM_ERROR = 1e-2  # of rounded probabilities; sums farther from 1 are not of exclusive classes


@dataclass(frozen=True)
class _Digits:
    """Rounding of probabilities: relative spacing, absolute grid, smallest one used on the grid and off it.

    A probability that a classifier computes as 1 - q is a multiple of the spacing of numbers in [1/2, 1), the grid.
    """

    unit: float
    grid: float
    smallest_on_grid: float
    smallest: float


# Smaller probabilities on the grid have logarithms with an error above 4e-9 in double precision, 0.04 in single.
_DOUBLE = _Digits(2.0**-52, 2.0**-53, 2.0**-53 / 1e-9, 1e-290)
# The same in single precision.
_SINGLE = _Digits(2.0**-23, 2.0**-24, 2.0**-24 / 1e-2, 1e-37)


def _digits_of(precision):
    """Rounding of probabilities in a number format; double precision for None."""
    precision = Precision() if precision is None else precision
    if precision.kind == "decimals":
        step = 10.0**-precision.decimals
        return _Digits(2.0**-52, step / _GRID_ULPS, step, step)
    if precision.kind == "digits":
        return _Digits(precision.eps, 0.1 * precision.eps, precision.eps, _DOUBLE.smallest)
    return _SINGLE if precision.is_coarse_binary else _DOUBLE


def logits_from_probabilities(P, precision=None):
    """Logits of class probabilities in their standard form, bounded where probabilities are too near 0 or 1.

    Parameters
    ----------
    P : ndarray of shape (n, K)
        Probabilities of K exclusive classes; with ``K = 1`` those of the second of two classes.
    precision : Precision, default=None
        Number format of P; double precision by default.

    Returns
    -------
    Z : ndarray of shape (n, K) or (n, 1)
        ``log p_k - mean_j log p_j``, the logits with zero mean: the softmax determines logits only up to a number
        common to all classes. With two classes the log-odds of the second.
    error : ndarray of shape (n,)
        Bound of the largest error of a row's logits, from the rounding of P and of its softmax; infinite if they were
        bounded.

    Notes
    -----
    Let eps be the relative spacing of P's format. A softmax computes small probabilities to full relative precision:
    their logarithms have an error of ``4 eps (2 + |log p|)``, log-odds z of ``4 eps (2 + |z|)``, down to ``p = 1e-290``
    (1e-37 in single precision). A binary classifier that returns ``(1 - q, q)``, as those of scikit-learn do, gives one
    of the two only to an absolute ``eps / 4`` and the error of q. Its log-odds lose up to ``2 eps / (1 - q)`` more, and
    are bounded at ``log(1e-9 / 2^-53) = 16`` (12 in single precision). Such probabilities are recognized as multiples
    of ``eps / 2``; others that small almost never are. Probabilities rounded to k decimals have a relative error of
    ``10^-k / p``.

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
    logs, lost = np.log(P), np.where(on_grid, _GRID_ULPS * digits.grid / P, 0.0)
    Z = (logs[:, 1] - logs[:, 0])[:, None] if P.shape[1] == 2 else logs - logs.mean(axis=1, keepdims=True)
    size = np.abs(Z if P.shape[1] == 2 else logs)
    error = _SOFTMAX_ULPS * digits.unit * (2.0 + size.max(axis=1)) + lost.max(axis=1)
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
    """Largest difference between the probabilities of two sets of logits.

    Parameters
    ----------
    Z, error : ndarray of shape (n, m) and (n,)
        From `logits_from_probabilities`.
    found : ndarray of shape (n, m)
        The other logits.
    precision : Precision, default=None
        See `logits_from_probabilities`.

    Returns
    -------
    error : float
        If Z is bounded, differences below the bound (1e-7 in double precision) count as 0.
    lost : float
        Share of the rows whose logits are bounded.
    """
    bounded = np.isinf(error)
    gap = np.abs(probabilities_from_logits(Z) - probabilities_from_logits(found)).max(axis=1)
    gap = np.where(bounded, np.maximum(gap - 1.01 * _digits_of(precision).smallest_on_grid, 0.0), gap)
    return float(gap.max(initial=0.0)), float(np.mean(bounded))


def _checked(P, digits):
    """Probabilities (n, K), at most 1; BlackBoxError if they lie outside [0, 1] or rows do not sum to 1."""
    tolerance = max(_SUM_TOL, 0.5 * _GRID_ULPS * P.shape[1] * digits.grid)
    low, high = float(P.min()), float(P.max())
    if low < 0.0 or high > 1.0 + max(tolerance, _MAX_SUM_ERROR):
        raise BlackBoxError(
            f"response_method='predict_proba' expects probabilities, but outputs range from {low:.3g} to {high:.3g}; "
            "use response_method='predict' for outputs that are not probabilities."
        )
    sums = P.sum(axis=1)
    if P.shape[1] > 1 and np.abs(sums - 1.0).max() > tolerance:
        worst = sums[np.argmax(np.abs(sums - 1.0))]
        several = (
            "labels that do not exclude each other (multilabel) are not supported; identify one label at a time, with "
            "a callable that returns (n,) probabilities."
        )
        rounded = "they are rounded too coarsely, or not normalized; request more digits, or divide them by their sum."
        raise BlackBoxError(
            f"the probabilities of the {P.shape[1]} classes sum to {worst:.6g} instead of 1: "
            f"off by {worst - 1.0:+.1e}, {rounded if abs(worst - 1.0) < _MAX_SUM_ERROR else several}"
        )
    return np.minimum(P, 1.0)


# Errors of logits in ulps up to which they are used in a fit, the strictest first: 8e-13 to 8e-10 in double precision.
_PRECISE_ULPS = (3.6e3, 3.6e4, 3.6e5, 3.6e6)


def precise_half(error, precision=None):
    """Which rows (n,) have precise logits: by the strictest standard that half of them meet, else by the mildest."""
    digits = _digits_of(precision)
    decimals = precision is not None and precision.kind == "decimals"
    unit = 2.0 * digits.smallest / _PRECISE_ULPS[0] if decimals else digits.unit
    limits = [k * unit for k in _PRECISE_ULPS if 2 * np.count_nonzero(error <= k * unit) >= len(error)]
    return error <= (limits[0] if limits else _PRECISE_ULPS[-1] * unit)
