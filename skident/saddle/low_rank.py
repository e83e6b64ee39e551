"""Rank of an escape direction: rank ratios, numerical ranks, and their theoretical bounds."""

import math
from dataclasses import dataclass

import numpy as np

from skident.linalg import svd

_RANK_TOLERANCE = 1e-2  # singular values below this share of the largest do not count as rank


@dataclass(frozen=True)
class LowRankMeasures:
    """The quantities that Theorem 3.1 and Proposition 3.4 bound, for L layers of weights."""

    layer_singular_values: list  # L arrays
    rank_ratio: np.ndarray  # (L,), of the weights
    activation_rank_ratio: np.ndarray  # (L - 1,), of the hidden activations
    nonlinearity_ratio: np.ndarray  # (L - 1,), ||relu(Z) - Z||^2 / ||Z||^2
    bottleneck_rank: int  # smallest numerical rank of hidden activations
    # sum_{l < L} log(||A_l||_F^2 / ||A_l||_op^2), inputs included, and its bound 2 log(||X|| ||G|| / s)
    log_rank_budget: tuple


def rank_ratio(singular_values):
    """``sum_{i >= 2} s_i^2 / sum_i s_i^2`` of descending singular values: 0 for rank one, NaN for zeros."""
    squares = np.asarray(singular_values, dtype=np.float64) ** 2
    return float(squares[1:].sum() / squares.sum()) if squares.sum() > 0 else float("nan")


def low_rank_measures(weights, X, G, escape_speed):
    """`LowRankMeasures` of an escape direction of speed s with layers of norm one."""
    spectra, nonlinear, A = [svd(X, compute_uv=False)], [], X
    for W in weights[:-1]:
        Z = A @ W
        A = np.maximum(Z, 0.0)
        spectra.append(svd(A, compute_uv=False))
        nonlinear.append(float(np.sum((A - Z) ** 2) / max(np.sum(Z**2), np.finfo(float).tiny)))
    used = sum(math.log(max(np.sum((s / s[0]) ** 2), 1.0)) for s in spectra if s[0] > 0)
    values = [svd(W, compute_uv=False) for W in weights]
    return LowRankMeasures(
        layer_singular_values=values,
        rank_ratio=np.array([rank_ratio(s) for s in values]),
        activation_rank_ratio=np.array([rank_ratio(s) for s in spectra[1:]]),
        nonlinearity_ratio=np.array(nonlinear),
        bottleneck_rank=min(int(np.sum(s > _RANK_TOLERANCE * s[0])) for s in spectra[1:]),
        log_rank_budget=(used, 2.0 * math.log(np.linalg.norm(X) * np.linalg.norm(G) / escape_speed)),
    )


def rank_theorem_bound(n_layers, product, escape_speed):
    """Theorem 3.1's bound ``8 c / (1 - c l^(-1/2)) l^(-1/2)`` for l = 1, ..., L, with ``c = p sqrt(2 log p)``.

    ``p = ||X||_F ||G||_F / s``; inf if the bound is vacuous (1 or more), so for ``l <= 81 c^2``.
    """
    p = max(product / escape_speed, 1.0)
    c = p * math.sqrt(2.0 * math.log(p))
    root = np.sqrt(np.arange(1.0, n_layers + 1))
    bound = np.full(n_layers, np.inf)
    told = root > 9.0 * c
    bound[told] = 8.0 * c / (root[told] - c)
    return bound


def near_rank_one_bound(X, G, escape_speed):
    """Proposition 3.3's bound ``8 |G| e / (s - |G| e)`` for inputs X (n, D) within e of rank one; inf if vacuous.

    e is the Frobenius distance to ``v u^T`` with v >= 0, from the main singular vector of X.
    """
    v = svd(X, full_matrices=False)[0][:, 0]
    v = np.maximum(v * np.sign(v.sum()), 0.0)
    v /= max(np.linalg.norm(v), np.finfo(float).tiny)
    lost = np.linalg.norm(G) * np.linalg.norm(X - np.outer(v, v @ X))
    return 8.0 * lost / (escape_speed - lost) if 9.0 * lost < escape_speed else np.inf
