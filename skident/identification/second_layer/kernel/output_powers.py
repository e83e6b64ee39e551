"""Output weights times powers, ``v (x) w^{(x) p}``, in a subspace: several outputs tell more units than one does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget import check_deadline
from skident.linalg import symmetric_power
from skident.linalg.symmetric_rank_one import power_jacobian

__all__ = ["OutputPowers", "find_output_powers", "fitted_powers"]

_STARTS, _ROUNDS, _IDLE = 10, 20, 3  # random starts a unit and round, rounds, and those in a row without gain
_NEARER = 0.99  # times the largest distance
_NEWTON, _DAMPED = 15, 4  # Gauss-Newton steps, and how many of them are damped strongly
_STRONG, _WEAK = 1e-2, 1e-9  # damping
_SAME = 1.0 - 5e-4  # cosine of two that are one: rows that are known worst are found with such deviations
_STEPS, _FIRST, _TRIES, _SLOW, _QUIET = 30, 1e-3, 10, 1e-3, 2  # of the fit of all
_EASED, _MORE, _LEAST = 6.0, 8.0, 1e-15


@dataclass(frozen=True)
class OutputPowers:
    """Units' directions among inputs and outputs.

    Attributes
    ----------
    vectors : ndarray of shape (n, k)
        Unit vectors w.
    weights : ndarray of shape (n, m_L)
        Unit vectors v.
    order : int
        p.
    """

    vectors: np.ndarray
    weights: np.ndarray
    order: int

    @property
    def flat(self):
        """``v (x) w^{(x) p}``, packed: (n, m_L d)."""
        powers, m_L = symmetric_power(self.vectors, self.order), self.weights.shape[1]
        return (self.weights[:, :, None] * powers[:, None]).reshape(len(powers), m_L * powers.shape[1])

    @property
    def tangents(self):
        """How they change with w and v, (n, m_L d, k + m_L)."""
        n, m_L = self.weights.shape
        J, F = power_jacobian(self.vectors, self.order), symmetric_power(self.vectors, self.order)
        by_w = (self.weights[:, :, None, None] * J[:, None]).reshape(n, -1, J.shape[2])
        by_v = (np.eye(m_L)[None, :, None] * F[:, None, :, None]).reshape(n, -1, m_L)
        return np.concatenate([by_w, by_v], axis=2)

    def distances(self, basis):
        """Of them from a subspace.

        Parameters
        ----------
        basis : ndarray of shape (m_L d, m)
            Orthonormal.

        Returns
        -------
        ndarray of shape (n,)
        """
        flat = self.flat
        return np.linalg.norm(flat - (flat @ basis) @ basis.T, axis=1)

    def some(self, index):
        """Those with given numbers.

        Parameters
        ----------
        index : ndarray of int or list of int

        Returns
        -------
        OutputPowers
        """
        return OutputPowers(self.vectors[index], self.weights[index], self.order)

    def beside(self, others):
        """With others of the same order.

        Parameters
        ----------
        others : OutputPowers

        Returns
        -------
        OutputPowers
        """
        pairs = ((self.vectors, others.vectors), (self.weights, others.weights))
        return OutputPowers(*(np.concatenate(pair) for pair in pairs), self.order)

    def moved(self, steps):
        """After steps, and of length 1 again.

        Parameters
        ----------
        steps : ndarray of shape (n, k + m_L)

        Returns
        -------
        OutputPowers
        """
        k = self.vectors.shape[1]
        return OutputPowers(_unit(self.vectors + steps[:, :k]), _unit(self.weights + steps[:, k:]), self.order)


def find_output_powers(basis, n_outputs, n_features, order, rng, *, farthest):
    """Vectors v and w for which ``v (x) w^{(x) p}`` lies in a subspace, as many as it has dimensions or fewer.

    Parameters
    ----------
    basis : ndarray of shape (m_L C(k + p - 1, p), m)
        Orthonormal, outputs first.
    n_outputs, n_features, order : int
        m_L, k and p.
    rng : numpy.random.RandomState
    farthest : float
        Distance from the subspace up to which one counts.

    Returns
    -------
    OutputPowers
        By ascending distance.

    Notes
    -----
    Gauss-Newton on the distance from random v and w. With several outputs nearly every start ends at one of the m,
    without the power steps that a single one wants (`find_symmetric_powers`): the subspace fills that much less of the
    space. The nearest v for every w would be no better start: most w then go to the same few units.
    """
    found, idle, size = OutputPowers(np.zeros((0, n_features)), np.zeros((0, n_outputs)), order), 0, (0, 0.0)
    for _ in range(_ROUNDS):
        check_deadline()
        starts = [_unit(rng.standard_normal((_STARTS * basis.shape[1], n))) for n in (n_features, n_outputs)]
        found = _distinct(found.beside(_nearest(OutputPowers(*starts, order), basis)), basis, farthest)
        before, size = size, (len(found.vectors), float(found.distances(basis).max(initial=0.0)))
        idle = idle + 1 if size[0] == before[0] and size[1] >= _NEARER * before[1] else 0
        if idle == _IDLE:
            break
    return found


def fitted_powers(found, rows):
    """All of them at once, so that rows are sums of them, by Levenberg-Marquardt with their coefficients eliminated.

    Parameters
    ----------
    found : OutputPowers
        m of them.
    rows : ndarray of shape (n, m_L C(k + p - 1, p))

    Returns
    -------
    OutputPowers

    Notes
    -----
    The singular vectors that belong to the smallest singular values are known worst, and a power's distance from their
    span does not know of that; what is left of rows does. Kaufman's form of the Jacobian; its normal equations are the
    entrywise product of the coefficients' Gram matrix and that of the tangents.
    """
    _, s, Vt = np.linalg.svd(rows, full_matrices=False)
    rows, damping, quiet = s[:, None] * Vt, _FIRST, 0
    C, left, Q = _eliminated(found, rows)
    cost = np.sum(left**2)
    for _ in range(_STEPS):
        check_deadline()
        A, b, scales = _normal_equations(found, C, left, Q)
        for _ in range(_TRIES):
            new = found.moved(np.linalg.solve(A + damping * np.diag(scales), b).reshape(len(C.T), -1))
            told = _eliminated(new, rows)
            after = np.sum(told[1] ** 2)
            if after < cost:
                break
            damping *= _MORE
        else:
            break
        quiet = quiet + 1 if after > (1.0 - _SLOW) * cost else 0
        found, (C, left, Q), cost, damping = new, told, after, max(damping / _EASED, _LEAST)
        if quiet == _QUIET:
            break
    return found


def _unit(X):
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(float).tiny)


def _nearest(now, basis):
    """Gauss-Newton on the distances from a subspace."""
    k = now.vectors.shape[1]
    for step in range(_NEWTON):
        r, J = now.flat, now.tangents
        r, J = r - (r @ basis) @ basis.T, J - basis @ (basis.T @ J)
        A = np.swapaxes(J, 1, 2) @ J
        A[:, :k, :k] += now.vectors[:, :, None] * now.vectors[:, None]
        A[:, k:, k:] += now.weights[:, :, None] * now.weights[:, None]
        part = _STRONG if step < _DAMPED else _WEAK
        A += part * np.trace(A, axis1=1, axis2=2)[:, None, None] * np.eye(A.shape[1])
        now = now.moved(-np.linalg.solve(A, np.einsum("ndk,nd->nk", J, r)[:, :, None])[:, :, 0])
    return now


def _distinct(pool, basis, farthest):
    """Those that are near, each once, best first, no more than the subspace has dimensions."""
    distances, chosen = pool.distances(basis), []
    for i in np.argsort(distances):
        if distances[i] > farthest or len(chosen) == basis.shape[1]:
            break
        alike = np.abs(pool.vectors[chosen] @ pool.vectors[i]) * np.abs(pool.weights[chosen] @ pool.weights[i])
        if alike.max(initial=0.0) < _SAME:
            chosen.append(int(i))
    return pool.some(chosen)


def _eliminated(found, rows):
    """Coefficients (n, m), what is left of the rows, and a basis of what the powers span (m_L d, m)."""
    Q, R = np.linalg.qr(found.flat.T)
    inside = rows @ Q
    return np.linalg.lstsq(R, inside.T, rcond=None)[0].T, rows - inside @ Q.T, Q


def _normal_equations(found, C, left, Q):
    """Matrix, right-hand side and typical entries of the diagonal."""
    tangents = found.tangents
    J = np.swapaxes(tangents - Q @ (Q.T @ tangents), 0, 1)  # (m_L d, m, k + m_L)
    n_each, flat, gram = J.shape[2], J.reshape(len(J), -1), C.T @ C
    products = flat.T @ flat
    b = np.einsum("nj,na,ajk->jk", C, left, J, optimize=True).ravel()
    sizes = np.maximum(np.diag(gram), np.finfo(float).eps * np.max(np.diag(gram)))
    scales = np.repeat(sizes, n_each) * np.mean(np.diag(products))
    return np.kron(gram, np.ones((n_each, n_each))) * products, b, scales
