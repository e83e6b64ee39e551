"""The known layers: features in which the pre-activations of the next layer's units are linear."""

from dataclasses import dataclass

import numpy as np

from skident.linalg import svd

from ..constants import NO_GRADIENT

_N_POINTS = 4000  # at which linear units are active
_RADII = (1.0, 3.0, 6.0, 12.0)  # standard deviations of these: as far out as outputs validate linear units
_ROUNDING = 1e-14  # error of a feature over the norm of all, at least (rounding of a layer's sums)
_N_MAIN = 4  # directions of a unit's coefficients whose errors are kept apart from the others (cost)
_MARGIN = 2.0  # of the lifts of linear units: points may be farther out


@dataclass(frozen=True)
class Layer:
    """Weights (m_{l-1}, m_l), biases (m_l,), and the slopes (m_l,) of inactive units: 1 of linear units.

    The covariance of a unit's K coefficients has a few `main` roots (K, T, q), and a variance `rest` (K,) beside these.
    """

    weights: np.ndarray
    biases: np.ndarray
    slopes: np.ndarray
    main: np.ndarray
    rest: np.ndarray

    @classmethod
    def of(cls, weights, biases, slope=0.0, units=()):
        """With one slope for all units; of `Unit`s, their covariances too."""
        main, rest = np.zeros((len(biases), len(weights) + 1, _N_MAIN)), np.zeros(len(biases))
        for k, unit in enumerate(units):
            U, s, _ = svd(unit.half, full_matrices=False)
            q = min(_N_MAIN, len(s))
            main[k, :, :q], rest[k] = U[:, :q] * s[:q], s[q] ** 2 if len(s) > q else 0.0
        return cls(weights, biases, np.full(len(biases), slope), main, rest)

    def with_linear(self, weights):
        """The layer and linear units of weights (m_{l-1}, r), as exact as the worst unit."""
        r = weights.shape[1]
        main = np.concatenate([self.main, np.zeros((r, *self.main.shape[1:]))])
        rest = np.append(self.rest, np.full(r, self.rest.max(initial=0.0)))
        biases, slopes = np.append(self.biases, np.zeros(r)), np.append(self.slopes, np.ones(r))
        return Layer(np.hstack([self.weights, weights]), biases, slopes, main, rest)

    def variances(self, H, of_inputs):
        """Variances (n, m_l) of the pre-activations after outputs H (n, m_{l-1}) with variances."""
        phi = np.hstack([H, np.ones((len(H), 1))])
        own = (np.tensordot(phi, self.main, axes=(1, 1)) ** 2).sum(axis=2)
        return own + (phi**2).sum(axis=1, keepdims=True) * self.rest + of_inputs @ self.weights**2

    def __call__(self, H):
        """Pre-activations and outputs (n, m_l) after outputs H (n, m_{l-1})."""
        Z = H @ self.weights + self.biases
        return Z, np.maximum(Z, self.slopes * Z)

    def slopes_at(self, Z):
        """Derivatives (n, m_l) of the outputs at pre-activations."""
        return np.where(Z > 0, 1.0, self.slopes)


@dataclass(frozen=True)
class Cell:
    """Known functions on n linear regions: pre-activations ``x J + a`` (M) and features ``x P + p`` (T)."""

    J: np.ndarray  # (n, k, M)
    a: np.ndarray  # (n, M)
    P: np.ndarray  # (n, k, T)

    def take(self, mask):
        """The same on some of the regions."""
        return Cell(self.J[mask], self.a[mask], self.P[mask])


