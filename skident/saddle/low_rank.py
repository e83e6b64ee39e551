"""How low the rank of an escape direction is: ratios, numerical ranks, and what theory bounds them by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["LowRankMeasures", "low_rank_measures", "rank_ratio", "rank_theorem_bound"]

_RANK_TOLERANCE = 1e-2  # singular values below this share of the largest do not count as rank


@dataclass(frozen=True)
class LowRankMeasures:
    """What Theorem 3.1 and Proposition 3.4 bound, of L layers of weights.

    Attributes
    ----------
    layer_singular_values : list of L ndarrays
    rank_ratio : ndarray (L,)
        `rank_ratio` of every layer's weights.
    activation_rank_ratio, nonlinearity_ratio : ndarray (L - 1,)
        `rank_ratio` of the activations, and ``||relu(Z) - Z||^2 / ||Z||^2``, of every hidden layer.
    bottleneck_rank : int
        Smallest numerical rank of a hidden layer's activations (singular values above 1 % of the largest).
    log_rank_budget : tuple of two float
        ``sum_{l < L} log(||A_l||_F^2 / ||A_l||_op^2)``, the inputs included, and what it is at most,
        ``2 log(||X|| ||G|| / s)``.
    """

    layer_singular_values: list
    rank_ratio: np.ndarray
    activation_rank_ratio: np.ndarray
    nonlinearity_ratio: np.ndarray
    bottleneck_rank: int
    log_rank_budget: tuple


def rank_ratio(singular_values):
    """How much of a matrix is left without its first singular value.

    Parameters
    ----------
    singular_values : array-like of shape (k,)
        Descending.

    Returns
    -------
    float
        ``sum_{i >= 2} s_i^2 / sum_i s_i^2``: 0 for rank one, NaN for a matrix of zeros.

    Examples
    --------
    >>> from skident.saddle.low_rank import rank_ratio
    >>> print(rank_ratio([2.0, 1.0]))
    0.2
    """
    squares = np.asarray(singular_values, dtype=np.float64) ** 2
    return float(squares[1:].sum() / squares.sum()) if squares.sum() > 0 else float("nan")


def low_rank_measures(weights, X, G, escape_speed):
    """What Theorem 3.1 and Proposition 3.4 bound, measured.

    Parameters
    ----------
    weights : list of L ndarrays (m_{l-1}, m_l)
        Of norm one.
    X : ndarray (n, D)
    G : ndarray (n, k)
    escape_speed : float
        s, of these weights.

    Returns
    -------
    LowRankMeasures
    """
    spectra, nonlinear, A = [np.linalg.svd(X, compute_uv=False)], [], X
    for W in weights[:-1]:
        Z = A @ W
        A = np.maximum(Z, 0.0)
        spectra.append(np.linalg.svd(A, compute_uv=False))
        nonlinear.append(float(np.sum((A - Z) ** 2) / max(np.sum(Z**2), np.finfo(float).tiny)))
    used = sum(math.log(max(np.sum((s / s[0]) ** 2), 1.0)) for s in spectra if s[0] > 0)
    values = [np.linalg.svd(W, compute_uv=False) for W in weights]
    return LowRankMeasures(
        layer_singular_values=values,
        rank_ratio=np.array([rank_ratio(s) for s in values]),
        activation_rank_ratio=np.array([rank_ratio(s) for s in spectra[1:]]),
        nonlinearity_ratio=np.array(nonlinear),
        bottleneck_rank=min(int(np.sum(s > _RANK_TOLERANCE * s[0])) for s in spectra[1:]),
        log_rank_budget=(used, 2.0 * math.log(np.linalg.norm(X) * np.linalg.norm(G) / escape_speed)),
    )


def rank_theorem_bound(n_layers, product, escape_speed):
    """Theorem 3.1's bound ``8 c / (1 - c l^(-1/2)) l^(-1/2)`` for l = 1, ..., L; inf where it says nothing.

    Parameters
    ----------
    n_layers : int
    product : float
        ``||X||_F ||G||_F``.
    escape_speed : float
        Of an optimal escape direction.

    Returns
    -------
    ndarray (L,)
        inf where the bound is 1 or more, so for ``l <= 81 c^2`` with ``c = p sqrt(2 log p)``, ``p = product / speed``.

    Examples
    --------
    >>> from skident.saddle.low_rank import rank_theorem_bound
    >>> print(rank_theorem_bound(3, 1.0, 1.0 / 1.0001)[2].round(3))
    0.066
    """
    p = max(product / escape_speed, 1.0)
    c = p * math.sqrt(2.0 * math.log(p))
    root = np.sqrt(np.arange(1.0, n_layers + 1))
    bound = np.full(n_layers, np.inf)
    told = root > 9.0 * c
    bound[told] = 8.0 * c / (root[told] - c)
    return bound
