"""A table (X, y) read in blocks of rows, with whitened inputs and standardized targets."""

import numpy as np

from skident.budget.constants import COLLINEAR, REPEATED_ROWS
from skident.fitting.batched_fits import WeightedSamples
from skident.linalg import column_units
from skident.network import change_outputs

_BLOCK = 2**14  # rows read at a time
_DISCRETE = 0.5  # share of the rows that a column's different values may number, below which it is discrete


class Table:
    """Rows of X and y with weights; equal rows are merged, their weights added.

    Attributes
    ----------
    X, Y, weight : ndarrays
        The rows that are left. Weights add up to `effective_rows`.
    effective_rows : float
        ``(sum w)^2 / sum w^2``.
    n_distinct : int
        Different rows of X; of more than 131 072 rows all count as different.
    center, whitener : ndarrays of shape (D,) and (D, k)
        ``u = (x - center) @ whitener`` has the identity as covariance.
    offset, unit : ndarrays of shape (m_L,)
        ``(y - offset) / unit`` is what is fitted.
    discrete : ndarray of bool, shape (D,)
        Columns with so few different values that they have no density.

    Tables of more than 131 072 rows are not copied: they are read in blocks, and memory beyond X and y is for a block.
    """

    def __init__(self, X, Y, weight, scaled):
        if weight is not None and np.any(weight == 0):
            X, Y, weight = X[weight > 0], Y[weight > 0], weight[weight > 0]
        self.groups = None
        if len(X) <= REPEATED_ROWS:
            X, Y, weight = _merged(np.asarray(X, dtype=np.float64), Y, weight)
            self.groups = np.unique(X, axis=0, return_inverse=True)[1].ravel()
        self.X, self.Y = X, Y
        self.effective_rows = float(len(X)) if weight is None else float(weight.sum() ** 2 / np.sum(weight**2))
        self.weight = None if weight is None else weight * (self.effective_rows / weight.sum())
        self.n_distinct = len(X) if self.groups is None else int(self.groups.max()) + 1
        self.center, self.whitener = self._whitening()
        self.offset, self.unit = column_units(Y) if scaled else (np.zeros(Y.shape[1]), np.ones(Y.shape[1]))
        self.discrete = self._discrete()

    @property
    def n_inputs(self):
        """k, of whitened inputs."""
        return self.whitener.shape[1]

    @property
    def n_outputs(self):
        """m_L."""
        return self.Y.shape[1]

    @property
    def n_values(self):
        """Effective rows times m_L."""
        return self.n_outputs * self.effective_rows

    def _whitening(self):
        blocks = [slice(s, s + _BLOCK) for s in range(0, len(self.X), _BLOCK)]
        center = sum(np.asarray(self.X[b], dtype=np.float64).sum(axis=0) for b in blocks) / len(self.X)
        covariance = sum(_gram(np.asarray(self.X[b], dtype=np.float64) - center) for b in blocks) / len(self.X)
        deviation = np.sqrt(np.diagonal(covariance))
        varies = deviation > 1e-13 * np.abs(center)
        inverse = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)
        values, vectors = np.linalg.eigh(covariance * np.outer(inverse, inverse))
        kept = values > COLLINEAR * max(values[-1], 1.0)
        return center, inverse[:, None] * vectors[:, kept] / np.sqrt(values[kept])

    def _discrete(self):
        some = np.asarray(self.X[: min(len(self.X), _BLOCK)], dtype=np.float64)
        return np.array([len(np.unique(column)) < _DISCRETE * len(some) for column in some.T])

    @property
    def lost(self):
        """Directions of X in which it does not vary."""
        return len(self.center) - self.n_inputs

    def split(self, share, limit, rng):
        """Rows to fit and rows held out, equal inputs on the same side."""
        groups = np.arange(len(self.X)) if self.groups is None else self.groups
        n_groups = int(groups.max()) + 1
        chosen = np.zeros(n_groups, dtype=bool)
        chosen[rng.permutation(n_groups)[: min(int(share * n_groups), limit)]] = True
        held_out = chosen[groups]
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)

    def rows(self, index):
        """Some rows in memory."""
        U = (np.asarray(self.X[index], dtype=np.float64) - self.center) @ self.whitener
        weight = None if self.weight is None else self.weight[index]
        return WeightedSamples(U, (np.asarray(self.Y[index], dtype=np.float64) - self.offset) / self.unit, weight)

    def blocks(self, size):
        """All rows, some at a time, as `BatchedNetworkFits` reads them."""
        size = min(size, _BLOCK)
        for first in range(0, len(self.X), size):
            rows = self.rows(slice(first, first + size))
            yield rows.U, rows.Y, rows.weight

    def in_inputs(self, network):
        """A network of whitened inputs and standardized targets as a function of X in units of y."""
        W = self.whitener @ network.weights[0]
        weights = [W, *network.weights[1:]]
        biases = [network.biases[0] - self.center @ W, *network.biases[1:]]
        return change_outputs(network.with_parameters(weights, biases), self.offset, self.unit)

    def in_whitened(self, network):
        """The inverse of `in_inputs`."""
        network = change_outputs(network, -self.offset / self.unit, 1.0 / self.unit)
        W = network.weights[0]
        weights = [np.linalg.lstsq(self.whitener, W, rcond=None)[0], *network.weights[1:]]
        return network.with_parameters(weights, [network.biases[0] + self.center @ W, *network.biases[1:]])


def _gram(A):
    return A.T @ A


def _merged(X, Y, weight):
    """Rows that are equal in X and Y as one, in the order of their entries; their weights added."""
    both, inverse = np.unique(np.concatenate([X, Y], axis=1), axis=0, return_inverse=True)
    if weight is None and len(both) == len(X):
        return both[:, : X.shape[1]].copy(), both[:, X.shape[1] :].copy(), None
    weight = np.bincount(inverse.ravel(), weights=weight, minlength=len(both))
    equal = None if np.ptp(weight) <= 1e-14 * weight.max() else weight
    return both[:, : X.shape[1]].copy(), both[:, X.shape[1] :].copy(), equal
