"""Changes of all weights of two hidden layers that explain Jacobians, unit after unit of the first layer."""

from typing import NamedTuple

import numpy as np
import scipy.linalg

from skident.budget import check_deadline
from skident.budget.constants import TINY
from skident.linalg import lapack

from ...constants import WEAK_RIDGE

MOST_UNKNOWNS = 6000  # weights of the output layer (memory: a matrix of 290 MB)
_OVER = 5.0  # equations per weight of the output layer, from few units of the first layer
_FEWEST_UNITS = 8  # of these: a weight acts on few of their equations
_SINGLE_FROM = 256  # units of the second layer from which theirs are solved in single precision (budget: half)
_RIDGES = {np.float64: 1e-10, np.float32: 1e-5}  # of one unit's equations, whose matrix has norm one
_RIDGE_LAST = 1e-8  # of those of the output layer, over their mean


def solved_by_elimination(step, J):
    """Weights after a least-squares step of `Linearized` towards Jacobians J (G, m_L, k); the first layer is narrow.

    In coordinates of the first layer, column i of the Jacobians' change has ``m_1 + m_2`` unknowns of unit i
    only, beside the weights of the output layer. The former are eliminated: of a few units, to solve for the output
    layer, whose system is dense; then of all, one after the other. About ``G m_L m_1 m_2 (m_1 + m_2)`` operations, and
    ``(m_2 m_L)^2`` numbers of memory.
    """
    m1, m2 = step.W2.shape
    R, flat = step.weights * (J - step.jacobians), step.M.reshape(-1, m1)
    layers = _Layers(step, lapack.orth(flat))
    target = layers.rest((R @ lapack.pinv(step.W1.T)).reshape(len(flat), m1))
    d3 = layers.last(target)
    target = layers.rest(target - step.change(np.zeros((m1, m2)), d3).reshape(len(flat), m1))
    d2 = layers.second(target)
    left = R - step.change(d2, d3) @ step.W1.T
    d1 = lapack.lstsq(flat, left.reshape(len(flat), -1))[0].T
    return [step.W1 + d1, step.W2 + d2, step.W3 + d3]


class _Equations(NamedTuple):
    """Equations A (n, m_2) of the second layer, orthonormal; columns Q (n, q) of the first; ``A^T A`` and ``Q^T A``."""

    A: np.ndarray
    Q: np.ndarray
    gram: np.ndarray
    cross: np.ndarray

    def of(self, rows, null):
        """``Q^T A`` on some rows, and the factor of ``A^T A`` there without Q and a null vector (m_2,)."""
        if 2 * np.count_nonzero(rows) > len(rows):
            A, sign, K, H = self.A[~rows], -1.0, self.gram.copy(), self.cross.copy()
        else:
            A, sign, K, H = self.A[rows], 1.0, np.zeros_like(self.gram), np.zeros_like(self.cross)
        K += sign * (A.T @ A)
        H += sign * (self.Q[rows if sign > 0.0 else ~rows].T @ A)
        K -= H.T @ H
        K += np.outer(null, null)
        K[np.diag_indices(len(K))] += _RIDGES[K.dtype.type]
        return H, lapack.cho_factor(K, lower=True, overwrite_a=True, check_finite=False)