class Prefix:
    """Layers 1 ... l, all with their signs, or the last one up to signs.

    The features phi (T,) of the next layer are ``(h_l, 1)``; if the signs of layer l are unknown, ``(|z_l|, h_{l-1} C,
    1)`` with the columns of C spanning the weights of layer l, since ``relu(s z) = (|z| + s z) / 2``; its K linear
    units are the last ones, and only among C. M is the number of all known units, `first` the index of the first one of
    layer l, and `n_units` that of units with unknown signs.
    """

    def __init__(self, n_inputs, layers=(), top=None):
        self.n_inputs, self.layers, self.top = n_inputs, list(layers), top
        self.known = [*self.layers, *([] if top is None else [top])]
        widths = [len(layer.biases) for layer in self.known]
        self.first, self.n_units = sum(widths[:-1]), widths[-1] if widths else 0
        self.bends = np.concatenate([np.ones(0, dtype=bool), *(layer.slopes != 1.0 for layer in self.known)])
        if top is not None:
            self.n_units = int((top.slopes != 1.0).sum())
            U, s, _ = svd(top.weights, full_matrices=False)
            self.directions = U[:, s > NO_GRADIENT * s[0]]
            self.n_features = self.n_units + self.directions.shape[1] + 1
        else:
            self.n_features = 1 + (widths[-1] if widths else n_inputs)

    def variances(self, X):
        """Variances (n, T) of the features at points (n, k), by errors of the known units and rounding."""
        H, V = X, np.zeros(X.shape)
        for layer in self.layers:
            inner, (Z, H) = layer.variances(H, V), layer(H)
            V = inner * layer.slopes_at(Z) ** 2
        if self.top is not None:
            V = np.hstack([self.top.variances(H, V)[:, : self.n_units], V @ self.directions**2])
        size = 1.0 + (H**2).sum(axis=1, keepdims=True)
        return np.hstack([V, np.zeros((len(X), 1))]) + _ROUNDING**2 * size

    def evaluate(self, X):
        """Pre-activations (n, M) and features (n, T) at points (n, k)."""
        H, Zs = X, [np.zeros((len(X), 0))]
        for layer in self.layers:
            Z, H = layer(H)
            Zs.append(Z)
        one = np.ones((len(X), 1))
        if self.top is None:
            return np.hstack(Zs), np.hstack([H, one])
        Z = H @ self.top.weights + self.top.biases
        return np.hstack([*Zs, Z]), np.hstack([np.abs(Z[:, : self.n_units]), H @ self.directions, one])

    def tangents(self, X, V):
        """Derivatives (n, T) of the features along directions (n, k)."""
        H = X
        for layer in self.layers:
            Z, H = layer(H)
            V = (V @ layer.weights) * layer.slopes_at(Z)
        zero = np.zeros((len(X), 1))
        if self.top is None:
            return np.hstack([V, zero])
        Z = H @ self.top.weights + self.top.biases
        outer = ((V @ self.top.weights) * np.sign(Z))[:, : self.n_units]
        return np.hstack([outer, V @ self.directions, zero])

    def gradients(self, X):
        """Gradients of all pre-activations (n, M, k) and of the features (n, T, k)."""
        n, k = X.shape
        H, A, parts = X, np.broadcast_to(np.eye(k), (n, k, k)), [np.zeros((n, 0, k))]
        for layer in self.layers:
            Z, H = layer(H)
            parts.append(np.matmul(layer.weights.T, A))
            A = parts[-1] * layer.slopes_at(Z)[:, :, None]
        zero = np.zeros((n, 1, k))
        if self.top is None:
            return np.concatenate(parts, axis=1), np.concatenate([A, zero], axis=1)
        Z = H @ self.top.weights + self.top.biases
        parts.append(np.matmul(self.top.weights.T, A))
        features = [(parts[-1] * np.sign(Z)[:, :, None])[:, : self.n_units], np.matmul(self.directions.T, A), zero]
        return np.concatenate(parts, axis=1), np.concatenate(features, axis=1)

    def cell(self, pattern):
        """The `Cell` of activation patterns, masks (n, M)."""
        n, start = len(pattern), 0
        A, a = np.broadcast_to(np.eye(self.n_inputs), (n, self.n_inputs, self.n_inputs)), np.zeros((n, self.n_inputs))
        Js, offsets = [np.zeros((n, self.n_inputs, 0))], [np.zeros((n, 0))]
        for layer in self.known:
            Js.append(A @ layer.weights)
            offsets.append(a @ layer.weights + layer.biases)
            on = pattern[:, start : start + len(layer.biases)]
            if layer is self.top:
                continue
            slopes = np.where(on, 1.0, layer.slopes)
            A, a, start = Js[-1] * slopes[:, None], offsets[-1] * slopes, start + len(layer.biases)
        zero = np.zeros((n, self.n_inputs, 1))
        if self.top is not None:
            outer = (Js[-1] * np.where(on, 1.0, -1.0)[:, None])[:, :, : self.n_units]
            A = np.concatenate([outer, A @ self.directions], axis=2)
        return Cell(np.concatenate(Js, axis=2), np.hstack(offsets), np.concatenate([A, zero], axis=2))


def relu_pairs(layers, last, outputs):
    """Weights and biases of `Layer`s without linear units, and of one more layer (m, K), (K,), as a list of pairs.

    Linear units get biases with which they are active, also far out; the next layer's biases take them off again.
    """
    pairs, rng = [], outputs.rng
    if any(np.any(layer.slopes == 1.0) for layer in layers):
        H = rng.choice(_RADII, (_N_POINTS, 1)) * rng.standard_normal((_N_POINTS, outputs.n_inputs))
        lift = np.zeros(outputs.n_inputs)
        for layer in layers:
            Z, H = layer(H)
            more = np.where(layer.slopes == 1.0, np.maximum(-_MARGIN * Z.min(axis=0), 0.0), 0.0)
            pairs.append((layer.weights, layer.biases - lift @ layer.weights + more))
            lift = more
        return [*pairs, (last[0], last[1] - lift @ last[0])]
    return [*((layer.weights, layer.biases) for layer in layers), last]
