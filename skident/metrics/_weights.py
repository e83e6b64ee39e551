"""Errors of recovered weight directions, up to sign and scale."""

from __future__ import annotations

from numbers import Real

import numpy as np
from sklearn.utils import check_array

from skident.budget.constants import BLOCK_ENTRIES

__all__ = ["assignment_error", "false_positive_rate", "recovery_rate"]


def _unit_rows(vectors, name, allow_empty=False):
    """The rows of `vectors` (k, D), scaled to norm 1."""
    rows = check_array(vectors, dtype=np.float64, input_name=name, ensure_min_samples=0 if allow_empty else 1)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    zero = np.flatnonzero(largest == 0)
    if zero.size:
        raise ValueError(
            f"{name} has {zero.size} zero rows out of {len(rows)}, the first is row {zero[0]}; a zero vector has no "
            "direction. Leave such rows out, and pass one vector per row."
        )
    rows = rows / largest
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _unit_pair(true_weights, others, name, allow_empty=False):
    true_weights = _unit_rows(true_weights, "true_weights")
    others = _unit_rows(others, name, allow_empty)
    if true_weights.shape[1] != others.shape[1]:
        raise ValueError(
            f"true_weights and {name} must have one vector per row and equally many columns, got shapes "
            f"{true_weights.shape} and {others.shape}; transpose the one that holds its vectors as columns."
        )
    return true_weights, others


def _nearest_distances(rows, others):
    """Distance of every unit row (k, D) to the nearest of +-others (n, D), as (k,); inf where `others` is empty.

    Inner products find the candidates; the distances are taken from differences, so tiny ones keep their digits.
    """
    distances = np.full(len(rows), np.inf)
    if len(others) == 0:
        return distances
    n_entries = others.size
    step = max(1, BLOCK_ENTRIES // n_entries)
    slack = 16 * rows.shape[1] * np.finfo(np.float64).eps  # bounds the rounding error of an inner product
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        cosines = block @ others.T
        nearness = np.abs(cosines)
        i, j = np.nonzero(nearness >= nearness.max(axis=1, keepdims=True) - slack)
        signs = np.where(cosines[i, j] < 0, -1.0, 1.0)
        exact = np.linalg.norm(block[i] - signs[:, None] * others[j], axis=1)
        np.minimum.at(distances, start + i, exact)
    return distances


def _check_radius(radius):
    if isinstance(radius, bool) or not isinstance(radius, Real) or not 0 <= radius < np.inf:
        raise ValueError(f"radius must be a finite number >= 0, got {radius!r}; the paper uses 0.05.")
    return radius


def recovery_rate(true_weights, found, radius=0.05):
    """Fraction of the true weights that were recovered, up to sign and scale.

    A true weight counts as recovered if, after scaling to norm 1, it lies within `radius` of plus or minus a recovered
    vector.

    Parameters
    ----------
    true_weights : array-like of shape (m, D)
        The true vectors as rows, of any scale.
    found : array-like of shape (n, D)
        The recovered vectors as rows, of any scale; may have no rows.
    radius : float, default=0.05
        Largest distance, on the unit sphere, at which a vector counts as recovered.

    Returns
    -------
    float
        In [0, 1]; 0 if `found` has no rows.

    Raises
    ------
    ValueError
        If the numbers of columns differ, a row is zero, an entry is not finite or `radius` is negative.

    References
    ----------
    .. [1] C. Fiedler, M. Fornasier, T. Klock, M. Rauchensteiner, "Stable Recovery of Entangled Weights", 2021,
       Section 4.1.

    Examples
    --------
    >>> from skident.metrics import recovery_rate
    >>> print(recovery_rate([[1.0, 0.0], [0.0, 1.0]], [[-2.0, 0.02]]))
    0.5
    """
    true_weights, found = _unit_pair(true_weights, found, "found", allow_empty=True)
    return float(np.mean(_nearest_distances(true_weights, found) <= _check_radius(radius)))


def false_positive_rate(true_weights, found, radius=0.05):
    """Fraction of the recovered vectors that are no true weight, up to sign and scale.

    A recovered vector is a false positive if, after scaling to norm 1, it is further than `radius` from plus and minus
    every true weight.

    Parameters
    ----------
    true_weights : array-like of shape (m, D)
        The true vectors as rows, of any scale.
    found : array-like of shape (n, D)
        The recovered vectors as rows, of any scale; may have no rows.
    radius : float, default=0.05
        Largest distance, on the unit sphere, at which a vector counts as a true weight.

    Returns
    -------
    float
        In [0, 1]; 0 if `found` has no rows, since nothing false was claimed.

    Raises
    ------
    ValueError
        If the numbers of columns differ, a row is zero, an entry is not finite or `radius` is negative.

    References
    ----------
    .. [1] C. Fiedler, M. Fornasier, T. Klock, M. Rauchensteiner, "Stable Recovery of Entangled Weights", 2021,
       Section 4.1.

    Examples
    --------
    >>> from skident.metrics import false_positive_rate
    >>> print(
    ...     false_positive_rate(
    ...         [[1.0, 0.0], [0.0, 1.0]], [[-2.0, 0.02], [0.0, 3.0], [1.0, 1.0], [0.0, -1.0]]
    ...     )
    ... )
    0.25
    """
    true_weights, found = _unit_pair(true_weights, found, "found", allow_empty=True)
    radius = _check_radius(radius)
    return float(np.mean(_nearest_distances(found, true_weights) > radius)) if len(found) else 0.0


def assignment_error(true_weights, assigned):
    """Worst distance of a vector assigned to a layer from that layer's true weights, up to sign and scale.

    The paper's E_1 (first layer) and E_L (last layer): the maximum over the assigned vectors of the minimum over the
    true ones of the distance, all scaled to norm 1. It does not check whether every true weight was hit; for that see
    :func:`recovery_rate`.

    Parameters
    ----------
    true_weights : array-like of shape (m_l, D)
        The layer's true entangled weights as rows, of any scale.
    assigned : array-like of shape (n, D)
        The vectors assigned to the layer as rows, of any scale; at least one.

    Returns
    -------
    float
        Between 0 and sqrt(2).

    Raises
    ------
    ValueError
        If the numbers of columns differ, an array has no rows, a row is zero or an entry is not finite.

    References
    ----------
    .. [1] C. Fiedler, M. Fornasier, T. Klock, M. Rauchensteiner, "Stable Recovery of Entangled Weights", 2021,
       Section 4.2.

    Examples
    --------
    >>> from skident.metrics import assignment_error
    >>> print(round(assignment_error([[1.0, 0.0], [0.0, 1.0]], [[-3.0, 0.0], [0.6, 0.8]]), 4))
    0.6325
    """
    true_weights, assigned = _unit_pair(true_weights, assigned, "assigned")
    return float(_nearest_distances(assigned, true_weights).max())
