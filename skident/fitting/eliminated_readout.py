"""Least squares over a network's hidden layers, its linear output layer eliminated."""

from __future__ import annotations

import time

import numpy as np

from skident.budget import chunk_bytes as default_chunk_bytes
from skident.network import FeedforwardNetwork, change_outputs, output_units
from skident.network.calculus import forward_jets, output_sensitivities
from skident.optim import DenseNormalEquations, levenberg_marquardt, one_blas_thread

__all__ = ["EliminatedReadout", "fit_hidden_layers"]

_RIDGE = 1e-7  # of the output weights, beside mean squares of units and answers of 1: copies of a unit share their work
_PATIENCE, _GAIN, _FIRST = 12, 0.9, 25  # given up when so many steps leave this of the misfit, after these
_FTOL = 1e-4


class EliminatedReadout:
    """``min_{V, v} sum_n ||V^T h(u_n; theta) + v - y_n||^2 + ridge n (||V||^2 + ||v||^2)`` as a function of theta.

    Parameters
    ----------
    network : FeedforwardNetwork
        Widths and activations; the output is linear.
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
        Of about mean 0 and standard deviation 1.
    chunk_bytes : int, default=None
        Bound on temporaries that grow with n.

    Notes
    -----
    theta are the weights and shifts of all hidden layers, h the last one's outputs. Variable projection (Golub and
    Pereyra, 1973) in Kaufman's form: columns of the Jacobian that the output layer can make are taken out of it,
    ``O(n P^2 m_L)`` a step. Far fewer steps than all parameters at once take, and fewer of them end in local minima.
    """

    def __init__(self, network, U, Y, *, chunk_bytes=None):
        self.like, self.U, self.Y = network, U, Y
        self.shapes = [(a + 1, c) for a, c in (W.shape for W in network.weights[:-1])]
        self.n_parameters = sum(a * c for a, c in self.shapes)
        self.chunk = max(1, (chunk_bytes or default_chunk_bytes()) // (8 * self.n_parameters * Y.shape[1]))

    def flatten(self, network):
        """Weights and shifts of the hidden layers as one vector.

        Parameters
        ----------
        network : FeedforwardNetwork

        Returns
        -------
        ndarray of shape (P,)
        """
        layers = zip(network.weights[:-1], network.biases[:-1], strict=True)
        return np.concatenate([np.vstack([W, b]).ravel() for W, b in layers])

    def network(self, theta):
        """The network with the best output layer.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        FeedforwardNetwork
        """
        layers, readout = self._layers(theta)
        layers = [*layers, readout]
        return FeedforwardNetwork([B[:-1] for B in layers], [B[-1] for B in layers], self.like.activation)

    def _layers(self, theta):
        """Hidden layers, weights above biases, and the best output layer; that is not finite where units overflow."""
        ends = np.cumsum([a * c for a, c in self.shapes])[:-1]
        layers = [part.reshape(shape) for part, shape in zip(np.split(theta, ends), self.shapes, strict=True)]
        H = self.U
        for B, g in zip(layers, self.like.activations[:-1], strict=True):
            H = g(H @ B[:-1] + B[-1])
        H = _with_ones(H)
        gram = self._gram(H)
        if not np.isfinite(gram).all():
            return layers, np.full((H.shape[1], self.Y.shape[1]), np.nan)
        return layers, np.linalg.solve(gram, H.T @ self.Y)

    def _gram(self, H):
        return H.T @ H + _RIDGE * len(H) * np.eye(H.shape[1])

    def cost(self, theta):
        """The minimum over the output layer.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        float
            Infinite where the network is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            layers, readout = self._layers(theta)
            if not all(np.isfinite(part).all() for part in (*layers, readout)):
                return np.inf
            network = self.network(theta)
            cost = np.sum((network(self.U) - self.Y) ** 2) + _RIDGE * len(self.U) * np.sum(readout**2)
            return float(cost) if np.isfinite(cost) else np.inf

    def linearise(self, theta):
        """The Gauss-Newton model at theta.

        Parameters
        ----------
        theta : ndarray of shape (P,)

        Returns
        -------
        DenseNormalEquations
        """
        network, P, m_L = self.network(theta), self.n_parameters, self.Y.shape[1]
        matrix, gradient, gram = np.zeros((P, P)), np.zeros(P), 0.0
        shared = np.zeros((network.weights[-1].shape[0] + 1, m_L, P))
        for first in range(0, len(self.U), self.chunk):
            rows = slice(first, first + self.chunk)
            H, J, residual = self._jacobian(network, rows)
            gram = gram + H.T @ H
            for p in range(m_L):
                matrix += J[:, p].T @ J[:, p]
                gradient += residual[:, p] @ J[:, p]
                shared[:, p] += H.T @ J[:, p]
        gram = gram + _RIDGE * len(self.U) * np.eye(len(gram))
        for p in range(m_L):
            matrix -= shared[:, p].T @ np.linalg.solve(gram, shared[:, p])
        return DenseNormalEquations(matrix, gradient)

    def _jacobian(self, network, rows):
        """What the output reads, extended by 1, (n, m + 1), derivatives by theta (n, m_L, P), residuals (n, m_L)."""
        inputs, jets = forward_jets(network.weights, network.biases, network.activations, self.U[rows], order=1)
        sensitivities, _ = output_sensitivities(network.weights, jets)
        parts = [
            (_with_ones(y)[:, None, :, None] * B[:, :, None, :]).reshape(len(y), B.shape[1], -1)
            for y, B in zip(inputs[:-1], sensitivities[:-1], strict=True)
        ]
        return _with_ones(inputs[-1]), np.concatenate(parts, axis=2), jets[-1][0] - self.Y[rows]


def _with_ones(H):
    return np.hstack([H, np.ones((len(H), 1))])


def fit_hidden_layers(network, U, Y, *, good=4e-4, max_iter=150, deadline=np.inf):
    """Levenberg-Marquardt on all hidden layers from one start, the linear output layer eliminated.

    Parameters
    ----------
    network : FeedforwardNetwork
        Start, with linear output; its output layer does not matter.
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
    good : float, default=4e-4
        Misfit that is good enough, the ridge's share included: some 3e-4 times the length of the output weights.
    max_iter : int, default=150
        Steps at most; fewer where twelve of them gain less than a tenth.
    deadline : float, default=inf
        No step is made after this time, of `time.perf_counter`.

    Returns
    -------
    network : FeedforwardNetwork
    misfit : float
        Root mean square, relative to the standard deviations of Y.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_network
    >>> from skident.fitting.eliminated_readout import fit_hidden_layers
    >>> truth = make_network((4, 3, 2), output_activation="identity", random_state=0)
    >>> rough = truth.with_parameters([W + 0.05 for W in truth.weights], truth.biases)
    >>> U = np.random.default_rng(0).standard_normal((60, 4))
    >>> _, misfit = fit_hidden_layers(rough, U, truth(U))
    >>> print(misfit < 1e-3)
    True
    """
    offset, unit = output_units(Y, "identity")
    problem = EliminatedReadout(network, U, (Y - offset) / unit)
    total, costs = max(float(np.sum(problem.Y**2)), np.finfo(float).tiny), []

    def stop(_, cost):
        costs.append(cost)
        slow = len(costs) > _FIRST and cost > _GAIN**2 * costs[-_PATIENCE]
        return slow or time.perf_counter() > deadline

    with one_blas_thread():
        result = levenberg_marquardt(
            problem.cost,
            problem.linearise,
            problem.flatten(network),
            max_iter=max_iter,
            target=good**2 * total,
            ftol=_FTOL,
            callback=stop,
        )
    fitted = problem.network(result.x)
    misfit = np.linalg.norm(fitted(U) - problem.Y) / np.sqrt(total)
    return change_outputs(fitted, offset, unit), float(misfit)
