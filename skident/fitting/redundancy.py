"""Whether a network has units that its function does not need."""

from __future__ import annotations

import time

import numpy as np

from .one_fit import Stopping, fit_network
from .pruning import shrink
from .removal import cheapest_removal

__all__ = ["redundant_units"]

_NO_LOSS = 1e-8  # of the answers' standard deviation
_CHEAP = 1e-3  # loss from which a fit of the others may still make up for a unit
_MANY = 3000  # parameters above which no such fit is tried


def redundant_units(network, U=None, tol=1e-5, *, deadline=np.inf):
    """Count hidden units that could be left out without changing the function, layer by layer.

    Parameters
    ----------
    network : FeedforwardNetwork
    U : ndarray of shape (n, D), default=None
        Inputs at which units move, with two answers a parameter or more. With them a unit is also counted when others
        can take its place there: when a fit without it misses the network's own answers by less than 1e-8 of their
        standard deviation.
    tol : float, default=1e-5
        Two units are one if their weights and shifts, scaled to length 1, differ by less than this up to sign; a unit
        does nothing if its incoming or its outgoing weights are below a hundredth of this fraction of its layer's
        largest.
    deadline : float, default=inf
        No unit is tried after this time, of `time.perf_counter`: what is counted until then is returned.

    Returns
    -------
    list of int
        One a hidden layer; all zero for a network that no smaller one of this kind replaces.

    Notes
    -----
    For tanh these are the only ways in which one hidden layer can be reducible (Sussmann, 1992). A fit with too many
    units reaches zero misfit on a set of such networks, in which the other weights are arbitrary. The misfit is
    quadratic in the distance from the set, so at rounding level the distance is far below `tol`.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.network import FeedforwardNetwork
    >>> from skident.fitting.redundancy import redundant_units
    >>> W = np.array([[1.0, 1.0, 0.5], [2.0, 2.0, 0.1]])
    >>> print(redundant_units(FeedforwardNetwork([W, np.ones((3, 1))], [np.zeros(3), np.zeros(1)])))
    [1]
    """
    counts = []
    for W, b, after in zip(network.weights[:-1], network.biases[:-1], network.weights[1:], strict=True):
        incoming, outgoing = np.linalg.norm(W, axis=0), np.linalg.norm(after, axis=1)
        idle = (incoming <= 0.01 * tol * incoming.max()) | (outgoing <= 0.01 * tol * outgoing.max())
        units = np.vstack([W, b])[:, ~idle]
        units = units / np.linalg.norm(units, axis=0)
        # The sine, not the cosine: 1 - cos is blind below 1e-8.
        gaps = [_distances(units[:, i], units[:, :i]) for i in range(units.shape[1])]
        doubles = sum(len(g) > 0 and g.min() < tol for g in gaps)
        counts.append(int(idle.sum() + doubles))
    return counts if U is None else [max(pair) for pair in zip(counts, _replaceable(network, U, deadline), strict=True)]


def _replaceable(network, U, deadline):
    """Hidden units, layer by layer, without which the network can be fitted to its own answers on U."""
    Y = network(U)
    unit = max(float(np.sum(np.var(Y, axis=0))), np.finfo(float).tiny)

    def mended(removal):
        if removal.cost > _CHEAP**2 * unit:
            return None
        if removal.cost <= _NO_LOSS**2 * unit:
            return removal.network
        # Units on their way to being one: a fit that converges slowly leaves them some way apart.
        if removal.network.n_parameters > _MANY:
            return None
        fitted, misfit = fit_network(
            removal.network, U, Y, Stopping(good=0.1 * _NO_LOSS, max_iter=60, deadline=deadline)
        )
        return fitted if misfit <= _NO_LOSS else None

    counts = []
    for layer in range(len(network.weights) - 1):

        def take(net, closed, layer=layer):
            able = net.layer_widths[layer] > 1 and layer not in closed and time.perf_counter() <= deadline
            return cheapest_removal(net, U, [layer]) if able else None

        smaller = shrink(network, take, mended)
        counts.append(network.layer_widths[layer] - smaller.layer_widths[layer])
        network = smaller
    return counts


def _distances(unit, others):
    """Distances of a unit vector (d,) from unit vectors (d, k) up to sign."""
    signs = np.where(unit @ others < 0, -1.0, 1.0)
    return np.linalg.norm(unit[:, None] - signs * others, axis=0)
