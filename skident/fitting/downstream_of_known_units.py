"""Least squares over one hidden layer downstream of first-layer units that are known up to their biases."""

from __future__ import annotations

import numpy as np

from skident.budget import chunks
from skident.optim import DenseNormalEquations

__all__ = ["DownstreamOfKnownUnits"]


class DownstreamOfKnownUnits:
    """``sum_n |V^T g(W^T g(lambda z_n + delta) + c) + v - y_n|^2`` over all but the pre-activations Z (n, m_1).

    Outputs Y (n, m_L) are standardized; `total` is their cost. The factors lambda of the weight norms stay fixed unless
    `norms_free`. Parameters are one vector: delta and lambda, (m_1,) each, ``(W, c)``, (m_1 + 1, m) row by row, and
    ``(V, v)``, (m + 1, m_L); its length determines the width m. With ``h = g(lambda z + delta)`` extended by 1 and
    ``B_pj = V_jp g'(y_j)``, columns of the Jacobian are ``h_i B_pj`` for weights, ``g(y_j)`` for output weights,
    ``g'(.)_i (B W^T)_pi`` for biases and z times that for norms.
    """

    def __init__(self, Z, Y, activation, *, norms_free=False):
        self.Z, self.activation, self.norms_free = Z, activation, norms_free
        self.offset, self.scale = Y.mean(axis=0), np.maximum(Y.std(axis=0), np.finfo(float).tiny)
        self.Y = (Y - self.offset) / self.scale
        self.total = float(np.sum(self.Y**2))

    @property
    def n_known(self):
        """m_1."""
        return self.Z.shape[1]

    def start(self, biases, n_units, rng):
        """Parameters (P,) of a random hidden layer downstream of units with these biases (m_1,)."""
        d, m_L = self.n_known + 1, self.Y.shape[1]
        V = np.vstack([rng.standard_normal((n_units, m_L)) / np.sqrt(n_units), np.zeros((1, m_L))])
        return self.join(biases, np.ones(d - 1), rng.standard_normal((d, n_units)) / np.sqrt(d), V)

    def join(self, biases, norms, W, V):
        """Parts as one vector (P,), see `split`."""
        return np.concatenate([biases, norms, W.ravel(), V.ravel()])

    def split(self, params):
        """A vector (P,) as delta and lambda (m_1,), ``(W, c)`` (m_1 + 1, m) and ``(V, v)`` (m + 1, m_L): views."""
        k, m_L = self.n_known, self.Y.shape[1]
        m = (len(params) - 2 * k - m_L) // (k + 1 + m_L)
        end = 2 * k + (k + 1) * m
        return params[:k], params[k : 2 * k], params[2 * k : end].reshape(k + 1, m), params[end:].reshape(m + 1, m_L)

    def unit_indices(self, params):
        """Indices in the vector of every hidden unit's parameters, (m, m_1 + 1 + m_L)."""
        _, _, W, V = self.split(params)
        indices, first = np.arange(len(params)), 2 * self.n_known
        of_W = indices[first : first + W.size].reshape(W.shape)
        of_V = indices[first + W.size :].reshape(V.shape)
        return np.concatenate([of_W.T, of_V[:-1]], axis=1)

    def features(self, params):
        """Inputs of the hidden layer, extended by 1, (n, m_1 + 1)."""
        biases, norms, _, _ = self.split(params)
        return np.column_stack([self.activation(self.Z * norms + biases), np.ones(len(self.Z))])

    def residual(self, params):
        """Outputs of the network less the standardized Y, (n, m_L)."""
        _, _, W, V = self.split(params)
        return self.activation(self.features(params) @ W) @ V[:-1] + V[-1] - self.Y

    def cost(self, params):
        """Sum of squared residuals."""
        return float(np.sum(self.residual(params) ** 2))

    def jacobian(self, params):
        """Derivatives of the residuals by all parameters, (n m_L, P); 0 in the columns of fixed ones."""
        biases, norms, W, V = self.split(params)
        first, slopes = self.activation.jet(self.Z * norms + biases, 1)
        n, m_L = self.Y.shape
        H = np.column_stack([first, np.ones(n)])
        G, slopes_downstream = self.activation.jet(H @ W, 1)
        B = slopes_downstream[:, None] * V[:-1].T
        by_bias = (B @ W[:-1].T) * slopes[:, None]
        by_norm = by_bias * self.Z[:, None] if self.norms_free else np.zeros_like(by_bias)
        by_W = (H[:, None, :, None] * B[:, :, None, :]).reshape(n, m_L, -1)
        by_V = np.einsum("nj,pq->npjq", np.column_stack([G, np.ones(n)]), np.eye(m_L)).reshape(n, m_L, -1)
        return np.concatenate([by_bias, by_norm, by_W, by_V], axis=2).reshape(n * m_L, -1)

    def normal_equations(self, params, *, single=False):
        """Gauss-Newton matrix (P, P), 1 on the diagonal of fixed parameters, and gradient (P,), without the Jacobian.

        With ``K_(ij) = h_i g'(y_j)``, the block of the weights is ``K^T K`` times ``V_i V_j``, whatever the number of
        outputs. `single` rounds products to single precision: half the time, and enough for a step.
        """
        biases, norms, W, V = self.split(params)
        k, m, m_L = self.n_known, W.shape[1], self.Y.shape[1]
        dtype = np.float32 if single else float
        n_first, n_W = 2 * k, W.size
        A, gradient = np.zeros((len(params),) * 2, dtype=dtype), np.zeros(len(params))
        of_first, of_W, of_V = slice(n_first), slice(n_first, n_first + n_W), slice(n_first + n_W, len(params))
        of_units, R = np.tile(V[:-1], (k + 1, 1)).astype(dtype), self.residual(params)
        for rows in chunks(len(self.Z), n_W * np.dtype(dtype).itemsize):
            first, slopes = self.activation.jet(self.Z[rows] * norms + biases, 1)
            H = np.column_stack([first, np.ones(len(first))])
            G, slopes_downstream = self.activation.jet(H @ W, 1)
            K = (H.astype(dtype)[:, :, None] * slopes_downstream.astype(dtype)[:, None]).reshape(len(H), n_W)
            B, r = np.column_stack([G, np.ones(len(G))]).astype(dtype), R[rows].astype(dtype)
            A[of_W, of_W] += K.T @ K
            A[of_V, of_V] += np.kron(B.T @ B, np.eye(m_L, dtype=dtype))
            A[of_W, of_V] += ((K.T @ B)[:, :, None] * of_units[:, None]).reshape(n_W, -1)
            gradient[of_W] += np.sum((K.T @ r) * of_units, axis=1)
            gradient[of_V] += (B.T @ r).ravel()
            for o in range(m_L):
                by_bias = ((slopes_downstream * V[:-1, o]) @ W[:-1].T) * slopes
                by_norm = by_bias * self.Z[rows] if self.norms_free else np.zeros_like(by_bias)
                E = np.column_stack([by_bias, by_norm]).astype(dtype)
                A[of_first, of_first] += E.T @ E
                A[of_first, of_W] += (E.T @ K) * of_units[:, o]
                A[of_first, of_V][:, o::m_L] += E.T @ B
                gradient[of_first] += E.T @ r[:, o]
        pairs = np.tile((V[:-1] @ V[:-1].T).astype(dtype), k + 1)
        for i in range(k + 1):
            A[n_first + i * m : n_first + (i + 1) * m, of_W] *= pairs
        A[of_V, of_W], A[of_W, of_first], A[of_V, of_first] = A[of_W, of_V].T, A[of_first, of_W].T, A[of_first, of_V].T
        A.flat[:: len(A) + 1] += np.diag(A) == 0.0
        return A, gradient

    def linearize(self, params):
        """The Gauss-Newton model."""
        return DenseNormalEquations(*self.normal_equations(params))
