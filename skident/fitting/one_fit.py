"""One fit of all weights and shifts from one start."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from skident.network import change_outputs, output_units

from .least_squares import NetworkLeastSquares, minimise

__all__ = ["Stopping", "fit_network"]


@dataclass(frozen=True)
class Stopping:
    """When a fit ends.

    Attributes
    ----------
    max_iter : int
        Steps at most.
    good : float
        Misfit that is good enough.
    patience : int
    gain : float
        The fit is given up when `patience` steps have not lowered the cost to this fraction.
    ftol : float
        It ends when two steps in a row lower the cost by less than this fraction.
    deadline : float
        No step is made after this time, of `time.perf_counter`.
    """

    max_iter: int = 100
    good: float = 1e-10
    patience: int = 12
    gain: float = 0.7
    ftol: float = 1e-4
    deadline: float = np.inf

    def watch(self, total):
        """What `minimise` asks after every step: whether to end; costs are relative to `total`.

        Parameters
        ----------
        total : float
            Cost of the answers themselves.

        Returns
        -------
        callable
            ``stop(n_iter, cost)``.
        """
        costs = []

        def stop(_, cost):
            costs.append(cost)
            late = time.perf_counter() > self.deadline
            slow = len(costs) > self.patience and cost > self.gain * costs[-1 - self.patience]
            return late or cost < self.good**2 * total or slow

        return stop


def fit_network(network, U, Y, stopping=None, *, dense_limit=2000, inner_tol=1e-2):
    """Levenberg-Marquardt on all parameters from one start: ``sum_np (f_p(u_n) - Y_np)^2`` is minimised.

    Parameters
    ----------
    network : FeedforwardNetwork
        Start.
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
    stopping : Stopping, default=None
    dense_limit, inner_tol
        See `NetworkLeastSquares`.

    Returns
    -------
    network : FeedforwardNetwork
    misfit : float
        Relative root mean square; relative to the standard deviations of Y where the output is linear.
    """
    stopping = Stopping() if stopping is None else stopping
    offset, unit = output_units(Y, network.output_activation)
    start, Y = change_outputs(network, -offset / unit, 1.0 / unit), (Y - offset) / unit
    shapes = [W.shape for W in network.weights]
    problem = NetworkLeastSquares(shapes, network.activations, U, Y, dense_limit=dense_limit, inner_tol=inner_tol)
    total = max(float(np.sum(Y**2)), np.finfo(float).tiny)
    result = minimise(
        problem,
        problem.flatten(start.weights, start.biases),
        max_iter=stopping.max_iter,
        target=1e-29 * total,
        ftol=stopping.ftol,
        callback=stopping.watch(total),
    )
    fitted = network.with_parameters(*problem.unflatten(result.x))
    return change_outputs(fitted, offset, unit), float(np.sqrt(result.cost / total))
