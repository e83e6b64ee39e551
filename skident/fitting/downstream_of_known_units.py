"""Least squares over one hidden layer that reads units which are known up to their shifts."""

from __future__ import annotations

import numpy as np

from skident.optim import DenseNormalEquations

__all__ = ["BehindKnownUnits"]


class BehindKnownUnits:
    """``sum_n |V^T g(W^T g(lambda z_n + delta) + c) + v - y_n|^2``, z_n known, as a function of all else.

    Parameters
    ----------
    Z : ndarray of shape (n, m_1)
        Pre-activations of the known units.
    Y : ndarray of shape (n, m_L)
        Answers; their means and standard deviations are taken out.
    activation : Activation
        g.
    lengths_free : bool, default=False
        Whether lambda may move.

    Attributes
    ----------
    total : float
        Cost of the answers' means.

    Notes
    -----
    Parameters are one vector: delta and lambda, (m_1,) each, ``(W, c)``, (m_1 + 1, m) row by row, ``(V, v)``,
    (m + 1, m_L). The width m is told by its length. With ``h = g(lambda z + delta)`` extended by 1 and
    ``B_pj = V_jp g'(y_j)``, columns of the Jacobian are ``h_i B_pj`` for weights, ``g(y_j)`` for outputs,
    ``g'(.)_i (B W^T)_pi`` for shifts and z times that for lengths.
    """

    def __init__(self, Z, Y, activation, *, lengths_free=False):
        self.Z, self.activation, self.lengths_free = Z, activation, lengths_free
        self.offset, self.unit = Y.mean(axis=0), np.maximum(Y.std(axis=0), np.finfo(float).tiny)
        self.Y = (Y - self.offset) / self.unit
        self.total = float(np.sum(self.Y**2))

    @property
    def n_known(self):
        """m_1."""
        return self.Z.shape[1]

    def start(self, shifts, n_units, rng):
        """A random hidden layer behind units with these shifts.

        Parameters
        ----------
        shifts : ndarray of shape (m_1,)
        n_units : int
        rng : numpy.random.RandomState

        Returns
        -------
        ndarray of shape (P,)
        """
        d, m_L = self.n_known + 1, self.Y.shape[1]
        V = np.vstack([rng.standard_normal((n_units, m_L)) / np.sqrt(n_units), np.zeros((1, m_L))])
        return self.joined(shifts, np.ones(d - 1), rng.standard_normal((d, n_units)) / np.sqrt(d), V)

    def joined(self, shifts, stretch, W, V):
        """Parts as one vector, see `parts`.

        Parameters
        ----------
        shifts, stretch, W, V : ndarrays

        Returns
        -------
        ndarray of shape (P,)
        """
        return np.concatenate([shifts, stretch, W.ravel(), V.ravel()])

    def parts(self, theta):
        """A vector as delta and lambda (m_1,), ``(W, c)`` (m_1 + 1, m) and ``(V, v)`` (m + 1, m_L).

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        shifts, stretch, W, V : ndarrays
            Views.
        """
        k, m_L = self.n_known, self.Y.shape[1]
        m = (len(theta) - 2 * k - m_L) // (k + 1 + m_L)
        end = 2 * k + (k + 1) * m
        return theta[:k], theta[k : 2 * k], theta[2 * k : end].reshape(k + 1, m), theta[end:].reshape(m + 1, m_L)

    def unit_places(self, theta):
        """Where in the vector the parameters of every hidden unit are.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        ndarray of int, shape (m, m_1 + 1 + m_L)
        """
        _, _, W, V = self.parts(theta)
        places, begins = np.arange(len(theta)), 2 * self.n_known
        of_W = places[begins : begins + W.size].reshape(W.shape)
        of_V = places[begins + W.size :].reshape(V.shape)
        return np.concatenate([of_W.T, of_V[:-1]], axis=1)

    def features(self, theta):
        """What the hidden layer reads, extended by 1.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        ndarray of shape (n, m_1 + 1)
        """
        shifts, stretch, _, _ = self.parts(theta)
        return np.column_stack([self.activation(self.Z * stretch + shifts), np.ones(len(self.Z))])

    def residual(self, theta):
        """Answers of the network less those asked, in standard deviations.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        ndarray of shape (n, m_L)
        """
        _, _, W, V = self.parts(theta)
        return self.activation(self.features(theta) @ W) @ V[:-1] + V[-1] - self.Y

    def cost(self, theta):
        """Sum of squared residuals.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        float
        """
        return float(np.sum(self.residual(theta) ** 2))

    def jacobian(self, theta):
        """Of the residuals by all parameters; 0 in the columns of those that may not move.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        ndarray of shape (n m_L, P)
        """
        shifts, stretch, W, V = self.parts(theta)
        first, slopes = self.activation.jet(self.Z * stretch + shifts, 1)
        n, m_L = self.Y.shape
        H = np.column_stack([first, np.ones(n)])
        G, slopes_behind = self.activation.jet(H @ W, 1)
        B = slopes_behind[:, None] * V[:-1].T
        by_shift = (B @ W[:-1].T) * slopes[:, None]
        by_length = by_shift * self.Z[:, None] if self.lengths_free else np.zeros_like(by_shift)
        by_W = (H[:, None, :, None] * B[:, :, None, :]).reshape(n, m_L, -1)
        by_V = np.einsum("nj,pq->npjq", np.column_stack([G, np.ones(n)]), np.eye(m_L)).reshape(n, m_L, -1)
        return np.concatenate([by_shift, by_length, by_W, by_V], axis=2).reshape(n * m_L, -1)

    def normal_equations(self, theta):
        """Jacobian, Gauss-Newton matrix and gradient; of what may not move, the matrix is 1.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        J : ndarray of shape (n m_L, P)
        A : ndarray of shape (P, P)
        g : ndarray of shape (P,)
        """
        J = self.jacobian(theta)
        A = J.T @ J
        A.flat[:: len(A) + 1] += np.diag(A) == 0.0
        return J, A, J.T @ self.residual(theta).ravel()

    def linearise(self, theta):
        """The Gauss-Newton model.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        DenseNormalEquations
        """
        return DenseNormalEquations(*self.normal_equations(theta)[1:])
