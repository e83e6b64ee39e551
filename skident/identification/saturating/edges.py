"""Where one first-layer unit moves and all others are saturated: its shift, and the rest of the network once more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.fitting.one_fit import Stopping, fit_network
from skident.network import FeedforwardNetwork

from ..query_points import random_tangents

__all__ = ["network_on_edges"]

_PLACES = 24  # random places along a unit's hyperplane
_TRIED = 80  # times as many that are looked at: a fit of shifts from few of them would not be determined
_NODES = 16  # pre-activations at a place
_FAR = 8.0  # largest of them at the first look
_NEAR = 3.0  # later, when it is known where the unit moves
_REACH = 600.0  # how far out places are, in units of one over the flattest unit's weight: far away directions err more
_LIMIT = 40.0  # |z| beyond which tanh, sigmoid and erf are constant in float64, wherever shifts are
_SHIFTS = np.linspace(-10.0, 10.0, 401)  # tried
_REFINED = 3  # times that the best shift's neighbourhood is looked at more closely
_GOOD = 1e-13  # relative misfit at which the joint fit ends


@dataclass(frozen=True)
class _Edges:
    """Answers where one unit at most moves.

    Attributes
    ----------
    unit : ndarray of int, shape (n,)
        Which unit moves.
    Z : ndarray of shape (n, m_1)
        Pre-activations as the first layer found says; those of the other units are far from 0.
    Y : ndarray of shape (n, m_L)
    """

    unit: np.ndarray
    Z: np.ndarray
    Y: np.ndarray


def network_on_edges(oracle, first, network, rng):
    """Mend first-layer shifts of a network whose other weights explain the answers where that layer is saturated.

    Parameters
    ----------
    oracle : Oracle
    first : FirstLayer
        Directions and lengths exactly, shifts only roughly.
    network : FeedforwardNetwork
        Of standardised inputs: that first layer, and what follows it as the vertices tell it.
    rng : numpy.random.RandomState

    Returns
    -------
    network : FeedforwardNetwork
    misfit : float
        Relative root mean square misfit on the edges.

    Notes
    -----
    On an edge, where one unit moves and all others are saturated, all but that unit's shift is known from the vertices,
    so each is found by itself: the best of 401. On the vertices steep units of the second layer may be saturated too,
    which leaves their weights uncertain; on the edges they move. So a fit of all shifts and the rest of the network on
    all edges follows, asked again where the units are known to move by then. ``2 * 24 * 16`` queries a unit at most.

    Examples
    --------
    >>> import numpy as np
    >>> from dataclasses import replace
    >>> from skident.datasets import make_network
    >>> from skident.identification.saturating.edges import network_on_edges
    >>> from skident.identification.saturating.first_layer import find_first_layer
    >>> from skident.oracle import Oracle
    >>> truth = make_network((4, 3, 2), output_activation="identity", shift_scale=0.5, random_state=0)
    >>> rng, oracle = np.random.RandomState(0), Oracle(lambda X: truth(X), 4)
    >>> first = find_first_layer(oracle, n_units=3, rng=rng)
    >>> order = np.argmax(np.abs(first.directions.T @ truth.weights[0]), axis=0)
    >>> signs = np.sign(np.sum(first.weights[:, order] * truth.weights[0], axis=0))
    >>> known = replace(first, weights=truth.weights[0], biases=first.biases[order] * signs + 1.0)
    >>> rough = truth.with_parameters(truth.weights, [known.biases, truth.biases[1]])
    >>> found, _ = network_on_edges(oracle, known, rough, rng)
    >>> print(bool(np.abs(found.biases[0] - truth.biases[0]).max() < 1e-9))
    True
    """
    names = network.activation, network.output_activation
    rest = FeedforwardNetwork(network.weights[1:], network.biases[1:], *names)
    g, m = network.activations[0], len(first.biases)
    edges = _ask_edges(oracle, first, np.zeros(m), _FAR, rng)
    shifts = np.array([_best_shift(rest, g, edges, i) for i in range(m)])
    edges = _ask_edges(oracle, first, -shifts, _NEAR, rng)
    start = FeedforwardNetwork([np.eye(m), *rest.weights], [shifts, *rest.biases], *names)
    stopping = Stopping(max_iter=100, good=_GOOD, patience=30, gain=0.9)
    fitted, misfit = fit_network(start, np.clip(edges.Z, -_LIMIT, _LIMIT), edges.Y, stopping)
    stretches = np.diag(fitted.weights[0])
    weights = [first.weights * stretches, *fitted.weights[1:]]
    biases = [first.biases * stretches + fitted.biases[0], *fitted.biases[1:]]
    return network.with_parameters(weights, biases), misfit


def _ask_edges(oracle, first, centres, half, rng):
    """Answers at random places of every unit's hyperplane, that unit's pre-activation (of `first`) near its centre."""
    m, D = len(first.biases), oracle.n_inputs
    units = np.repeat(np.arange(m), _PLACES)
    normals, lengths = first.directions.T[units], first.norms[units]
    places = np.concatenate([_places(first, i, rng) for i in range(m)])
    z = np.sum(places * first.weights.T[units], axis=1) + first.biases[units]
    wanted = centres[units, None] + half * np.linspace(-1.0, 1.0, _NODES)
    U = places[:, None] + ((wanted - z[:, None]) / lengths[:, None])[:, :, None] * normals[:, None]
    U = U.reshape(-1, D)
    units, wanted = np.repeat(units, _NODES), wanted.ravel()
    Z = U @ first.weights + first.biases
    others = np.abs(Z)
    others[np.arange(len(Z)), units] = np.inf
    alone = others.min(axis=1) > _LIMIT + _SHIFTS[-1]
    U, units, wanted, Z = U[alone], units[alone], wanted[alone], Z[alone]
    Z[np.arange(len(Z)), units] = wanted  # far out they are rounded
    Y, error = oracle.query(U)
    clear = oracle.is_precise(error)
    return _Edges(units[clear], Z[clear], Y[clear])


def _places(first, unit, rng):
    """Random places along a unit's hyperplane, of many those where all other units are saturated."""
    normal = first.directions[:, unit]
    reach = min(_REACH / first.norms.min(), first.radius)
    tried = random_tangents(np.tile(normal, (_TRIED * _PLACES, 1)), reach, rng)
    tried -= first.biases[unit] / first.norms[unit] * normal
    others = np.delete(np.abs(tried @ first.weights + first.biases), unit, axis=1)
    alone = others.min(axis=1, initial=np.inf) > _LIMIT + _SHIFTS[-1] + _FAR * first.norms.max() / first.norms[unit]
    return tried[np.argsort(~alone, kind="stable")[:_PLACES]]


def _best_shift(rest, g, edges, i):
    """The shift of unit i with which the rest of the network explains the answers best."""
    mine = edges.unit == i
    if not mine.any():
        return 0.0
    H, z, Y = g(edges.Z[mine]), edges.Z[mine, i], edges.Y[mine]

    def cost(shift):
        moved = H.copy()
        moved[:, i] = g(z + shift)
        return np.sum((rest(moved) - Y) ** 2)

    shifts, width = _SHIFTS, _SHIFTS[1] - _SHIFTS[0]
    for _ in range(_REFINED):
        best = shifts[int(np.argmin([cost(shift) for shift in shifts]))]
        shifts, width = best + width * np.linspace(-1.0, 1.0, 21), 0.1 * width
    return best