class _Layers:
    """The second and the output layer of a step, whose first layer acts on an orthonormal basis Q (n, q)."""

    def __init__(self, step, Q):
        m2, mL = step.W3.shape
        A = step.A.reshape(-1, m2)
        gram = A.T @ A
        self.step, self.L = step, inverse_factor(gram)
        A = A @ self.L
        self.equations = _Equations(A, Q, A.T @ A, Q.T @ A)
        self.on = step.on1[:, 0] > 0.0  # (G, m_1)
        self.rows = np.repeat(self.on, mL, axis=0)
        # A unit's scale is also that of its incoming weights.
        nulls = self.L.T @ (gram @ step.W2.T)
        self.nulls = nulls / np.maximum(np.linalg.norm(nulls, axis=0), TINY)

    def rest(self, T):
        """What the first layer leaves of T (n, m_1)."""
        Q = self.equations.Q
        return T - Q @ (Q.T @ T)

    def second(self, T):
        """Changes (m_1, m_2) of the second layer for targets T (n, m_1)."""
        scale, m2 = max(np.abs(T).max(), TINY), self.L.shape[1]
        dtype = np.float32 if m2 >= _SINGLE_FROM else np.float64
        equations = _Equations(*(part.astype(dtype) for part in self.equations))
        T, nulls, d2 = (T / scale).astype(dtype), self.nulls.astype(dtype), np.zeros((T.shape[1], m2))
        for i, rows in enumerate(self.rows.T):
            check_deadline()
            factor = equations.of(rows, nulls[:, i])[1]
            d2[i] = scipy.linalg.cho_solve(factor, equations.A[rows].T @ T[rows, i], check_finite=False)
        return scale * d2 @ self.L.T

    def last(self, T):
        """Changes (m_2, m_L) of the output layer for targets T (n, m_1)."""
        step, (m2, mL) = self.step, self.step.W3.shape
        on2 = step.scaled2[:, 0]
        sizes = np.sqrt(np.sum(on2.T**2 @ self.on * step.W2.T**2, axis=1) / len(step.W2))
        sizes = np.maximum(sizes, TINY)
        free = max(len(T) - len(step.W2) - m2, 1)
        n_units = max(_FEWEST_UNITS, int(np.ceil(_OVER * m2 * mL / free)))
        S, rhs = np.zeros((m2 * mL, m2 * mL), order="F"), np.zeros(m2 * mL)
        for i in np.argsort(-self.on.sum(axis=0), kind="stable")[:n_units]:
            check_deadline()
            S, rhs = self._add_unit(i, on2[self.on[:, i]] * (step.W2[i] / sizes), T[self.rows[:, i], i], S, rhs)
        mean = np.trace(S) / len(S)
        V = step.W3.T * sizes  # a unit's scale is also that of its incoming weights
        V *= np.sqrt(mean) / np.maximum(np.linalg.norm(V, axis=0), TINY)
        units = np.arange(m2)
        for o in range(mL):
            for p in range(o + 1):
                S[o * m2 + units, p * m2 + units] += V[o] * V[p]
        S[np.diag_indices(len(S))] += _RIDGE_LAST * mean
        factor = lapack.cho_factor(S, lower=True, overwrite_a=True, check_finite=False)
        return scipy.linalg.cho_solve(factor, rhs).reshape(mL, m2).T / sizes[:, None]

    def _add_unit(self, i, N, t, S, rhs):
        """The lower triangle of the system of the output layer and its right side, with the equations of unit i.

        N (g, m_2) are its equations for every output at the g points where unit i is active, t (g m_L,) the target.
        """
        rows, (m2, mL) = self.rows[:, i], self.step.W3.shape
        A, Q = self.equations.A[rows], self.equations.Q[rows]
        H, factor = self.equations.of(rows, self.nulls[:, i])
        x = scipy.linalg.cho_solve(factor, A.T @ t)
        t = (t - A @ x + Q @ (H @ x)).reshape(-1, mL)
        A, Q = A.reshape(-1, mL, m2), Q.reshape(len(t), mL, -1)
        Y = np.concatenate([Q[:, o].T @ N for o in range(mL)], axis=1)
        Z = np.concatenate([A[:, o].T @ N for o in range(mL)], axis=1) - H.T @ Y
        Z = scipy.linalg.solve_triangular(factor[0], Z, lower=True, overwrite_b=True, check_finite=False)
        gram = N.T @ N
        for o in range(mL):
            S[o * m2 : (o + 1) * m2, o * m2 : (o + 1) * m2] += gram
        for part in (Y, Z):
            S = scipy.linalg.blas.dsyrk(-1.0, part.T, beta=1.0, c=S, lower=1, overwrite_c=1)
        return S, rhs + (N.T @ t).T.ravel()


def inverse_factor(gram):
    """L with ``L^T G L = 1`` up to a ridge, for a gram matrix G."""
    size = np.sqrt(np.maximum(np.diag(gram), TINY))
    scaled = gram / np.outer(size, size)
    scaled[np.diag_indices(len(gram))] += WEAK_RIDGE
    factor = lapack.scipy_cholesky(scaled, lower=True)
    return scipy.linalg.solve_triangular(factor, np.eye(len(gram)), lower=True).T / size[:, None]
