"""Logits with two hidden layers, and their fit to boundary points."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .joint import damped_solution, features
from .points import sizes

__all__ = ["DeepLogits", "refined_deep"]

_NEAR_BEND = 1e-7  # distance from a unit's hyperplane, within which its side at a point is uncertain
_OUTLIER = 30.0  # median residuals beyond which a point leaves the fit
_EXPLAINED = 1e-9  # residual below which no point is an outlier
_ROUNDED = 2e-15  # largest residual after which no step follows (rounding)


@dataclass(frozen=True)
class DeepLogits:
    """Logits ``(|z_2|, h, 1) @ coef`` with ``z_2 = second @ (h, 1)`` and ``h = relu(first @ (x, 1))``.

    Units of the first layer that are `linear` (m_1,) are active everywhere.
    """

    first: np.ndarray
    linear: np.ndarray
    second: np.ndarray
    coef: np.ndarray

    def hidden(self, X):
        """Activations (n, m_1) of the first layer."""
        z = X @ self.first[:, :-1].T + self.first[:, -1]
        return np.where(self.linear, z, np.maximum(z, 0.0))

    def __call__(self, X):
        """Logits (n, K)."""
        return features(self.second, self.hidden(X)) @ self.coef

    def predict(self, X):
        """Indices of the labels (n,)."""
        return np.argmax(self(X), axis=1)

    def distances(self, X, pairs):
        """Distances (n,) of points from the boundary of pairs (n, 2), over 1 + |x|, to first order."""
        return np.abs(_linearized(self, X, pairs)[0])

    @property
    def hyperplanes(self):
        """Hyperplanes (m_1, D + 1) of the first layer."""
        return self.first

    @property
    def n_parameters(self):
        """Number of weights and coefficients, differences of classes counted."""
        return self.first.size + self.second.size + self.coef[:, 1:].size

    def normalized(self):
        """The same logits with unit normals in both layers and coefficients of norm 1."""
        m = len(self.second)
        size = np.linalg.norm(self.first[:, :-1], axis=1)
        first, second, coef = self.first / size[:, None], self.second.copy(), self.coef.copy()
        second[:, :-1] *= size
        coef[m:-1] *= size[:, None]
        size = np.linalg.norm(second[:, :-1], axis=1)
        second, coef[:m] = second / size[:, None], coef[:m] * size[:, None]
        return replace(self, first=first, second=second, coef=coef / np.linalg.norm(coef))


def refined_deep(logits, X, pairs, steps=8):
    """Gauss-Newton over all weights at boundary points X; the best logits and their largest residual."""
    logits, best = logits.normalized(), (np.inf, logits, np.inf)
    for step in range(steps + 1):
        r, J, keep = _linearized(logits, X, pairs)
        median, worst = np.median(np.abs(r)), np.abs(r[keep]).max(initial=0.0)
        if median < best[0]:
            best = median, logits, worst
        elif step > 2:
            break
        if step == steps or worst < _ROUNDED:
            break
        gauge = _gauge(logits) * np.mean(np.abs(J))
        system, target = np.vstack([J[keep], gauge]), np.append(-r[keep], np.zeros(len(gauge)))
        norms = np.maximum(np.linalg.norm(system, axis=0), 1e-300)
        change = damped_solution(system / norms, target, 1e-12) / norms
        parts = np.split(change, np.cumsum([logits.first.size, logits.second.size]))
        coef = logits.coef.copy()
        coef[:, 1:] += parts[2].reshape(coef.shape[1] - 1, -1).T
        logits = replace(
            logits, first=logits.first + parts[0].reshape(logits.first.shape),
            second=logits.second + parts[1].reshape(logits.second.shape), coef=coef,
        ).normalized()  # fmt: skip
    return best[1], best[2]


def _gauge(logits):
    """Equations (m_1 + m_2 + 1, unknowns) that keep the norms of normals and of the coefficients."""
    m1, m2 = len(logits.first), len(logits.second)
    G = np.zeros((m1 + m2 + 1, logits.n_parameters))
    width, start = logits.first.shape[1], 0
    for k in range(m1):
        G[k, k * width : (k + 1) * width - 1] = logits.first[k, :-1]
    start, width = logits.first.size, logits.second.shape[1]
    for j in range(m2):
        G[m1 + j, start + j * width : start + (j + 1) * width - 1] = logits.second[j, :-1]
    G[-1, start + logits.second.size :] = logits.coef[:, 1:].T.ravel()
    return G


def _linearized(logits, X, pairs):
    """Residuals (n,): distances to the boundary over 1 + |x|; their Jacobian, and which points count."""
    m = len(logits.second)
    one = np.column_stack([X, np.ones(len(X))])
    z1 = one @ logits.first.T
    on = (z1 > 0) | logits.linear
    h = np.column_stack([z1 * on, np.ones(len(X))])
    z2, d = h @ logits.second.T, (logits.coef[:, pairs[:, 0]] - logits.coef[:, pairs[:, 1]]).T
    e = d[:, :m] * np.sign(z2)
    slopes = (e @ logits.second[:, :-1] + d[:, m:-1]) * on
    gradient = slopes @ logits.first[:, :-1]
    weight = sizes(X) * np.maximum(np.linalg.norm(gradient, axis=1), 1e-12)
    F = np.column_stack([np.abs(z2), h])
    r = np.sum(F * d, axis=1) / weight
    keep = np.min(np.abs(z1), axis=1) > _NEAR_BEND
    keep &= np.min(np.abs(z2), axis=1, initial=np.inf) > _NEAR_BEND
    keep &= np.abs(r) < _EXPLAINED + _OUTLIER * np.median(np.abs(r))
    blocks = [slopes[:, [k]] * one for k in range(len(logits.first))] + [e[:, [j]] * h for j in range(m)]
    for c in range(1, logits.coef.shape[1]):
        blocks.append(((pairs[:, 0] == c).astype(float) - (pairs[:, 1] == c))[:, None] * F)
    return r, np.hstack(blocks) / weight[:, None], keep
