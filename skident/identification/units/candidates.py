"""Units from single critical points with normals, and from several that agree."""

from __future__ import annotations

import numpy as np

from skident.linalg import inverse_and_null

from ..measure.outputs import SIGNIFICANCE
from .unit import Unit

__all__ = ["Views", "hyperplane", "unit_of_point"]

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
    """

    def __init__(self, prefix, record, index, tol):
        self.index, self.tol, P = index, tol, record.points[index]
        phi, G = prefix.evaluate(P)[1], prefix.gradients(P)[1]
        self.on, self.coef, self.whole = phi != 0, np.zeros(phi.shape), np.zeros(len(index), dtype=bool)
        for i in range(len(index)):
            a = np.flatnonzero(self.on[i, :-1])
            if len(a) == 0 or len(a) > len(G[i].T):
                continue
            inverse, null = inverse_and_null(G[i, a].T, tol)
            if null.shape[1]:
                continue
            n = record.normals[index[i]] / np.linalg.norm(record.normals[index[i]])
            w = inverse @ n
            slack = SIGNIFICANCE * record.normal_errors[index[i]] + tol
            self.whole[i] = np.linalg.norm(G[i, a].T @ w - n) < slack
            self.coef[i, a], self.coef[i, -1] = w, -w @ phi[i, a]

    def joined(self, i, free):
        """Coefficients (T,), their mask and the members (n,) of view i's unit, joined with `free` others that agree."""
        coef, mask, member = self.coef[i].copy(), self.on[i].copy(), np.zeros(len(self.index), dtype=bool)
        member[i] = True
        for _ in range(_MOST_JOINS):
            common = self.on & mask
            one, other = np.where(common, coef, 0.0), np.where(common, self.coef, 0.0)
            ratio = (one * other).sum(axis=1) / np.maximum((other**2).sum(axis=1), 1e-300)
            apart = np.linalg.norm(one - ratio[:, None] * other, axis=1)
            agree = apart < self.tol * np.linalg.norm(one, axis=1)
            agree &= free & self.whole & ~member & (common.sum(axis=1) >= _FEWEST_COMMON)
            agree &= (one[:, :-1] ** 2).sum(axis=1) > _LEAST_COMMON * (coef[:-1] ** 2).sum()
            if not agree.any():
                break
            for j in np.flatnonzero(agree):
                new = self.on[j] & ~mask
                coef[new] = ratio[j] * self.coef[j][new]
                mask |= self.on[j]
                member[j] = True
        return coef, mask, member
