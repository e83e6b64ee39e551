"""The layers known so far: their outputs and gradients, and where these are certain."""

from dataclasses import dataclass, field

import numpy as np

from ...constants import NO_GRADIENT

_LIFT_MARGIN = 2.0  # of the lifts of linear units: points may be farther out


@dataclass
class KnownPrefix:
    """Layers 1 ... l - 1 with their signs: weights (m_{i-1}, m_i), biases (m_i,), masks of the determined weights.

    The last units of a layer may be linear: `linear` says per layer how many. They stand for units that are always
    active, whose weights are known up to linear combinations only.
    """

    n_inputs: int
    weights: list = field(default_factory=list)
    biases: list = field(default_factory=list)
    masks: list = field(default_factory=list)
    linear: list = field(default_factory=list)

    def extended(self, W, b, mask, linear):
        """These layers and one more, with linear units of weights (m, r)."""
        W, mask = np.column_stack([W, linear]), np.column_stack([mask, np.ones(linear.shape, dtype=bool)])
        b, r = np.append(b, np.zeros(linear.shape[1])), linear.shape[1]
        return KnownPrefix(self.n_inputs, [*self.weights, W], [*self.biases, b], [*self.masks, mask], [*self.linear, r])

    @property
    def layers(self):
        """Weights, biases and least values of the units, layer by layer: 0, or minus infinity of linear ones."""
        floors = [np.where(np.arange(len(b)) < len(b) - n, 0.0, -np.inf) for b, n in zip(self.biases, self.linear)]
        return list(zip(self.weights, self.biases, floors, strict=True))

    def outputs(self, X):
        """Outputs (n, m) of the last layer at points (n, D)."""
        for W, b, floor in self.layers:
            X = np.maximum(X @ W + b, floor)
        return X

    def outputs_and_gradients(self, X):
        """Outputs (n, m) of the last layer at points (n, D), and their gradients (n, m, D)."""
        n, D = X.shape
        A = np.broadcast_to(np.eye(D), (n, D, D))
        for W, b, floor in self.layers:
            Z = X @ W + b
            X = np.maximum(Z, floor)
            A = np.matmul(W.T, A) * (Z > floor)[:, :, None]
        return X, A

    def certain(self, X):
        """At which points (n, D) no unit with an undetermined weight has that input active: a mask (n,)."""
        kept = np.ones(len(X), dtype=bool)
        for (W, b, floor), mask in zip(self.layers, self.masks, strict=True):
            if not mask.all():
                kept &= (X != 0.0).astype(float) @ (~mask).any(axis=1) == 0
            X = np.maximum(X @ W + b, floor)
        return kept

    def pre_activations(self, X):
        """Pre-activations (n, m) of the last layer at points (n, D), and their gradients (n, m, D).

        Those of linear units that pass on one output of the layer before are its own.
        """
        before = KnownPrefix(
            self.n_inputs, *(part[:-1] for part in (self.weights, self.biases, self.masks, self.linear))
        )
        (H, A), W = before.outputs_and_gradients(X), self.weights[-1]
        Z, G = H @ W + self.biases[-1], np.matmul(W.T, A)
        for k in range(W.shape[1] - self.linear[-1], W.shape[1]) if before.weights else ():
            if np.count_nonzero(W[:, k]) == 1:
                P, Q = before.pre_activations(X)
                j = int(np.argmax(np.abs(W[:, k])))
                Z[:, k], G[:, k] = W[j, k] * P[:, j], W[j, k] * Q[:, j]
        return Z, G

    def room(self, X):
        """Distances (n,) of points (n, D) from the nearest boundary of a known unit, if these were planes."""
        return self.nearest_boundary(X)[0]

    def nearest_boundary(self, X):
        """Distances (n,) of points (n, D) from the nearest boundary of a known unit, and its unit normals (n, D)."""
        n, D = X.shape
        A, room, normals = np.broadcast_to(np.eye(D), (n, D, D)), np.full(n, np.inf), np.zeros((n, D))
        for W, b, floor in self.layers:
            Z, G = X @ W + b, np.matmul(W.T, A)
            norms = np.linalg.norm(G, axis=2)
            bent = (norms > NO_GRADIENT) & np.isfinite(floor)
            gaps = np.where(bent, np.abs(Z) / np.maximum(norms, NO_GRADIENT), np.inf)
            k = gaps.argmin(axis=1)
            i = np.flatnonzero(gaps[np.arange(n), k] < room)
            room[i] = gaps[i, k[i]]
            normals[i] = G[i, k[i]] / norms[i, k[i], None]
            X, A = np.maximum(Z, floor), G * (Z > floor)[:, :, None]
        return room, normals

    def as_relu_layers(self, X):
        """Weights and biases of ReLU layers with the same outputs at points X (n, D), but for a lift (m,) of the last.

        Linear units get biases with which they are active there; the next layer's biases take them off again.
        """
        found, lift = [], np.zeros(self.n_inputs)
        for W, b, floor in self.layers:
            b = b - lift @ W
            Z = X @ W + b
            lift = np.where(np.isinf(floor), np.maximum(0.0, -_LIFT_MARGIN * Z.min(axis=0)), 0.0)
            found.append((W, b + lift))
            X = np.maximum(Z + lift, 0.0)
        return found, lift
