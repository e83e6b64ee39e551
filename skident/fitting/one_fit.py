"""One fit of all weights and shifts from one start."""

from __future__ import annotations

import time

import numpy as np

from skident.network import FeedforwardNetwork, change_outputs, output_units

from .least_squares import NetworkLeastSquares, minimise

__all__ = ["fit_network"]


def fit_network(
    network,
    U,
    Y,
    *,
    max_iter=100,
    good=1e-10,
    patience=12,
    gain=0.7,
    ftol=1e-4,
    dense_limit=2000,
    inner_tol=1e-2,
    deadline=np.inf,
):
    """Levenberg-Marquardt on all parameters from one start.

    Parameters
    ----------
    network : FeedforwardNetwork
        Start.
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
    max_iter : int, default=100
    good : float, default=1e-10
        Stop at this misfit.
    patience : int, default=12
    gain : float, default=0.7
        Give up when `patience` steps have not lowered the cost to this fraction.
    ftol : float, default=1e-4
        Stop when two steps in a row lower the cost by less than this fraction.
    dense_limit, inner_tol
        See `NetworkLeastSquares`.
    deadline : float, default=inf
        No step is made after this time, of `time.perf_counter`.

    Returns
    -------
    network : FeedforwardNetwork
    misfit : float
        Relative root mean square; relative to the standard deviations of Y where the output is linear.
    """
    offset, unit = output_units(Y, network.output_activation)
    start, Y = change_outputs(network, -offset / unit, 1.0 / unit), (Y - offset) / unit
    shapes = [W.shape for W in network.weights]
    problem = NetworkLeastSquares(shapes, network.activations, U, Y, dense_limit=dense_limit, inner_tol=inner_tol)
    total = max(float(np.sum(Y**2)), np.finfo(float).tiny)
    costs = []

    def stop(_, cost):
        costs.append(cost)
        late = time.perf_counter() > deadline
        return late or cost < good**2 * total or (len(costs) > patience and cost > gain * costs[-1 - patience])

    result = minimise(
        problem,
        problem.flatten(start.weights, start.biases),
        max_iter=max_iter,
        target=1e-29 * total,
        ftol=ftol,
        callback=stop,
    )
    fitted = FeedforwardNetwork(*problem.unflatten(result.x), network.activation, network.output_activation)
    return change_outputs(fitted, offset, unit), float(np.sqrt(result.cost / total))
