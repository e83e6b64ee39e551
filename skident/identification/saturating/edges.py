"""Biases of first-layer units from edges, where one unit moves and all others are saturated; then a joint fit there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.fitting.least_squares import Stopping, fit_network
from skident.network import FeedforwardNetwork

from ..query_points import random_tangents

__all__ = ["SATURATED", "network_on_edges"]

SATURATED = 40.0  # |z| beyond which tanh, sigmoid and erf are constant in float64: exp(-40) is 4e-18
_PLACES = 24  # random places per unit along its hyperplane
_TRIED = 80  # times as many candidates: with m_1 > D few leave one unit alone, and few places do not fix all biases
_NODES = 16  # pre-activations per place
_FIRST_RANGE = 8.0  # largest |z| while biases are known to some units of z
_RANGE = 3.0  # the same once they are known
_REACH = 600.0  # distance of the places, in units of one over the smallest norm: directions err in proportion to it
_BIASES = np.linspace(-10.0, 10.0, 401)  # corrections that are tried: the profile's bias is good to a few units of z
_REFINEMENTS = 3  # times that the neighborhood of the best one is searched, ten times finer each time
_TARGET = 1e-13  # relative residual at which the joint fit ends; rounding
_STOPPING = Stopping(max_iter=100, target=_TARGET, patience=30, gain=0.9)


@dataclass(frozen=True)
class _Edges:
    """Outputs Y (n, m_L) where only unit `unit` (n,) moves, at pre-activations Z (n, m_1) of the first layer found."""

    unit: np.ndarray
    Z: np.ndarray
    Y: np.ndarray


def network_on_edges(oracle, first, network, rng):
    """Correct the first-layer biases of a network that is exact where that layer is saturated: network, residual.

    Directions and norms of `first` must be exact. On an edge all but the moving unit's bias is known from the vertices,
    so each bias is searched by itself. Steep units of the second layer may be saturated at all vertices, which leaves
    their weights uncertain; on edges they move. So a fit of all biases and of the downstream network follows, on
    outputs queried again near the biases found. The residual is the relative root mean square on the edges.
    ``2 * 24 * 16`` queries per unit at most.
    """
    names = network.activation, network.output_activation
    downstream = FeedforwardNetwork(network.weights[1:], network.biases[1:], *names)
    g, m = network.activations[0], len(first.biases)
    edges = _query_edges(oracle, first, np.zeros(m), _FIRST_RANGE, rng)
    biases = np.array([_best_bias(downstream, g, edges, i) for i in range(m)])
    edges = _query_edges(oracle, first, -biases, _RANGE, rng)
    start = FeedforwardNetwork([np.eye(m), *downstream.weights], [biases, *downstream.biases], *names)
    fitted, residual = fit_network(start, np.clip(edges.Z, -SATURATED, SATURATED), edges.Y, _STOPPING)
    scales = np.diag(fitted.weights[0])
    weights = [first.weights * scales, *fitted.weights[1:]]
    biases = [first.biases * scales + fitted.biases[0], *fitted.biases[1:]]
    return network.with_parameters(weights, biases), residual


def _query_edges(oracle, first, centers, half_width, rng):
    """Outputs at random places of every unit's hyperplane, its pre-activation (of `first`) about its center (m_1,)."""
    m, D = len(first.biases), oracle.n_inputs
    units = np.repeat(np.arange(m), _PLACES)
    normals, norms = first.directions.T[units], first.norms[units]
    places = np.concatenate([_places(first, i, rng) for i in range(m)])
    z = np.sum(places * first.weights.T[units], axis=1) + first.biases[units]
    wanted = centers[units, None] + half_width * np.linspace(-1.0, 1.0, _NODES)
    U = places[:, None] + ((wanted - z[:, None]) / norms[:, None])[:, :, None] * normals[:, None]
    U = U.reshape(-1, D)
    units, wanted = np.repeat(units, _NODES), wanted.ravel()
    Z = U @ first.weights + first.biases
    others = np.abs(Z)
    others[np.arange(len(Z)), units] = np.inf
    alone = others.min(axis=1) > SATURATED + _BIASES[-1]
    U, units, wanted, Z = U[alone], units[alone], wanted[alone], Z[alone]
    Z[np.arange(len(Z)), units] = wanted  # without the rounding of large inputs
    Y, error = oracle.query(U)
    clear = oracle.is_precise(error)
    return _Edges(units[clear], Z[clear], Y[clear])


def _places(first, unit, rng):
    """Random places (24, D) on a unit's hyperplane, first those of many where all other units are saturated."""
    normal = first.directions[:, unit]
    reach = min(_REACH / first.norms.min(), first.radius)
    tried = random_tangents(np.tile(normal, (_TRIED * _PLACES, 1)), reach, rng)
    tried -= first.biases[unit] / first.norms[unit] * normal
    others = np.delete(np.abs(tried @ first.weights + first.biases), unit, axis=1)
    margin = _BIASES[-1] + _FIRST_RANGE * first.norms.max() / first.norms[unit]
    alone = others.min(axis=1, initial=np.inf) > SATURATED + margin
    return tried[np.argsort(~alone, kind="stable")[:_PLACES]]


def _best_bias(downstream, g, edges, i):
    """The correction of unit i's bias with which the downstream network fits the outputs best."""
    mine = edges.unit == i
    if not mine.any():
        return 0.0
    H, z, Y = g(edges.Z[mine]), edges.Z[mine, i], edges.Y[mine]

    def cost(bias):
        moved = H.copy()
        moved[:, i] = g(z + bias)
        return np.sum((downstream(moved) - Y) ** 2)

    biases, width = _BIASES, _BIASES[1] - _BIASES[0]
    for _ in range(_REFINEMENTS):
        best = biases[int(np.argmin([cost(bias) for bias in biases]))]
        biases, width = best + width * np.linspace(-1.0, 1.0, 21), 0.1 * width
    return best
