"""Undetermined parameters: Gauss-Newton matrix, first-order standard errors, kinds of columns."""

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import BLOCK_ENTRIES
from skident.fitting.batched_fits import BatchedNetworkFits, parameters_of
from skident.network import Architecture

_ALONE = 0.95  # leverage; rows of planted networks have up to 0.6
_UNSEEN = 1e-3  # of a parameter's unit vector in directions that rows do not determine


@dataclass(frozen=True)
class Information:
    """The Gauss-Newton matrix of a network at the rows, scaled to unit diagonal.

    Attributes
    ----------
    spectrum : ndarray of shape (P,)
        Its eigenvalues, ascending.
    vectors : ndarray of shape (P, P)
        Its eigenvectors.
    scale : ndarray of shape (P,)
        Lengths of the columns of the Jacobian.
    n_free : int
        Directions in which activations let parameters move without changing the function (units of relu that are
        rescaled): as many of the least eigenvalues are 0.
    """

    spectrum: np.ndarray
    vectors: np.ndarray
    scale: np.ndarray
    n_free: int

    @property
    def n_open(self):
        """Directions that the rows do not determine to rounding, besides the free ones."""
        rounding = len(self.spectrum) * np.finfo(float).eps
        return max(0, int(np.sum(self.spectrum <= rounding)) - self.n_free)


def information(network, table, prior=None):
    """The Gauss-Newton matrix at all rows of a table, added up block by block."""
    fits = BatchedNetworkFits(Architecture.of(network), table)
    matrix = fits.normal_equations(parameters_of(network)[None])[0][0]
    if prior is not None:
        matrix = matrix + np.diag(prior.penalty(fits.shapes))
    scale = np.sqrt(np.diagonal(matrix))
    scale = np.where(scale > 1e-14 * scale.max(), scale, np.inf)  # what does nothing stays undetermined
    spectrum, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    scale_free = [g.symmetry == "homogeneous" for g in network.activations[:-1]]
    n_free = sum(m for m, free in zip(network.layer_widths[:-1], scale_free, strict=True) if free)
    return Information(spectrum, vectors, np.where(np.isfinite(scale), scale, 1.0), n_free)


def standard_errors_of(network, table, info, noise):
    """Standard errors of weights and biases, in the inputs and targets as they are."""
    unseen = info.spectrum <= len(info.spectrum) * np.finfo(float).eps
    kept = ~unseen
    root = info.vectors[:, kept] * (noise / np.sqrt(info.spectrum[kept])) / info.scale[:, None]
    lost = np.zeros(len(unseen))
    if np.sum(unseen) > info.n_free:
        lost = np.linalg.norm(info.vectors[:, unseen], axis=1)
    k, m = network.weights[0].shape
    first = root[: (k + 1) * m].reshape(k + 1, m, -1)
    W = np.tensordot(table.whitener, first[:-1], axes=1)
    b = first[-1] - np.tensordot(table.center, W, axes=1)
    open_units = (lost[: (k + 1) * m].reshape(k + 1, m) > _UNSEEN).any(axis=0)
    weights, biases = [_lengths(W, open_units)], [_lengths(b, open_units)]
    at = (k + 1) * m
    for V in network.weights[1:]:
        a, c = V.shape
        A = np.where(lost > _UNSEEN, np.inf, np.linalg.norm(root, axis=1))[at : at + (a + 1) * c].reshape(a + 1, c)
        weights, biases, at = [*weights, A[:-1]], [*biases, A[-1]], at + (a + 1) * c
    weights[-1], biases[-1] = weights[-1] * table.unit, biases[-1] * table.unit
    return weights, biases


def lone_rows(network, table, info):
    """Samples that determine a parameter alone: their leverage is above 0.95."""
    fits, x = BatchedNetworkFits(Architecture.of(network), table), parameters_of(network)[None]
    kept = info.spectrum > len(info.spectrum) * np.finfo(float).eps
    root = info.vectors[:, kept] / np.sqrt(info.spectrum[kept]) / info.scale[:, None]
    found = 0
    for U, Y, weight in table.blocks(max(1, BLOCK_ENTRIES // (len(root) * table.n_outputs))):
        leverage = np.sum((fits.jacobians(x, U, Y, weight)[0][0].T @ root) ** 2, axis=1).reshape(-1, len(U))
        found += int(np.sum(leverage.max(axis=0) > _ALONE))
    return found


def _lengths(roots, open_units):
    return np.where(open_units, np.inf, np.linalg.norm(roots, axis=-1))
