"""The layers known so far, cell by cell: all that the next layer's units are affine in."""

from __future__ import annotations

import numpy as np

from skident.budget import chunks

__all__ = ["KnownLayers"]

_COPIES = 4  # of the gradients of all units in a chunk of cells
_ON_KINK = 1e-7  # distance from a known kink, relative to 1 + |x|, up to which a point lies on it


class KnownLayers:
    """Layers 1 ... l - 1 of a ReLU or leaky ReLU network, and layer l up to the signs and lengths of its units.

    With ``z_l = h_{l-1} W_l + b_l`` a unit of layer l + 1 is, up to a factor, ``phi . theta`` with the features
    ``phi(x) = (|z_l|, h_{l-1}, 1)``, since ``relu(s z) = (|z| + s z) / 2``. Where no known unit changes its side, in a
    cell, phi is affine.

    Parameters
    ----------
    layers : list of (ndarray of shape (m_{i-1}, m_i), ndarray of shape (m_i,))
        Weights and biases of layers 1 ... l - 1.
    weights, biases : ndarray of shape (m_{l-1}, m_l) and (m_l,)
        Of layer l.
    slope : float, default=0.0
        Of units that are not active; in ``[0, 1)``.
    accuracy : float, default=0.0

    Attributes
    ----------
    n_inputs, n_units, n_before, n_features : int
        D, m_l, m_{l-1} and ``T = m_l + m_{l-1} + 1``.
    first : int
        Index of the first unit of layer l among all known ones.
    accuracy : float
        Relative error of the known layers where the probe are noisy; else 0.
    """

    def __init__(self, layers, weights, biases, slope=0.0, accuracy=0.0):
        self.layers, self.weights, self.biases = list(layers), weights, biases
        self.slope, self.accuracy = slope, accuracy
        self.n_before, self.n_units = weights.shape
        self.n_inputs = self.layers[0][0].shape[0] if self.layers else self.n_before
        self.n_features = self.n_units + self.n_before + 1
        self._ends = np.cumsum([0, *(len(b) for _, b in self.layers), self.n_units])
        self.first = int(self._ends[-2])

    def _sides(self, active):
        """Slopes of the units of layers before l, layer by layer, and the activity of layer l as numbers."""
        *before, last = self._by_layer(active)
        return [*(on + self.slope * (1.0 - on) for on in before), last]

    def _by_layer(self, values):
        return [values[:, a:b].astype(float) for a, b in zip(self._ends[:-1], self._ends[1:], strict=True)]

    def evaluate(self, X):
        """Pre-activations of all known units, and features.

        Parameters
        ----------
        X : ndarray of shape (n, D)

        Returns
        -------
        Z : ndarray of shape (n, M)
        phi : ndarray of shape (n, T)
        """
        H, Zs = X, []
        for W, b in self.layers:
            Zs.append(H @ W + b)
            H = np.maximum(Zs[-1], self.slope * Zs[-1])
        Zs.append(H @ self.weights + self.biases)
        return np.hstack(Zs), np.hstack([np.abs(Zs[-1]), H, np.ones((len(X), 1))])

    def combinations(self, X, thetas):
        """Combinations ``phi . theta`` of the features, and their norm.

        Parameters
        ----------
        X : ndarray of shape (n, D)
        thetas : ndarray of shape (T, k)

        Returns
        -------
        values : ndarray of shape (n, k)
        norms : ndarray of shape (n,)
            ``|phi|``.
        """
        H = X
        for W, b in self.layers:
            H = H @ W + b
            np.maximum(H, self.slope * H, out=H)
        Z, K = H @ self.weights + self.biases, self.n_units
        np.abs(Z, out=Z)
        values = Z @ thetas[:K] + H @ thetas[K:-1] + thetas[-1]
        return values, np.sqrt(np.einsum("nk,nk->n", Z, Z) + np.einsum("nk,nk->n", H, H) + 1.0)

    def tangents(self, active, U):
        """Directional derivatives of pre-activations and features within cells.

        Parameters
        ----------
        active : ndarray of bool, shape (n, M)
            The cells.
        U : ndarray of shape (n, D)
            The directions.

        Returns
        -------
        dZ : ndarray of shape (n, M)
        dphi : ndarray of shape (n, T)
        """
        sides, H, dZs = self._sides(active), U, []
        for (W, _), on in zip(self.layers, sides, strict=False):
            dZs.append(H @ W)
            H = dZs[-1] * on
        dZs.append(H @ self.weights)
        return np.hstack(dZs), np.hstack([dZs[-1] * (2.0 * sides[-1] - 1.0), H, np.zeros((len(U), 1))])

    def gradients(self, active, theta):
        """Gradients of ``phi . theta`` in cells.

        Parameters
        ----------
        active : ndarray of bool, shape (n, M)
        theta : ndarray of shape (T,) or (n, T)

        Returns
        -------
        ndarray of shape (n, D)
        """
        theta, sides, K = np.broadcast_to(theta, (len(active), self.n_features)), self._sides(active), self.n_units
        back = (theta[:, :K] * (2.0 * sides[-1] - 1.0)) @ self.weights.T + theta[:, K:-1]
        for (W, _), on in zip(self.layers[::-1], sides[-2::-1], strict=True):
            back = (back * on) @ W.T
        return back

    def feature_maps(self, active):
        """The features as affine functions of x in cells, without their constants.

        Parameters
        ----------
        active : ndarray of bool, shape (n, M)

        Returns
        -------
        ndarray of shape (n, T, D)
        """
        jacobian, before = self._jacobians(active)
        outer = jacobian[:, self.first :] * (2.0 * self._sides(active)[-1] - 1.0)[:, :, None]
        return np.concatenate([outer, before, np.zeros((len(active), 1, self.n_inputs))], axis=1)

    def boundaries(self, active):
        """Gradients of all pre-activations in cells.

        Parameters
        ----------
        active : ndarray of bool, shape (n, M)

        Returns
        -------
        ndarray of shape (n, M, D)
        """
        return self._jacobians(active)[0]

    def boundary_slopes(self, active):
        """Norms of the gradients of all pre-activations in cells, in chunks of cells.

        Parameters
        ----------
        active : ndarray of bool, shape (n, M)

        Returns
        -------
        ndarray of shape (n, M)
        """
        some = chunks(len(active), _COPIES * 8 * active.shape[1] * self.n_inputs)
        return np.concatenate([np.linalg.norm(self.boundaries(active[i]), axis=2) for i in some])

    def _jacobians(self, active):
        n, A, parts = len(active), None, []
        for (W, _), on in zip(self.layers, self._sides(active), strict=False):
            J = _by_inputs(W, A, n)
            parts.append(J)
            A = np.multiply(J, on[:, :, None], order="C")  # sums of the next product are rounded alike
        parts.append(_by_inputs(self.weights, A, n))
        if A is None:
            A = np.broadcast_to(np.eye(self.n_inputs), (n, self.n_inputs, self.n_inputs))
        return np.ascontiguousarray(np.concatenate(parts, axis=1)), A

    def boundary_normals(self, active, which):
        """Gradients of one pre-activation a cell.

        Parameters
        ----------
        active : ndarray of bool, shape (n, M)
        which : ndarray of int, shape (n,)

        Returns
        -------
        ndarray of shape (n, D)
        """
        chosen = np.zeros(active.shape)
        chosen[np.arange(len(which)), which] = 1.0
        parts, sides = self._by_layer(chosen), self._sides(active)
        back = parts[-1] @ self.weights.T
        for (W, _), on, part in zip(self.layers[::-1], sides[-2::-1], parts[-2::-1], strict=True):
            back = (back * on + part) @ W.T
        return back

    def on_known_kinks(self, X, tol=_ON_KINK):
        """Which points lie on a kink of a known unit.

        Parameters
        ----------
        X : ndarray of shape (n, D)
        tol : float, default=1e-7
            Distance, relative to ``1 + |x|``.

        Returns
        -------
        ndarray of bool, shape (n,)
        """
        if len(X) == 0:
            return np.zeros(0, dtype=bool)
        Z = self.evaluate(X)[0]
        lengths = self.boundary_slopes(Z > 0)
        reach = max(tol, 100.0 * self.accuracy) * (1.0 + np.linalg.norm(X, axis=1, keepdims=True))
        return np.any(np.abs(Z) < reach * np.maximum(lengths, 1e-9), axis=1)


def _by_inputs(W, A, n):
    """Derivatives (n, m, D) of what a layer computes, from those of what it reads; None: the inputs."""
    return np.broadcast_to(W.T, (n, *W.T.shape)) if A is None else np.matmul(W.T, A)
