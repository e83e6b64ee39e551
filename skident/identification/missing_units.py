"""Units too weak to be seen far away, or hidden behind others there: as many as noisy answers ask for."""

from __future__ import annotations

import functools

import numpy as np

from skident.fitting.design import design_points
from skident.fitting.polish import NOISY_ANSWERS, polish_network
from skident.fitting.removal import cheapest_removal
from skident.network import FeedforwardNetwork, get_activation

__all__ = ["with_missing_units"]

_CANDIDATES, _TRIALS = 1000, 4  # random units looked at, and of these the ones that are fitted
_ROUNDS, _SETTLED = 3, 0.998  # of the polish, and part of the misfit that a round leaves when it is the last
_LENGTHS = 0.5  # spread of the logarithm of their lengths around those of the other units


def with_missing_units(oracle, network, noise, rng, *, at_most, out_of_time=lambda: False, callback=None):
    """A network of one hidden layer with the units that noisy answers ask for, no more and no fewer.

    One unit at a time is fitted to what the network leaves of ``10 P / m_L`` answers, then everything at once; it stays
    if the sum of squares falls by more than ``k log(n m_L)`` noise variances, k being the unit's parameters (the
    Bayesian information criterion, the noise read off what is left). Then units are left out as long as that
    criterion does not miss them: what was added first may have stood for several.

    Parameters
    ----------
    oracle : Oracle
    network : FeedforwardNetwork
        Of standardised inputs, with one hidden layer, linear output, fitted.
    noise : ndarray of shape (m_L,)
        Standard deviation of every output's error.
    rng : numpy.random.RandomState
    at_most : int
        Hidden units.
    out_of_time : callable, default=never
        Whether to stop.
    callback : callable, default=None
        ``callback(n_units)`` whenever there is one more or one less.

    Returns
    -------
    network : FeedforwardNetwork
        Fitted to these answers.
    misfit : float
        See `polish_network`.

    Raises
    ------
    BlackBoxError
        If the black box fails.
    """
    U, Y, best = np.empty((0, oracle.n_inputs)), np.empty((0, network.n_outputs)), np.inf
    while network.layer_widths[0] < at_most and not out_of_time():
        U, Y = _more_answers(oracle, network, U, Y, rng)
        before, _ = _settled(network, U, Y, noise)
        grown, misfit = _settled(_with_unit(before, U, Y, noise, rng), U, Y, noise)
        if not _needed(before, grown, U, Y, noise):
            break
        network, best = grown, misfit
        if callback is not None:
            callback(network.layer_widths[0])
    while 1 < network.layer_widths[0] and len(U) and not out_of_time():
        larger, settled = _settled(network, U, Y, noise)
        smaller, misfit = _settled(cheapest_removal(larger, U, [0]).network, U, Y, noise)
        if _needed(smaller, larger, U, Y, noise):
            return larger, settled
        network, best = smaller, misfit
        if callback is not None:
            callback(network.layer_widths[0])
    return network, best


def _settled(network, U, Y, noise):
    """The network polished until that gains nothing, and its misfit: from afar, single rounds end early."""
    misfit = np.inf
    for _ in range(_ROUNDS):
        network, left, _ = polish_network(network, U, Y, noise=noise)
        if left > _SETTLED * misfit:
            break
        misfit = left
    return network, left


def _more_answers(oracle, network, U, Y, rng):
    """As many answers as the network with one more unit takes, those there are among them."""
    P = network.n_parameters + network.n_inputs + network.n_outputs + 1
    n = max(int(NOISY_ANSWERS * P / network.n_outputs) - len(U), 0)
    W, b = network.weights[0], network.biases[0]
    fresh, told = oracle.ask_near(lambda n, factor: design_points(W, b, n, factor, rng), n)
    return np.concatenate([U, fresh]), np.concatenate([Y, told])


def _with_unit(network, U, Y, noise, rng):
    """The network and the unit that explains most of what it leaves."""
    W, b, left = network.weights[0], network.biases[0], Y - network(U)
    g = get_activation(network.activation)
    lengths = rng.choice(np.linalg.norm(W, axis=0), _CANDIDATES) * np.exp(_LENGTHS * rng.standard_normal(_CANDIDATES))
    normals = rng.standard_normal((U.shape[1], _CANDIDATES))
    normals *= lengths / np.linalg.norm(normals, axis=0)
    biases = -np.sum(normals * U[rng.randint(len(U), size=_CANDIDATES)].T, axis=0)
    outputs = g(U @ normals + biases)
    outputs -= outputs.mean(axis=0)
    size = np.maximum(np.linalg.norm(outputs, axis=0), np.finfo(float).tiny)
    explained = np.sum((outputs.T @ ((left - left.mean(axis=0)) / noise)) ** 2, axis=1) / size**2
    fit = functools.partial(_fitted_unit, network, U, left, noise)
    units = [fit(normals[:, k], biases[k]) for k in np.argsort(-explained)[:_TRIALS]]
    unit = min(units, key=lambda unit: _chi2(unit, U, left, noise))
    return FeedforwardNetwork(
        [np.column_stack([W, unit.weights[0]]), np.concatenate([network.weights[1], unit.weights[1]])],
        [np.concatenate([b, unit.biases[0]]), network.biases[1] + unit.biases[1]],
        network.activation,
        network.output_activation,
    )


def _fitted_unit(network, U, left, noise, normal, bias):
    """A network of one unit, fitted to what is left from this start."""
    output = get_activation(network.activation)(U @ normal + bias)
    columns = np.column_stack([output, np.ones(len(U))])
    readout = np.linalg.lstsq(columns, left, rcond=None)[0]
    start = FeedforwardNetwork(
        [normal[:, None], readout[:1]], [np.array([bias]), readout[1]], network.activation, network.output_activation
    )
    return polish_network(start, U, left, noise=noise)[0]


def _chi2(network, U, Y, noise):
    return float(np.sum(((network(U) - Y) / noise) ** 2))


def _needed(before, after, U, Y, noise):
    """Whether the larger network explains more than noise."""
    n = len(U) * Y.shape[1]
    old, new = _chi2(before, U, Y, noise), _chi2(after, U, Y, noise)
    variance = new / max(n - after.n_parameters, 1)
    return old - new > (after.n_parameters - before.n_parameters) * np.log(n) * variance
