"""Least squares over one hidden layer downstream of first-layer units that are known up to their biases."""

import numpy as np

from skident.budget import chunks


class DownstreamOfKnownUnits:
    """``sum_n |V^T g(W^T g(lambda z_n + delta) + c) + v - y_n|^2`` over all but the pre-activations Z (n, m_1).

    Outputs Y (n, m_L) are standardized; `total` is their cost. Parameters are one vector: delta and the factors lambda
    of the weight norms, (m_1,) each, ``(W, c)``, (m_1 + 1, m) row by row, and ``(V, v)``, (m + 1, m_L); its length
    determines the width m. With ``h = g(lambda z + delta)`` extended by 1 and ``B_pj = V_jp g'(y_j)``, columns of the
    Jacobian are ``h_i B_pj`` for weights, ``g(y_j)`` for output weights, ``g'(.)_i (B W^T)_pi`` for biases and z times
    that for norms.
    """

    def __init__(self, Z, Y, activation):
        self.Z, self.activation = Z, activation
        self.offset, self.scale = Y.mean(axis=0), np.maximum(Y.std(axis=0), np.finfo(float).tiny)
        self.Y = (Y - self.offset) / self.scale
        self.total = float(np.sum(self.Y**2))

    @property
    def n_known(self):
        """m_1."""
        return self.Z.shape[1]

    def join(self, biases, norms, W, V):
        """Parts as one vector (P,), see `split`."""
        return np.concatenate([biases, norms, W.ravel(), V.ravel()])

    def split(self, params):
        """A vector (P,) as delta and lambda (m_1,), ``(W, c)`` (m_1 + 1, m) and ``(V, v)`` (m + 1, m_L): views."""
        k, m_L = self.n_known, self.Y.shape[1]
        m = (len(params) - 2 * k - m_L) // (k + 1 + m_L)
        end = 2 * k + (k + 1) * m
        return params[:k], params[k : 2 * k], params[2 * k : end].reshape(k + 1, m), params[end:].reshape(m + 1, m_L)

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
                E = np.column_stack([by_bias, by_bias * self.Z[rows]]).astype(dtype)
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
