"""Class probabilities as logits, with the error that rounding leaves in them."""

from __future__ import annotations

import numpy as np

from ._errors import BlackBoxError

__all__ = ["logits_from_probabilities", "probabilities_from_logits"]

# A probability that a classifier computes as 1 - q is a multiple of the spacing of numbers in [1/2, 1).
_GRID = 2.0**-53
# Where such a probability is smaller, its logarithm is uncertain by more than 1e-9: too much to be read off.
_SMALLEST_ON_GRID = 2.0**-53 / 1e-9
_SMALLEST = 1e-290  # below, numbers lose digits
_SUM_TOLERANCE = 1e-4  # probabilities in single precision, a thousand classes
_ROUNDED_SUM = 1e-2  # farther from 1, they are no probabilities of exclusive classes


def logits_from_probabilities(P):
    """Logits in their standard form, bounded where probabilities are too near 0 or 1 to tell them.

    Parameters
    ----------
    P : ndarray of shape (n, K)
        Probabilities of K exclusive classes; with ``K = 1`` those of the second of two classes.

    Returns
    -------
    Z : ndarray of shape (n, K) or (n, 1)
        ``log p_k - mean_j log p_j``: of all logits with these probabilities the ones with zero mean, since the softmax
        determines them only up to a number common to all classes. With two classes the log-odds of the second.
    error : ndarray of shape (n,)
        Largest uncertainty of a row's logits, from the rounding of P alone; infinite where they were bounded.

    Raises
    ------
    BlackBoxError
        (a ValueError) If an entry lies outside [0, 1], or rows do not sum to 1.

    Notes
    -----
    A softmax gives small probabilities to full relative precision, so their logarithms are exact to rounding down to
    ``p = 1e-290``. A binary classifier that answers ``(1 - q, q)``, as scikit-learn's do, gives one of the two only to
    an absolute ``2^-54``: log-odds z are then uncertain by ``2^-54 e^z``, and z is bounded at
    ``log(1e-9 / 2^-53) = 16``. Such probabilities are recognised because they are multiples of ``2^-53``; others that
    small almost never are.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import logits_from_probabilities
    >>> Z, error = logits_from_probabilities(np.array([[0.25, 0.75]]))
    >>> print(round(float(np.exp(Z[0, 0])), 6))
    3.0
    """
    P = _checked(P)
    if P.shape[1] == 1:
        P = np.hstack([1.0 - P, P])
    on_grid = np.rint(P / _GRID) * _GRID == P
    if P.shape[1] > 2:
        on_grid &= P > 0  # a softmax that underflows, not a difference
    floor = np.where(on_grid, _SMALLEST_ON_GRID, _SMALLEST)
    with np.errstate(divide="ignore"):
        uncertain = np.where(on_grid, 0.5 * _GRID / P, 0.0)
    error = np.where(floor > P, np.inf, uncertain).max(axis=1)
    logs = np.log(np.maximum(P, floor))
    if P.shape[1] == 2:
        return (logs[:, 1] - logs[:, 0])[:, None], error
    return logs - logs.mean(axis=1, keepdims=True), error


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


def probability_error(Z, error, found):
    """Largest difference of the probabilities of two sets of logits, and where the first ones are lost.

    Parameters
    ----------
    Z, error : ndarray of shape (n, m) and (n,)
        From `logits_from_probabilities`.
    found : ndarray of shape (n, m)

    Returns
    -------
    error : float
        Where Z is bounded, differences below the bound (1e-7) do not count.
    lost : float
        Share of the rows whose logits are bounded.
    """
    bounded = np.isinf(error)
    gap = np.abs(probabilities_from_logits(Z) - probabilities_from_logits(found)).max(axis=1)
    gap = np.where(bounded, np.maximum(gap - 1.01 * _SMALLEST_ON_GRID, 0.0), gap)
    return float(gap.max(initial=0.0)), float(np.mean(bounded))


def _checked(P):
    low, high = float(P.min()), float(P.max())
    if low < 0.0 or high > 1.0 + _ROUNDED_SUM:
        raise BlackBoxError(
            f"response_method='predict_proba' expects probabilities, but answers range from {low:.3g} to {high:.3g}; "
            "use response_method='predict' for answers that are no probabilities."
        )
    sums = P.sum(axis=1)
    if P.shape[1] > 1 and np.abs(sums - 1.0).max() > _SUM_TOLERANCE:
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


# Uncertainties of logits up to which they serve to fit parameters, the better first.
_PRECISE = (1e-13, 1e-12, 1e-11, 1e-10)


def precise_half(error):
    """The precise rows: by the strictest standard that at least half of them meet, or else by the mildest.

    Parameters
    ----------
    error : ndarray of shape (n,)
        Uncertainty of every row's logits.

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    limits = [limit for limit in _PRECISE if 2 * np.count_nonzero(error <= limit) >= len(error)]
    return error <= (limits[0] if limits else _PRECISE[-1])
