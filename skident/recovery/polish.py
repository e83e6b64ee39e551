"""The last step: all weights and shifts fitted to rounding error, on inputs where every unit can be seen."""

from __future__ import annotations

import numpy as np

from skident.network import FeedforwardNetwork
from skident.optim import give_up_when_slow

from .least_squares import NetworkLeastSquares, minimise

__all__ = ["change_inputs", "change_outputs", "design_points", "output_units", "polish_from_oracle", "polish_network"]

_CLOSE = 1e-4  # relative misfit below which a slow iteration may still be converging
_SETTLED = 1e-13  # below it, a step that does not gain a factor of ten is rounding
_ANSWERS_PER_PARAMETER = 1.75


def change_inputs(network, center, scale):
    """The same function of ``u``, where ``x = center + scale * u``.

    Parameters
    ----------
    network : FeedforwardNetwork
        A function of x.
    center, scale : ndarray of shape (D,)

    Returns
    -------
    FeedforwardNetwork
        First layer ``scale * W_1`` and ``tau_1 + W_1^T center``; to go back use ``-center / scale`` and ``1 / scale``.
    """
    W, b = network.weights[0], network.biases[0]
    weights = [scale[:, None] * W, *network.weights[1:]]
    return FeedforwardNetwork(
        weights, [b + center @ W, *network.biases[1:]], network.activation, network.output_activation
    )


def output_units(Y, output_activation):
    """Offset and unit of every output, (m_L,): mean and standard deviation where the output is linear, else 0 and 1."""
    if output_activation != "identity":
        return np.zeros(Y.shape[1]), np.ones(Y.shape[1])
    mean, std = Y.mean(axis=0), Y.std(axis=0)
    return mean, np.where(std > 1e-12 * np.abs(mean), std, 1.0)


def change_outputs(network, offset, unit):
    """The network ``offset + unit * f(x)`` of a network f with linear output."""
    weights = [*network.weights[:-1], network.weights[-1] * unit]
    biases = [*network.biases[:-1], network.biases[-1] * unit + offset]
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


def design_points(weights, biases, n_samples, spread, rng, near=0.5):
    """Inputs at which first-layer units move.

    Parameters
    ----------
    weights : ndarray of shape (D, m_1)
    biases : ndarray of shape (m_1,)
    n_samples : int
    spread : float
        Standard deviation of a typical unit's pre-activation under the Gaussian part, whose mean is where the
        pre-activations are smallest.
    rng : numpy.random.RandomState
    near : float, default=0.5
        Fraction of the samples moved along one unit's normal, units in turn, to a pre-activation uniform in
        [-2.5, 2.5]: units whose hyperplane is far from the centre are seen too. Unless it is 0, a unit that is
        saturated on nearly all of the Gaussian part gets ``1.5 (D + 2)`` samples more of its own, since one sample
        tells no more than one number about its D + 1 parameters.

    Returns
    -------
    ndarray of shape (n, D)
        ``n >= n_samples``.
    """
    D, m = weights.shape
    norms = np.linalg.norm(weights, axis=0)
    sigma = spread / np.median(norms)
    units = np.arange(int(near * n_samples)) % m
    # Where the data lie all units may be saturated; here as many as can be are not.
    middle = -np.linalg.lstsq(weights.T, biases, rcond=1e-2)[0]
    far = middle + rng.standard_normal((n_samples - len(units), D)) * sigma
    if len(units):
        visible = np.mean(np.abs(far @ weights + biases) < 2.5, axis=0)
        units = np.concatenate([units, np.repeat(np.flatnonzero(visible < 0.05), int(1.5 * (D + 2)))])
    U = middle + rng.standard_normal((len(units), D)) * sigma
    W = weights[:, units].T
    move = rng.uniform(-2.5, 2.5, len(units)) - np.sum(U * W, axis=1) - biases[units]
    return np.concatenate([U + (move / norms[units] ** 2)[:, None] * W, far])


def polish_network(network, U, Y, *, max_iter=60, tol=1e-15, dense_limit=3000, callback=None):
    """Levenberg-Marquardt on all weights and shifts.

    Parameters
    ----------
    network : FeedforwardNetwork
        Start.
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
        About 1.5 to 2 scalar answers a parameter or more.
    max_iter : int, default=60
    tol : float, default=1e-15
        Stop at this relative root mean square misfit.
    dense_limit : int, default=3000
        See `NetworkLeastSquares`: beyond, conjugate gradients with one preconditioner block a unit.
    callback : callable, default=None
        ``callback(n_iter)`` after every step.

    Returns
    -------
    network : FeedforwardNetwork
    misfit : float
        Relative root mean square misfit on (U, Y); relative to the standard deviations of Y where the output is linear.
    n_iter : int

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_network
    >>> from skident.network import FeedforwardNetwork
    >>> from skident.recovery import polish_network
    >>> truth = make_network((4, 3, 2), random_state=0)
    >>> rough = FeedforwardNetwork([W + 0.01 for W in truth.weights], truth.biases, "tanh", "tanh")
    >>> U = np.random.default_rng(0).standard_normal((60, 4))
    >>> _, misfit, _ = polish_network(rough, U, truth(U))
    >>> print(misfit < 1e-14)
    True
    """
    # Outputs of different units, or with a large offset, would hide in each other's rounding.
    offset, unit = output_units(Y, network.output_activation)
    network, Y = change_outputs(network, -offset / unit, 1.0 / unit), (Y - offset) / unit
    shapes = [W.shape for W in network.weights]
    problem = NetworkLeastSquares(shapes, network.activations, U, Y, dense_limit=dense_limit)
    total = max(float(np.sum(Y**2)), np.finfo(float).tiny)
    slow, previous = give_up_when_slow(12, _CLOSE**2 * total), [np.inf]

    def stop(n_iter, cost):
        settled = cost < _SETTLED**2 * total and cost > 0.1 * previous[0]
        previous[0] = cost
        if callback is not None:
            callback(n_iter)
        return settled or slow(n_iter, cost)

    result = minimise(
        problem,
        problem.flatten(network.weights, network.biases),
        max_iter=max_iter,
        target=tol**2 * total,
        ftol=1e-3,
        callback=stop,
    )
    weights, biases = problem.unflatten(result.x)
    polished = FeedforwardNetwork(weights, biases, network.activation, network.output_activation)
    return change_outputs(polished, offset, unit), float(np.sqrt(result.cost / total)), result.n_iter


def polish_from_oracle(oracle, network, rng, log):
    """Polish on inputs chosen for the purpose: near the centre first, then where every unit bends.

    Parameters
    ----------
    oracle : Oracle
    network : FeedforwardNetwork
        Of standardised inputs.
    rng : numpy.random.RandomState
    log : StageLog

    Returns
    -------
    network : FeedforwardNetwork
    misfit : float
        Relative root mean square misfit of the last round. The second round is left out where the first failed.

    Notes
    -----
    A shallow network with linear output starts in the second round: its start is good wherever its units are.
    """
    shallow = len(network.weights) == 2 and network.output_activation == "identity"
    rounds = [(1.0, 0.5)] if shallow else [(0.5, 0.0), (1.0, 0.5)]
    n = int(_ANSWERS_PER_PARAMETER * network.n_parameters / network.n_outputs) + 4 * network.n_inputs
    for spread, near in rounds:
        with log.stage("polish", oracle) as entry:
            U = design_points(network.weights[0], network.biases[0], n, spread, rng, near)
            network, misfit, _ = polish_network(network, U, oracle(U), callback=entry["progress"])
            entry["residual"] = misfit
        if misfit > _CLOSE:
            break
    return network, misfit
