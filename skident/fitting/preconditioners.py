"""What is close to a layer's diagonal block of a network's Gauss-Newton matrix, and quickly inverted."""

from __future__ import annotations

import numpy as np
import scipy.linalg

__all__ = ["KroneckerBlock", "UnitBlocks"]

_FLOOR = 1e-10  # damping that is always there, relative to the diagonal


class UnitBlocks:
    """The blocks ``sum_n y~ y~^T sum_p B[p, j]^2``, one a unit j, of what a layer reads and its output sensitivities.

    Memory is ``8 m_l (m_{l-1} + 1)^2`` bytes, and as many again for the inverses.

    Parameters
    ----------
    n_reads, n_units : int
        ``m_{l-1} + 1`` and m_l.
    """

    def __init__(self, n_reads, n_units):
        self.blocks = np.zeros((n_units, n_reads, n_reads))

    def add(self, reads, sensitivities):
        """Take some more rows in.

        Parameters
        ----------
        reads : ndarray of shape (n, n_reads)
            ``y~ = (y, 1)``.
        sensitivities : ndarray of shape (n, m_L, n_units)
            ``B = d f / d z``.
        """
        for block, weight in zip(self.blocks, np.einsum("npj,npj->jn", sensitivities, sensitivities), strict=True):
            block += (reads * weight[:, None]).T @ reads

    def diagonal(self):
        """The diagonal of ``J^T J``.

        Returns
        -------
        ndarray of shape (n_reads, n_units)
        """
        return np.einsum("jii->ij", self.blocks)

    def solver(self, damping, diagonal):
        """What inverts the blocks, damped.

        Parameters
        ----------
        damping : float
        diagonal : ndarray of shape (n_reads, n_units)
            Of which `damping` is a fraction; positive.

        Returns
        -------
        callable
            ``V -> M^-1 V`` for arrays (n_reads, n_units).

        Raises
        ------
        numpy.linalg.LinAlgError
            If a block is not finite.
        """
        damped, index = self.blocks.copy(), np.arange(self.blocks.shape[1])
        damped[:, index, index] += (damping + _FLOOR) * diagonal.T
        inverses = np.stack([_inverse(M) for M in damped])
        return lambda V: np.einsum("jik,kj->ij", inverses, V)


def _inverse(M):
    factor = scipy.linalg.cho_factor(M, lower=True, check_finite=False)
    return scipy.linalg.cho_solve(factor, np.eye(len(M)), check_finite=False)


class KroneckerBlock:
    """``sum_n y~ y~^T`` times ``sum_np B_p B_p^T``, over n: what the block would be if both were independent over n.

    For layers that read much: blocks of single units cost m_l times as much, and units do not know of each other there.
    The methods are those of `UnitBlocks`.

    Parameters
    ----------
    n_reads, n_units : int
        ``m_{l-1} + 1`` and m_l.

    Notes
    -----
    With both factors scaled to unit diagonal, their eigenvalues a and c give those of the damped product,
    ``a c + damping``, so that every damping costs the same two decompositions.
    Source: J. Martens, R. Grosse (2015), Optimizing Neural Networks with Kronecker-factored Approximate Curvature.
    """

    def __init__(self, n_reads, n_units):
        self.reads, self.units = np.zeros((n_reads, n_reads)), np.zeros((n_units, n_units))
        self.squares = np.zeros((n_reads, n_units))

    def add(self, reads, sensitivities):
        """Take some more rows in, as `UnitBlocks.add` does.

        Parameters
        ----------
        reads : ndarray of shape (n, n_reads)
        sensitivities : ndarray of shape (n, m_L, n_units)
        """
        self.reads += reads.T @ reads
        self.units += np.tensordot(sensitivities, sensitivities, axes=((0, 1), (0, 1)))
        self.squares += (reads**2).T @ np.sum(sensitivities**2, axis=1)

    def diagonal(self):
        """The diagonal of ``J^T J``.

        Returns
        -------
        ndarray of shape (n_reads, n_units)
        """
        return self.squares

    def solver(self, damping, diagonal):
        """What inverts the damped product.

        Parameters
        ----------
        damping : float
        diagonal : ndarray of shape (n_reads, n_units)
            Of which `damping` is a fraction; positive.

        Returns
        -------
        callable
            ``V -> M^-1 V`` for arrays (n_reads, n_units).

        Raises
        ------
        numpy.linalg.LinAlgError
            If a factor is not finite.
        """
        (a, Qa), (c, Qc) = _scaled_eigenvalues(self.reads), _scaled_eigenvalues(self.units)
        values, scale = np.outer(a, c) + damping + _FLOOR, np.sqrt(diagonal)
        return lambda V: (Qa @ ((Qa.T @ (V / scale) @ Qc) / values) @ Qc.T) / scale


def _scaled_eigenvalues(M):
    """Eigenvalues, at least 0, and eigenvectors of a matrix scaled to unit diagonal."""
    scale = np.sqrt(np.diag(M))
    scale = np.maximum(scale, 1e-7 * scale.max() + np.finfo(float).tiny)
    values, vectors = np.linalg.eigh(M / scale[:, None] / scale)
    return np.maximum(values, 0.0), vectors
