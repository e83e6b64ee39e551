"""Fits of many networks of one architecture to the same rows at once, by batched matrix products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget import chunk_bytes as default_chunk_bytes
from skident.network import FeedforwardNetwork
from skident.optim import BatchedNormalEquations

__all__ = ["BatchedNetworkFits", "Rows", "network_of", "parameters_of", "random_parameters"]

_FLOOR = 1e-12  # of the diagonal of the Gauss-Newton matrix: what damps parameters that do nothing
_CACHE = 2**21  # bytes of Jacobians of so many networks at a time as stay near the processor
_SMALL_START = 0.1  # of the usual first-layer weights: those of the least start


@dataclass(frozen=True)
class Rows:
    """Inputs, answers and weights that are held in memory.

    Attributes
    ----------
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
    weight : ndarray of shape (n,), default=None
        Of the rows in the sum of squares; None is 1.
    """

    U: np.ndarray
    Y: np.ndarray
    weight: np.ndarray | None = None

    @property
    def n_inputs(self):
        """D."""
        return self.U.shape[1]

    @property
    def n_outputs(self):
        """m_L."""
        return self.Y.shape[1]

    @property
    def n_answers(self):
        """Sum of the weights, times m_L."""
        return self.n_outputs * (len(self.U) if self.weight is None else float(np.sum(self.weight)))

    @property
    def total(self):
        """Weighted sum of squares of the answers."""
        squares = np.sum(self.Y**2, axis=1)
        return float(squares.sum() if self.weight is None else self.weight @ squares)

    def blocks(self, size):
        """The rows, some at a time.

        Parameters
        ----------
        size : int

        Yields
        ------
        U, Y, weight : ndarrays, the last one or None
        """
        for first in range(0, len(self.U), size):
            part = slice(first, first + size)
            yield self.U[part], self.Y[part], None if self.weight is None else self.weight[part]


class BatchedNetworkFits:
    """``sum_n w_n ||f(u_n; theta_b) - y_n||^2`` for B networks, as `batched_levenberg_marquardt` asks for it.

    Parameters
    ----------
    architecture : Architecture
        Of all of them.
    rows : Rows
        Or anything with its `blocks`, `n_inputs` and `n_outputs`: rows in a file are read block by block.
    chunk_bytes : int, default=None
        Bound on the temporaries that grow with the number of rows: Jacobians of the rows of one block.

    Notes
    -----
    Parameters are ordered as in `NetworkLeastSquares`. A linearisation costs ``O(B n m_L P^2)``, the solution of its
    normal equations ``O(B P^3)``; memory is ``24 B P^2`` bytes and twice `chunk_bytes`, whatever n is.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_network
    >>> from skident.fitting.batched_fits import BatchedNetworkFits, Rows, random_parameters
    >>> from skident.network import Architecture
    >>> from skident.optim import Ending, batched_levenberg_marquardt
    >>> truth = make_network((3, 2, 1), output_activation="identity", random_state=0)
    >>> U = np.random.default_rng(0).standard_normal((100, 3))
    >>> fits = BatchedNetworkFits(Architecture((2, 1)), Rows(U, truth(U)))
    >>> starts = random_parameters(3, Architecture((2, 1)), 8, np.random.RandomState(0))
    >>> result = batched_levenberg_marquardt(fits, starts, Ending(max_iter=60, target=1e-24))
    >>> print(bool(result.cost.min() < 1e-20))
    True
    """

    def __init__(self, architecture, rows, *, chunk_bytes=None):
        widths = architecture.widths
        self.shapes = list(zip((rows.n_inputs, *widths[:-1]), widths, strict=True))
        self.activations, self.rows = architecture.activations, rows
        self.chunk_bytes = chunk_bytes or default_chunk_bytes() // 2
        self.offsets = np.concatenate([[0], np.cumsum([(a + 1) * c for a, c in self.shapes])])

    @property
    def n_parameters(self):
        """P."""
        return int(self.offsets[-1])

    def take(self, index):
        """The problems of some of the networks, which all have the same rows.

        Parameters
        ----------
        index : ndarray of int

        Returns
        -------
        BatchedNetworkFits
            Itself.
        """
        return self

    def move(self, x, steps):
        """Where steps lead.

        Parameters
        ----------
        x, steps : ndarray of shape (B, P)

        Returns
        -------
        ndarray of shape (B, P)
        """
        return x + steps

    def cost(self, x):
        """Weighted sums of squared residuals.

        Parameters
        ----------
        x : ndarray of shape (B, P)

        Returns
        -------
        ndarray of shape (B,)
            Infinite where a network overflows.
        """
        cost = np.zeros(len(x))
        widest = max(c for _, c in self.shapes)
        with np.errstate(over="ignore", invalid="ignore"):
            for U, Y, weight in self.rows.blocks(self._rows_at_once(len(x) * 3 * widest)):
                cost += np.sum(self.residuals(x, U, Y, weight) ** 2, axis=1)
        return np.where(np.isfinite(cost), cost, np.inf)

    def residuals(self, x, U, Y, weight):
        """Of all answers at some rows, times roots of the weights.

        Parameters
        ----------
        x : ndarray of shape (B, P)
        U, Y, weight : ndarrays, the last one or None
            As `Rows.blocks` yields them.

        Returns
        -------
        ndarray of shape (B, m_L n)
        """
        H = U
        for A, activation in zip(self.layers(x), self.activations, strict=True):
            H = activation(H @ A[:, :-1] + A[:, -1:])
        root = 1.0 if weight is None else np.sqrt(weight)
        return (np.swapaxes(H - Y, 1, 2) * root).reshape(len(x), -1)

    def linearise(self, x):
        """The Gauss-Newton models.

        Parameters
        ----------
        x : ndarray of shape (B, P)

        Returns
        -------
        BatchedNormalEquations
        """
        return BatchedNormalEquations(*self.normal_equations(x), floor=_FLOOR)

    def normal_equations(self, x):
        """Gauss-Newton matrices and gradients, added up over blocks of rows.

        Parameters
        ----------
        x : ndarray of shape (B, P)

        Returns
        -------
        matrix : ndarray of shape (B, P, P)
            ``J^T J``.
        gradient : ndarray of shape (B, P)
            ``J^T r``.
        """
        B, P = len(x), self.n_parameters
        matrix, gradient = np.zeros((B, P, P)), np.zeros((B, P))
        for U, Y, weight in self.rows.blocks(self._rows_at_once(B * self.rows.n_outputs * P)):
            together = max(1, _CACHE // (8 * Y.size * P))
            for first in range(0, B, together):
                some = slice(first, first + together)
                J, r = self.jacobians(x[some], U, Y, weight)
                matrix[some] += J @ np.swapaxes(J, 1, 2)
                gradient[some] += (J @ r[:, :, None])[:, :, 0]
        return matrix, gradient

    def _rows_at_once(self, numbers_a_row):
        return max(1, self.chunk_bytes // (8 * numbers_a_row))

    def layers(self, x):
        """Weights on top of shifts.

        Parameters
        ----------
        x : ndarray of shape (B, P)

        Returns
        -------
        list of ndarray of shape (B, m_{l-1} + 1, m_l)
            Views where they can be.
        """
        return [
            x[:, s:e].reshape(len(x), a + 1, c)
            for s, e, (a, c) in zip(self.offsets[:-1], self.offsets[1:], self.shapes, strict=True)
        ]

    def jacobians(self, x, U, Y, weight):
        """Derivatives of all answers at some rows, and residuals, times roots of the weights.

        Parameters
        ----------
        x : ndarray of shape (B, P)
        U, Y, weight : ndarrays, the last one or None
            As `Rows.blocks` yields them.

        Returns
        -------
        J : ndarray of shape (B, P, m_L n)
            Rows last: products of so many numbers in one go are what makes it fast.
        r : ndarray of shape (B, m_L n)
        """
        layers, (n, p), B = self.layers(x), Y.shape, len(x)
        reads, jets, H = [], [], np.broadcast_to(U.T, (B, U.shape[1], n))
        for A, activation in zip(layers, self.activations, strict=True):
            reads.append(np.concatenate([H, np.ones((B, 1, n))], axis=1))
            pre = np.swapaxes(A, 1, 2) @ reads[-1]
            jets.append([np.swapaxes(jet, 1, 2) for jet in activation.jet(np.swapaxes(pre, 1, 2), 1)])
            H = jets[-1][0]
        root = np.ones(n) if weight is None else np.sqrt(weight)
        J, by_post = np.empty((B, self.n_parameters, p, n)), root * np.eye(p)[:, :, None]
        for k in range(len(layers) - 1, -1, -1):
            by_pre = by_post * jets[k][1][:, None]  # (B, m_L, m_l, n)
            (s, e), (a, c) = self.offsets[k : k + 2], self.shapes[k]
            out = J[:, s:e].reshape(B, a + 1, c, p, n)  # a view
            np.multiply(reads[k][:, :, None, None], np.swapaxes(by_pre, 1, 2)[:, None], out=out)
            if k:
                by_post = layers[k][:, None, :-1] @ by_pre
        return J.reshape(B, -1, p * n), ((H - Y.T) * root).reshape(B, p * n)


def random_parameters(n_inputs, architecture, n_starts, rng):
    """Parameters of random networks, for inputs of unit variance.

    Gaussian weights of variance ``1 / m_{l-1}`` and shifts of standard deviation 0.3. The first layer's are scaled,
    from start to start, by factors from 0.1 to 1: units that begin nearly linear do not get lost at high frequencies.

    Parameters
    ----------
    n_inputs : int
    architecture : Architecture
    n_starts : int
    rng : numpy.random.RandomState

    Returns
    -------
    ndarray of shape (n_starts, P)
    """
    widths, layers = architecture.widths, []
    factors = _SMALL_START ** (np.arange(n_starts) % 4 / 3.0)
    for k, (a, c) in enumerate(zip((n_inputs, *widths[:-1]), widths, strict=True)):
        A = rng.standard_normal((n_starts, a + 1, c)) / np.sqrt(a)
        A[:, -1] *= 0.3 * np.sqrt(a)
        layers.append((A if k else factors[:, None, None] * A).reshape(n_starts, -1))
    return np.concatenate(layers, axis=1)


def network_of(x, n_inputs, architecture):
    """The network with given parameters.

    Parameters
    ----------
    x : ndarray of shape (P,)
        Layer by layer, weights on top of shifts, row by row.
    n_inputs : int
    architecture : Architecture

    Returns
    -------
    FeedforwardNetwork
    """
    layers, first = [], 0
    for a, c in zip((n_inputs, *architecture.widths[:-1]), architecture.widths, strict=True):
        layers.append(x[first : first + (a + 1) * c].reshape(a + 1, c))
        first += (a + 1) * c
    return FeedforwardNetwork([A[:-1] for A in layers], [A[-1] for A in layers], *architecture.names)


def parameters_of(network):
    """The parameters of a network, as `network_of` takes them.

    Parameters
    ----------
    network : FeedforwardNetwork

    Returns
    -------
    ndarray of shape (P,)
    """
    return np.concatenate([np.vstack([W, b]).ravel() for W, b in zip(network.weights, network.biases, strict=True)])
