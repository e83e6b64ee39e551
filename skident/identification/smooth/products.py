"""Products of the weights that second-layer units give to free first-layer units, from derivatives by these units."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from skident.linalg import lapack, svd

from .derivatives import curvature, square_free

__all__ = ["LEAST", "Products", "clear_gaps", "scaled_rows"]

LEAST = 1e-5  # singular value over the largest from which it counts
_LARGEST = 20.0  # curvature of a first-layer unit; larger ones, where units are too many, hide all other products
_CURVATURE_STEPS = 4  # of curvatures for which the products have the least rank (budget); each squares their error


def clear_gaps(s):
    """Ranks (n,) at gaps between descending singular values, the clearest first, and ratios (n,) of their neighbors."""
    s = np.append(s, 0.0) / max(s[0], np.finfo(float).tiny)
    gaps = np.where(s[:-1] > LEAST, s[1:] / np.maximum(s[:-1], np.finfo(float).tiny), 1.0)
    order = np.argsort(gaps, kind="stable")
    return 1 + order, gaps[order]


def _deficient_rank(s):
    """The rank at the clearest gap that leaves null vectors."""
    ranks = clear_gaps(s)[0]
    return int(ranks[ranks < len(s)][0])


def scaled_rows(C, rounding=0.0, floor=1.0):
    """Rows of unit norm; those that are rounding by more than `floor` are shorter."""
    norms = np.maximum(np.linalg.norm(C, axis=1), rounding / floor)
    return C / np.maximum(norms, np.finfo(float).tiny)[:, None]


class Products:
    """Products of `order` weights, the last ones to the units `beside`: sets of k free units, each without repetition.

    If `twice`, also those with one entry squared. Derivatives are then
    ``T_iiR = sum_k c_k W_ik^2 W_Rk + kappa_i T_iR``, with the curvature ``kappa = g'' / g'`` of the free unit i.
    """

    def __init__(self, n_free, order, twice=False, beside=()):
        k, own = n_free, order - len(beside)
        self.beside, self.sets = tuple(beside), list(combinations(range(k), own))
        self.doubled = []
        if twice and own > 1:
            self.doubled = [(i, R) for i in range(k) for R in combinations(range(k), own - 2) if i not in R]
        lower = [tuple(sorted((i, *R))) for i, R in self.doubled]
        self.lower = list(dict.fromkeys(lower))
        self._at = np.array([self.lower.index(S) for S in lower], dtype=int)
        self._unit = np.array([i for i, _ in self.doubled], dtype=int)
        self.indices = np.array([*self.sets, *((i, i, *R) for i, R in self.doubled)], dtype=int).reshape(-1, own)

    def __len__(self):
        return len(self.indices)

    @property
    def stencils(self):
        """Those of the products, then the lower derivatives of the doubled ones."""
        products = [square_free((*S, *self.beside)) for S in self.sets]
        products += [curvature(i, (*R, *self.beside)) for i, R in self.doubled]
        return products + [square_free((*S, *self.beside)) for S in self.lower]

    def of(self, V):
        """Products (n, d) of the free units' weights V (n, k)."""
        return np.prod(V[:, self.indices], axis=2)

    def values(self, T, curvatures):
        """Sums of products (..., d) in derivatives T (..., s) by `stencils`, given curvatures (k,)."""
        d, n = len(self), len(self.sets)
        if not self.doubled:
            return T[..., :d]
        bent = curvatures[self._unit] * T[..., d:][..., self._at]
        return np.concatenate([T[..., :n], T[..., n:d] - bent], axis=-1)

    def curvatures(self, T, k):
        """Curvatures (k,) of the free units from derivatives T (..., s) at many places; None if too few rows.

        Together the products and the lower derivatives have the rank of both; null vectors are linear in the
        curvatures. Then those for which the products have the least rank.
        """
        d, n = len(self), len(self.sets)
        M = scaled_rows(T[..., : d + len(self.lower)].reshape(-1, d + len(self.lower)))
        if len(M) <= len(self.lower):
            return None
        _, s, Vt = svd(M, full_matrices=True)
        N, low = Vt[_deficient_rank(s) :].T, lapack.qr(M[:, d:])[1]
        A = np.zeros((len(self.lower), N.shape[1], k))
        for a, (at, i) in enumerate(zip(self._at, self._unit, strict=True)):
            A[at, :, i] += N[n + a]
        A, b = np.einsum("rl,lvi->rvi", low, A), -low @ N[d:]
        kappa = lapack.lstsq(A.reshape(-1, k), b.ravel(), rcond=None)[0]
        for _ in range(_CURVATURE_STEPS):
            C = self.values(M, kappa)
            U, s, Vt = svd(C, full_matrices=True)
            rank = _deficient_rank(s)
            left, null = U[:, rank:], Vt[rank:].T
            by = np.zeros((left.shape[1], null.shape[1], k))
            for a, (at, i) in enumerate(zip(self._at, self._unit, strict=True)):
                by[:, :, i] += np.outer(left.T @ M[:, d + at], null[n + a])
            rest = left.T @ C @ null
            if not rest.size:
                break
            kappa = kappa + lapack.lstsq(by.reshape(-1, k), rest.ravel(), rcond=None)[0]
        return kappa if np.abs(kappa).max() < _LARGEST else np.zeros(k)
