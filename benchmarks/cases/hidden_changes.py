"""Proof by mixed-integer programming that a change of a ReLU network affects no output in a range of inputs."""

from __future__ import annotations

import numpy as np
from scipy import optimize

_CLEAR = 1e-3  # below 0, pre-activation of an inactive unit: far beyond the tolerance of the solver
_SECONDS = 60.0
_N_ROWS = 20_000  # of each kind, at which outputs are compared as well


def affects_no_output(network, box, changed, low, high):
    """Whether inactive units hide each change everywhere in the range, and sampled outputs are equal to the bit.

    A weight affects no output if, in both networks, the unit that it comes from or goes to is inactive at all inputs,
    or all units of a later hidden layer are. ``low`` and ``high`` are the range of every input.
    """
    pair, hidden = (network, box), range(network.n_layers - 1)

    def inactive(layer, unit):
        return all(largest_activation(n, low, high, layer, unit) < -_CLEAR for n in pair)

    def hides(layer, row, unit):
        if row is not None and layer and inactive(layer - 1, row):
            return True
        if layer in hidden and inactive(layer, unit):
            return True
        return any(all(inactive(k, j) for j in range(network.layer_widths[k])) for k in hidden if k > layer)

    return _agrees(network, box, low, high) and all(hides(*name) for name in changed)


def _agrees(network, box, low, high):
    """Whether outputs are equal at uniform samples and at corners of the range."""
    rng = np.random.RandomState(0)
    even = rng.uniform(low, high, (_N_ROWS, len(low)))
    corners = np.where(rng.randint(2, size=even.shape) == 1, high, low)
    return all(np.array_equal(network(X), box(X)) for X in (even, corners))


def largest_activation(network, low, high, layer, unit):
    """An upper bound, to the solver's tolerance, on a ReLU unit's pre-activation in the range: a mixed-integer program.

    Tjeng, Xiao and Tedrake (2019): ``h = relu(z)`` with ``z_low <= z <= z_high`` is ``h >= z``, ``h >= 0``,
    ``h <= z - z_low (1 - a)`` and ``h <= z_high a`` for a binary a.
    """
    D, hidden = len(low), network.layer_widths[:layer]
    n = D + 2 * sum(hidden)
    least, most, binary = np.zeros(n), np.zeros(n), np.zeros(n)
    least[:D], most[:D] = low, high
    rows, lower, upper, before, start = [], [], [], np.arange(D), D
    for W, b in zip(network.weights[:layer], network.biases[:layer]):
        z_low = np.minimum(W.T * least[before], W.T * most[before]).sum(axis=1) + b
        z_high = np.maximum(W.T * least[before], W.T * most[before]).sum(axis=1) + b
        h, a = start + np.arange(len(b)), start + len(b) + np.arange(len(b))
        most[h], most[a], binary[a], start = np.maximum(z_high, 0.0), 1.0, 1.0, start + 2 * len(b)
        above = np.zeros((len(b), n))
        above[np.arange(len(b)), h], above[:, before] = 1.0, -W.T
        below, off = above.copy(), np.zeros_like(above)
        below[np.arange(len(b)), a] = -np.minimum(z_low, 0.0)
        off[np.arange(len(b)), h], off[np.arange(len(b)), a] = 1.0, -most[h]
        rows += [above, below, off]
        lower += [b, np.full(2 * len(b), -np.inf)]
        upper += [np.full(len(b), np.inf), b - np.minimum(z_low, 0.0), np.zeros(len(b))]
        before = h
    W, b, cost = network.weights[layer], network.biases[layer], np.zeros(n)
    cost[before] = -W[:, unit]
    if not rows:
        return float(np.maximum(W[:, unit] * low, W[:, unit] * high).sum() + b[unit])
    within = optimize.LinearConstraint(np.vstack(rows), np.concatenate(lower), np.concatenate(upper))
    found = optimize.milp(
        cost,
        bounds=optimize.Bounds(least, most),
        integrality=binary,
        constraints=within,
        options={"time_limit": _SECONDS},
    )
    bound = found.mip_dual_bound
    return np.inf if bound is None or not np.isfinite(bound) else float(b[unit] - bound)
