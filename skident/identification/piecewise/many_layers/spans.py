"""Signs of a layer's units from single critical points: normals are combinations of the active units' gradients."""

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import TINY
from skident.linalg import svd

from ...constants import DECOMPOSITIONS, INSIDE, RANK_TOL

_MOST_POINTS = 150  # critical points (budget: 0.5 s with all signs of eight units)
_ACTIVE_RANK_TOL = 1e-8  # `RANK_TOL` of the active units' gradients


@dataclass(frozen=True)
class Spans:
    """Critical points behind a layer, in orthonormal coordinates of the span of its inputs' gradients.

    A deeper unit is affine in the layer's active units, within a linear region: its normal is a combination of their
    gradients. Where these are fewer than the dimension of the span, this contradicts
    wrong signs. Attributes: dimensions `ranks` (n,); `normals` (n, r); gradients `units` (n, r, K);
    `sides` (n, K), signs of the pre-activations; `unsure` (n, K), where only the sign of a unit is known.
    """

    ranks: np.ndarray
    normals: np.ndarray
    units: np.ndarray
    sides: np.ndarray
    unsure: np.ndarray

    @classmethod
    def of(cls, critical, H, A, index, units, rng, unsure=None):
        """Of some of the critical points `index`; `units` are weights (m, K) and biases (K,)."""
        C, b = units
        unsure = np.zeros((len(index), len(b)), dtype=bool) if unsure is None else unsure
        some = rng.permutation(len(index))[:_MOST_POINTS]
        index, unsure = index[some], unsure[some]
        s, Vt = svd(A[index], full_matrices=False)[1:]
        kept = s > RANK_TOL * np.maximum(s[:, :1], TINY)
        V = Vt * kept[:, :, None]
        normals = np.einsum("nrd,nd->nr", V, critical.normals[index])
        inside = np.abs(1.0 - np.linalg.norm(normals, axis=1)) < INSIDE
        gradients = np.einsum("nrd,nmd->nrm", V[inside], A[index[inside]])
        J = gradients @ C
        J /= np.maximum(np.linalg.norm(J, axis=1, keepdims=True), TINY)
        sides = np.sign(H[index[inside]] @ C + b)
        return cls(kept[inside].sum(axis=1), normals[inside], J, sides, unsure[inside])

    def violations(self, signs):
        """Numbers (q,) of normals that contradict signs (q, K), and of those that could."""
        on = signs[:, None] == self.sides  # (q, n, K)
        few = (on.sum(axis=2) < self.ranks) & ~np.any(on & self.unsure, axis=2)
        i, j = np.nonzero(few)
        wrong, able = np.zeros(few.shape, dtype=bool), np.zeros(few.shape, dtype=bool)
        for start in range(0, len(i), DECOMPOSITIONS):
            p, k = i[start : start + DECOMPOSITIONS], j[start : start + DECOMPOSITIONS]
            M = self.units[k] * on[p, k][:, None]
            U, s, _ = svd(M, full_matrices=False)
            kept = s > _ACTIVE_RANK_TOL * np.maximum(s[:, :1], TINY)
            inner = np.einsum("nrk,nr->nk", U, self.normals[k]) * kept
            off = self.normals[k] - np.einsum("nrk,nk->nr", U, inner)
            wrong[p, k] = np.linalg.norm(off, axis=1) > INSIDE
            able[p, k] = kept.sum(axis=1) < self.ranks[k]
        return wrong.sum(axis=1), able.sum(axis=1)
