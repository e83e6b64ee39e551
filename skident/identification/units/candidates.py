"""Units from single critical points with normals, and from several that agree."""

import numpy as np

from skident.linalg import inverse_and_null

from ..measure.outputs import SIGNIFICANCE
from .unit import Unit

_FEWEST_COMMON = 4  # determined coefficients that two views of one unit must share (agreement by chance: one less)
_MOST_JOINS = 8  # rounds of joining views (budget)
_LEAST_COMMON = 1e-3  # squared part of a view that is common, at least


def hyperplane(record, i):
    """The unit of the first layer through a critical point with its normal."""
    n, p = record.normals[i], record.points[i]
    size, k = np.linalg.norm(n), len(n)
    unit = Unit(np.append(n, -n @ p) / size, np.zeros((k + 1, 0)), p)
    unit.half = record.normal_errors[i] / np.sqrt(k) * np.vstack([np.eye(k), -p])
    return unit


def unit_of_point(prefix, record, i, tol):
    """The affine set of units with a critical point and its normal, and what no unit explains of the normal."""
    p, n = record.points[i], record.normals[i] / np.linalg.norm(record.normals[i])
    phi, G = prefix.evaluate(p[None])[1][0], prefix.gradients(p[None])[1][0]
    seen = (np.abs(G).max(axis=1) > 0) | (phi != 0)
    on, off = np.flatnonzero(seen), np.flatnonzero(~seen)
    inverse, null = inverse_and_null(G[on].T, tol)
    coef, V = np.zeros(len(phi)), np.zeros((len(phi), null.shape[1] + len(off)))
    coef[on], V[on, : null.shape[1]] = inverse @ n, null
    V[off, np.arange(null.shape[1], V.shape[1])] = 1.0
    unit = Unit(coef, V, p)
    unit.anchor = G @ n  # the size of the gradient here is known best
    rest = float(np.linalg.norm(G.T @ coef - n))
    unit.impose(phi[None], tol)
    return unit, rest


class Views:
    """What critical points say of the weights on the features that matter there, if those are independent.

    Attributes: `index` of bends (n,), `coef` (n, T), masks `on` (n, T), `whole` (n,): whether the weights follow.
    `known` are views of bends from before, which new ones join.
    """

    def __init__(self, prefix, record, index, tol, known):
        self.index, self.tol = index, tol
        new = np.array([i for i in index if i not in known], dtype=int)
        P = record.points[new]
        for i, phi, G in zip(new, prefix.evaluate(P)[1], prefix.gradients(P)[1], strict=True):
            known[i] = _view(phi, G, record.normals[i], SIGNIFICANCE * record.normal_errors[i] + tol, tol)
        parts = zip(*(known[i] for i in index), strict=True) if len(index) else np.zeros((3, 0, prefix.n_features))
        self.on, self.coef, self.whole = (np.array(part) for part in parts)
        self.whole = self.whole.astype(bool).reshape(len(index))
        self._on, self._squares = self.on.astype(float), self.coef**2

    def sizes(self):
        """How many views agree with each (n,)."""
        return np.array([self._agree(c, on).sum() for c, on in zip(self.coef, self._on, strict=True)])

    def _agree(self, coef, on):
        """Which views agree up to a factor with coefficients (T,) where the mask on (T,) has them too."""
        product, own, other = self.coef @ coef, self._on @ coef**2, self._squares @ on
        off = own * other - product**2  # squared sine of their angle, over both squared norms
        agree = (off < self.tol**2 * own * other) & (self._on @ on >= _FEWEST_COMMON) & self.whole
        bias = self._on[:, -1] * coef[-1] ** 2
        return agree & (own - bias > _LEAST_COMMON * (coef[:-1] ** 2).sum())

    def joined(self, i, free):
        """Coefficients (T,), their mask and the members (n,) of view i's unit, joined with `free` others that agree."""
        coef, mask, member = self.coef[i].copy(), self.on[i].copy(), np.zeros(len(self.index), dtype=bool)
        member[i] = True
        for _ in range(_MOST_JOINS):
            agree = self._agree(coef, mask.astype(float)) & free & ~member
            if not agree.any():
                break
            for j in np.flatnonzero(agree):
                common, new = self.on[j] & mask, self.on[j] & ~mask
                coef[new] = (coef[common] @ self.coef[j][common]) / self._squares[j][common].sum() * self.coef[j][new]
                mask |= self.on[j]
                member[j] = True
        return coef, mask, member


def _view(phi, G, normal, slack, tol):
    """A mask (T,) of features that matter at a point, coefficients (T,), and whether the normal determines them."""
    on, coef = phi != 0, np.zeros(len(phi))
    a = np.flatnonzero(on[:-1])
    if len(a) == 0 or len(a) > G.shape[1]:
        return on, coef, False
    inverse, null = inverse_and_null(G[a].T, tol)
    if null.shape[1]:
        return on, coef, False
    n = normal / np.linalg.norm(normal)
    w = inverse @ n
    coef[a], coef[-1] = w, -w @ phi[a]
    return on, coef, bool(np.linalg.norm(G[a].T @ w - n) < slack)
