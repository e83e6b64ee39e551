"""Preconditioners: approximations of a layer's diagonal block of a network's Gauss-Newton matrix."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from skident.budget.constants import MIN_DAMPING
from skident.linalg import lapack

__all__ = ["KroneckerBlock", "UnitBlocks"]

_MIN_SCALE = 1e-7  # of the largest root of a diagonal entry: about the root of eps, for columns that are 0


class UnitBlocks:
    """The blocks ``sum_n y~ y~^T sum_p B[p, j]^2``, one per unit j of a layer with inputs y~ and sensitivities B.

    ``n_reads = m_{l-1} + 1`` and ``n_units = m_l``; ``8 n_units n_reads^2`` bytes, and as many for the inverses.
    """

    def __init__(self, n_reads, n_units):
        self.blocks = np.zeros((n_units, n_reads, n_reads))

    def add(self, reads, sensitivities):
        """Add samples: inputs y~ = (y, 1) (n, n_reads) and sensitivities d f / d z (n, m_L, n_units)."""
        for block, weight in zip(self.blocks, np.einsum("npj,npj->jn", sensitivities, sensitivities), strict=True):
            block += (reads * weight[:, None]).T @ reads

    def diagonal(self):
        """The diagonal of ``J^T J``, (n_reads, n_units)."""
        return np.einsum("jii->ij", self.blocks)

    def solver(self, damping, diagonal):
        """The map ``V -> M^-1 V`` of arrays (n_reads, n_units), with ``damping * diagonal`` added to the blocks."""
        damped, index = self.blocks.copy(), np.arange(self.blocks.shape[1])
        damped[:, index, index] += (damping + MIN_DAMPING) * diagonal.T
        inverses = np.stack([_inverse(M) for M in damped])
        return lambda V: np.einsum("jik,kj->ij", inverses, V)


def _inverse(M):
    factor = lapack.cho_factor(M, lower=True, check_finite=False)
    return scipy.linalg.cho_solve(factor, np.eye(len(M)), check_finite=False)


class KroneckerBlock:
    """``sum_n y~ y~^T`` times ``sum_np B_p B_p^T``, over n: the block if inputs and sensitivities were independent.

    The methods are those of `UnitBlocks`, which cost m_l times as much for a layer of large fan-in, and neglect the
    coupling of units. With both factors scaled to unit diagonal, their eigenvalues a and c give those of the damped
    product, ``a c + damping``, so every damping costs the same two decompositions.
    Source: Martens and Grosse (2015), Optimizing Neural Networks with Kronecker-factored Approximate Curvature.
    """

    def __init__(self, n_reads, n_units):
        self.reads, self.units = np.zeros((n_reads, n_reads)), np.zeros((n_units, n_units))
        self.squares = np.zeros((n_reads, n_units))

    def add(self, reads, sensitivities):
        """Add samples, as `UnitBlocks.add`."""
        self.reads += reads.T @ reads
        self.units += np.tensordot(sensitivities, sensitivities, axes=((0, 1), (0, 1)))
        self.squares += (reads**2).T @ np.sum(sensitivities**2, axis=1)

    def diagonal(self):
        """The diagonal of ``J^T J``, (n_reads, n_units)."""
        return self.squares

    def solver(self, damping, diagonal):
        """The map ``V -> M^-1 V`` of arrays (n_reads, n_units), as `UnitBlocks.solver`."""
        (a, Qa), (c, Qc) = _scaled_eigenvalues(self.reads), _scaled_eigenvalues(self.units)
        values, scale = np.outer(a, c) + damping + MIN_DAMPING, np.sqrt(diagonal)
        return lambda V: (Qa @ ((Qa.T @ (V / scale) @ Qc) / values) @ Qc.T) / scale


def _scaled_eigenvalues(M):
    """Eigenvalues, at least 0, and eigenvectors of a matrix scaled to unit diagonal."""
    scale = np.sqrt(np.diag(M))
    scale = np.maximum(scale, _MIN_SCALE * scale.max() + np.finfo(float).tiny)
    values, vectors = lapack.eigh(M / scale[:, None] / scale)
    return np.maximum(values, 0.0), vectors
