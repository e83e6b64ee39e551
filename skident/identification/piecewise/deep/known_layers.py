"""The layers known so far, on every linear region: the next layer's units are affine in their features."""

from __future__ import annotations

import numpy as np

from skident.budget import chunks
from skident.budget.constants import CHUNK_COPIES

from ...constants import NO_GRADIENT

__all__ = ["KnownLayers"]

_ON_BOUNDARY = 1e-7  # distance from a boundary, over 1 + |x|, of points on it: some errors of located points
_ON_BOUNDARY_ERRORS = 100.0  # `_ON_BOUNDARY` in relative errors of the known layers


class KnownLayers:
    """Layers 1 ... l - 1 of a (leaky) ReLU network, and layer l up to the signs and norms of its units.

    With ``z_l = h_{l-1} W_l + b_l`` a unit of layer l + 1 is, up to a factor, ``phi . coef`` with the features
    ``phi(x) = (|z_l|, h_{l-1}, 1)``, since ``relu(s z) = (|z| + s z) / 2``. On a linear region, where no known unit
    changes its sign, phi is affine. An activation pattern is a mask (n, M) of the active ones of all M known units.
    Shapes: layers are pairs (m_{i-1}, m_i), (m_i,); D = `n_inputs`, m_l = `n_units`, m_{l-1} = `n_before`, and
    T = `n_features` = m_l + m_{l-1} + 1; `first` is the index of the first unit of layer l among all. The `slope` is
    that of inactive units; `accuracy` is the relative error of the known layers on noisy outputs, else 0.
    """

    def __init__(self, layers, weights, biases, slope=0.0, accuracy=0.0):
        self.layers, self.weights, self.biases = list(layers), weights, biases
        self.slope, self.accuracy = slope, accuracy
        self.n_before, self.n_units = weights.shape
        self.n_inputs = self.layers[0][0].shape[0] if self.layers else self.n_before
        self.n_features = self.n_units + self.n_before + 1
        self._ends = np.cumsum([0, *(len(b) for _, b in self.layers), self.n_units])
        self.first = int(self._ends[-2])

    def _slopes(self, active):
        """Slopes of the units of layers before l, layer by layer, and the activity of layer l as numbers."""
        *before, last = self._by_layer(active)
        return [*(on + self.slope * (1.0 - on) for on in before), last]

    def _by_layer(self, values):
        return [values[:, a:b].astype(float) for a, b in zip(self._ends[:-1], self._ends[1:], strict=True)]

    def evaluate(self, X):
        """Pre-activations (n, M) of all known units and features (n, T) at points (n, D)."""
        H, Zs = X, []
        for W, b in self.layers:
            Zs.append(H @ W + b)
            H = np.maximum(Zs[-1], self.slope * Zs[-1])
        Zs.append(H @ self.weights + self.biases)
        return np.hstack(Zs), np.hstack([np.abs(Zs[-1]), H, np.ones((len(X), 1))])

    def combinations(self, X, coefs):
        """Combinations (n, k) of the features at points (n, D) with coefficients (T, k), and the norms (n,) of phi."""
        H = X
        for W, b in self.layers:
            H = H @ W + b
            np.maximum(H, self.slope * H, out=H)
        Z, K = H @ self.weights + self.biases, self.n_units
        np.abs(Z, out=Z)
        values = Z @ coefs[:K] + H @ coefs[K:-1] + coefs[-1]
        return values, np.sqrt(np.einsum("nk,nk->n", Z, Z) + np.einsum("nk,nk->n", H, H) + 1.0)

    def tangents(self, active, U):
        """Derivatives of the pre-activations (n, M) and features (n, T) along directions (n, D)."""
        slopes, H, dZs = self._slopes(active), U, []
        for (W, _), slope in zip(self.layers, slopes, strict=False):
            dZs.append(H @ W)
            H = dZs[-1] * slope
        dZs.append(H @ self.weights)
        return np.hstack(dZs), np.hstack([dZs[-1] * (2.0 * slopes[-1] - 1.0), H, np.zeros((len(U), 1))])

    def gradients(self, active, coef):
        """Gradients (n, D) of ``phi . coef``, with coefficients (T,) or (n, T)."""
        coef, slopes, K = np.broadcast_to(coef, (len(active), self.n_features)), self._slopes(active), self.n_units
        back = (coef[:, :K] * (2.0 * slopes[-1] - 1.0)) @ self.weights.T + coef[:, K:-1]
        for (W, _), slope in zip(self.layers[::-1], slopes[-2::-1], strict=True):
            back = (back * slope) @ W.T
        return back

    def feature_gradients(self, active):
        """Gradients (n, T, D) of the features."""
        jacobian, before = self._jacobians(active)
        outer = jacobian[:, self.first :] * (2.0 * self._slopes(active)[-1] - 1.0)[:, :, None]
        return np.concatenate([outer, before, np.zeros((len(active), 1, self.n_inputs))], axis=1)

    def gradient_norms(self, active):
        """Norms (n, M) of the gradients of all pre-activations, in chunks of points."""
        some = chunks(len(active), CHUNK_COPIES * 8 * active.shape[1] * self.n_inputs)
        return np.concatenate([np.linalg.norm(self._jacobians(active[i])[0], axis=2) for i in some])

    def _jacobians(self, active):
        """Gradients of all pre-activations (n, M, D) and of the outputs of layer l - 1."""
        n, A, parts = len(active), None, []
        for (W, _), slope in zip(self.layers, self._slopes(active), strict=False):
            J = _by_inputs(W, A, n)
            parts.append(J)
            A = np.multiply(J, slope[:, :, None], order="C")  # sums of the next product are rounded alike
        parts.append(_by_inputs(self.weights, A, n))
        if A is None:
            A = np.broadcast_to(np.eye(self.n_inputs), (n, self.n_inputs, self.n_inputs))
        return np.ascontiguousarray(np.concatenate(parts, axis=1)), A

    def boundary_gradients(self, active, which):
        """Gradients (n, D) of one pre-activation per point, with indices `which` (n,)."""
        chosen = np.zeros(active.shape)
        chosen[np.arange(len(which)), which] = 1.0
        parts, slopes = self._by_layer(chosen), self._slopes(active)
        back = parts[-1] @ self.weights.T
        for (W, _), slope, part in zip(self.layers[::-1], slopes[-2::-1], parts[-2::-1], strict=True):
            back = (back * slope + part) @ W.T
        return back

    def distances(self, Z, active):
        """Distances (n, M) of points with pre-activations Z from all boundaries, if these were planes."""
        norms = self.gradient_norms(active)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(norms > NO_GRADIENT, np.abs(Z) / norms, np.inf)

    def on_boundaries(self, X):
        """Which points (n, D) are on the boundary of a known unit: a mask (n,)."""
        if len(X) == 0:
            return np.zeros(0, dtype=bool)
        Z = self.evaluate(X)[0]
        norms = self.gradient_norms(Z > 0)
        reach = max(_ON_BOUNDARY, _ON_BOUNDARY_ERRORS * self.accuracy)
        reach = reach * (1.0 + np.linalg.norm(X, axis=1, keepdims=True))
        return np.any(np.abs(Z) < reach * np.maximum(norms, NO_GRADIENT), axis=1)


def _by_inputs(W, A, n):
    """Derivatives (n, m, D) of what a layer computes, from those of its inputs; None: these are the network's."""
    return np.broadcast_to(W.T, (n, *W.T.shape)) if A is None else np.matmul(W.T, A)
