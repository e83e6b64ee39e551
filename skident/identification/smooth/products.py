"""Products of the weights that second-layer units give to free first-layer units, from derivatives by these units."""

from itertools import combinations, combinations_with_replacement

import numpy as np

from skident.linalg import lapack
from skident.linalg.products import products_of_entries, vectors_of_products

from .derivatives import mixed

LEAST = 1e-5  # singular value over the largest from which it counts
LEAST_OF_LEVELS = 1e-8  # `LEAST` of derivatives by outputs, which are more accurate


def clear_gaps(s, least=LEAST):
    """Ranks (n,) at gaps between descending singular values, the clearest first, and ratios (n,) of their neighbors."""
    s = np.append(s, 0.0) / max(s[0], np.finfo(float).tiny)
    gaps = np.where(s[:-1] > least, s[1:] / np.maximum(s[:-1], np.finfo(float).tiny), 1.0)
    order = np.argsort(gaps, kind="stable")
    return 1 + order, gaps[order]


def scaled_rows(C, rounding=0.0, floor=1.0):
    """Rows of unit norm; those that are rounding by more than `floor` are shorter."""
    norms = np.maximum(np.linalg.norm(C, axis=1), rounding / floor)
    return C / np.maximum(norms, np.finfo(float).tiny)[:, None]


class Products:
    """Products of `order` weights, the last ones to the units `beside`: sets of k free units, each without repetition.

    With `repeated`, also those with one entry squared ("once"), of which derivatives are
    ``T_iiR = r_i^2 r_R (sum_k c_k W_ik^2 W_Rk) + kappa_i T_iR``, or with any entries repeated ("any"), if derivatives
    are by the outputs of the units. Of `n_outputs` outputs, products with the output weights count.
    """

    def __init__(self, n_free, order, repeated="", beside=(), n_outputs=1):
        k, own = n_free, order - len(beside)
        self.n_free, self.n_outputs, self.order, self.beside = k, n_outputs, own, tuple(beside)
        self.sets = list((combinations_with_replacement if repeated == "any" else combinations)(range(k), own))
        doubled = []
        if repeated == "once" and own > 1:
            doubled = [(i, R) for i in range(k) for R in combinations(range(k), own - 2) if i not in R]
        lower = [tuple(sorted((i, *R))) for i, R in doubled]
        self.lower = list(dict.fromkeys(lower))
        self._at = np.array([self.lower.index(S) for S in lower], dtype=int)
        self._unit = np.array([i for i, _ in doubled], dtype=int)
        self.indices = np.array([*self.sets, *((i, i, *R) for i, R in doubled)], dtype=int).reshape(-1, own)

    def __len__(self):
        return len(self.indices)

    @property
    def stencils(self):
        """Those of the products, then the lower derivatives of the doubled ones."""
        return [mixed((*S, *self.beside)) for S in [*map(tuple, self.indices), *self.lower]]

    def values(self, T, slopes=None, curvatures=None):
        """Sums of products (n, P, d) in derivatives T (n, P, s) by `stencils`.

        Outputs of the free units have `slopes` r and `curvatures` kappa, both (n, k), by those that T is by; none are
        1 and 0.
        """
        d, n = len(self), len(self.sets)
        C = T[..., :d]
        if slopes is None:
            return C
        bent = np.zeros(C.shape)
        bent[..., n:] = curvatures[:, None, self._unit] * T[..., d:][..., self._at]
        return (C - bent) / np.prod(slopes[:, self.indices], axis=2)[:, None]

    def rows(self, C):
        """Values (n, P, d) as rows of equations."""
        return C.reshape(-1, self.n_outputs * C.shape[2])

    def of(self, W, V):
        """Products (m, d P) of the free units' weights W (m, k) and output weights V (m, P)."""
        products = products_of_entries(W, self.indices)
        return (V[:, :, None] * products[:, None]).reshape(len(W), -1)

    def units(self, span, rng, farthest):
        """Weights (m, k) of norm 1 and output weights (m, P) of units whose products lie in a span."""
        k, n = self.n_free, self.n_outputs
        sets = self.indices if n == 1 else np.array([(*S, k + p) for p in range(n) for S in self.indices])
        found = vectors_of_products(span, k + n if n > 1 else k, sets, rng, farthest)[0]
        norms = np.linalg.norm(found[:, :k], axis=1, keepdims=True)
        V = found[:, k:] * norms**self.order if n > 1 else np.ones((len(found), 1))
        return found[:, :k] / norms, V

    def coefficients(self, C, W, V):
        """Coefficients (n, P, m) of units in values C (n, P, d)."""
        c = self.rows(C) @ lapack.pinv(self.of(W, V))
        return c[:, None] * V.T if self.n_outputs > 1 else c.reshape(*C.shape[:2], len(W))
