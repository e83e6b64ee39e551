"""Class probabilities as logits, with a bound of the error that rounding leaves in them."""

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import SUM_TOL

from ._accuracy import Precision
from ._errors import BlackBoxError

_SOFTMAX_ULPS = 4.0  # roundings of ``2 + |log p|`` by a softmax and a logarithm
_VALUE_ULPS = 2.0  # roundings of a probability itself: of the exponential, the sum and the quotient
_GRID_ULPS = 8.0  # error of a probability computed as 1 - q or 1/2 + r, in spacings: rounding of q and its computation
_MAX_SUM_ERROR = 1e-2  # of rounded probabilities; sums farther from 1 are not of exclusive classes


@dataclass(frozen=True)
class _Digits:
    """Rounding of probabilities: relative spacing, absolute grid, smallest one used on the grid and off it.

    A probability that a classifier computes as 1 - q, or as 1/2 + r with a negative r, has an absolute error. It is a
    multiple of the spacing of numbers in [1/4, 1/2), the grid.
    """

    unit: float
    grid: float
    smallest_on_grid: float
    smallest: float


# Smaller probabilities on the grid have logarithms with an error above 4e-9 in double precision, 0.04 in single.
_DOUBLE = _Digits(2.0**-52, 2.0**-54, 2.0**-53 / 1e-9, 1e-290)
# In single precision.
_SINGLE = _Digits(2.0**-23, 2.0**-25, 2.0**-24 / 1e-2, 1e-37)


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
    of the two only to an absolute ``eps / 4`` and the error of q. So does a sigmoid that is computed as ``1/2 + r``, as
    that of onnxruntime: errors up to 1.4 eps were measured. Log-odds lose up to ``2 eps / p`` more, and are bounded at
    ``log(1e-9 / 2^-53) = 16`` (12 in single precision). Such probabilities are recognized as multiples of ``eps / 4``;
    others that small almost never are. Probabilities rounded to k decimals have a relative error of ``10^-k / p``.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import logits_from_probabilities
    >>> Z, error = logits_from_probabilities(np.array([[0.25, 0.75]]))
    >>> print(round(float(np.exp(Z[0, 0])), 6))
    3.0
    """
    digits = _digits_of(precision)
    P = check_probabilities(P, precision)
    if P.shape[1] == 1:
        P = np.hstack([1.0 - P, P])
    on_grid = _on_grid(P, digits, precision)
    floor = np.where(on_grid, digits.smallest_on_grid, digits.smallest)
    bounded = floor > P
    P = np.maximum(P, floor)
    logs, lost = np.log(P), np.where(on_grid, _GRID_ULPS * digits.grid / P, 0.0)
    Z = (logs[:, 1] - logs[:, 0])[:, None] if P.shape[1] == 2 else logs - logs.mean(axis=1, keepdims=True)
    size = np.abs(Z if P.shape[1] == 2 else logs)
    error = _SOFTMAX_ULPS * digits.unit * (2.0 + size.max(axis=1)) + lost.max(axis=1)
    return Z, np.where(bounded.any(axis=1), np.inf, error)


def _on_grid(P, digits, precision):
    """Which probabilities (n, K) may have an absolute error: those on the grid."""
    if precision is not None and precision.kind == "decimals":
        return np.ones(P.shape, dtype=bool)
    on_grid = np.rint(P / digits.grid) * digits.grid == P
    return on_grid & (P > 0) if P.shape[1] > 2 else on_grid  # a softmax that underflows is not a difference


def probability_bounds(P, precision=None):
    """Bounds of the errors that the arithmetic of a sigmoid or softmax leaves in probabilities.

    Parameters
    ----------
    P : ndarray of shape (n, K)
    precision : Precision, default=None
        Number format of P; double precision by default.

    Returns
    -------
    ndarray of shape (n, K)
        Relative to p if the classifier computes small probabilities with full relative precision, else absolute: see
        `logits_from_probabilities`.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Precision, probability_bounds
    >>> P = np.array([[2.0**-20], [1e-6]])  # the first is a multiple of the spacing 2^-25
    >>> print([f"{bound:.1e}" for bound in probability_bounds(P, Precision("float32")).ravel()])
    ['2.4e-07', '6.8e-12']
    """
    digits = _digits_of(precision)
    P = np.maximum(P, 0.0)
    logs = -np.log(np.clip(P, np.finfo(float).tiny, 1.0)).max(axis=1, keepdims=True)
    relative = digits.unit * (_VALUE_ULPS + _SOFTMAX_ULPS * (1.0 - np.minimum(P, 1.0)) * logs)
    return relative * P + np.where(_on_grid(P, digits, precision), _GRID_ULPS * digits.grid, 0.0)


def are_probabilities(Y, error):
    """Whether outputs lie in [0, 1] and, if there are several, their rows sum to 1.

    Parameters
    ----------
    Y : ndarray of shape (n, K)
    error : float
        Of an output.

    Returns
    -------
    bool

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import are_probabilities
    >>> print(are_probabilities(np.array([[0.25, 0.75]]), 1e-8))
    True
    """
    sums = Y.sum(axis=1) if Y.shape[1] > 1 else np.ones(len(Y))
    inside = Y.min() >= -error and Y.max() <= 1.0 + error
    return bool(inside and np.abs(sums - 1.0).max() <= Y.shape[1] * error)


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


def check_probabilities(P, precision=None):
    """Probabilities clipped to [0, 1].

    Parameters
    ----------
    P : ndarray of shape (n, K)
    precision : Precision, default=None
        See `logits_from_probabilities`.

    Returns
    -------
    ndarray of shape (n, K)

    Raises
    ------
    BlackBoxError
        If they lie outside by more than the rounding of single precision, or rows do not sum to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import check_probabilities
    >>> print(check_probabilities(np.array([[-6e-8], [0.5]])).min())
    0.0
    """
    tolerance = max(SUM_TOL, 0.5 * _GRID_ULPS * P.shape[1] * _digits_of(precision).grid)
    low, high = float(P.min()), float(P.max())
    if low < -_GRID_ULPS * _SINGLE.grid or high > 1.0 + max(tolerance, _MAX_SUM_ERROR):
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
    return np.clip(P, 0.0, 1.0)


# Errors of logits in ulps up to which they are used in a fit, the strictest first: 8e-13 to 8e-10 in double precision.
_PRECISE_ULPS = (3.6e3, 3.6e4, 3.6e5, 3.6e6)


def precise_half(error, precision=None):
    """Which rows (n,) have precise logits: by the strictest standard that half of them meet, else by the mildest."""
    digits = _digits_of(precision)
    decimals = precision is not None and precision.kind == "decimals"
    unit = 2.0 * digits.smallest / _PRECISE_ULPS[0] if decimals else digits.unit
    limits = [k * unit for k in _PRECISE_ULPS if 2 * np.count_nonzero(error <= k * unit) >= len(error)]
    return error <= (limits[0] if limits else _PRECISE_ULPS[-1] * unit)
