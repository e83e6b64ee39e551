"""Networks made smaller unit by unit, while a fit mends what each removal did."""

from __future__ import annotations

import time

import numpy as np

from .one_fit import fit_network
from .removal import removal_costs, remove_unit

__all__ = ["PROMISING", "prune_to", "prune_to_smallest"]

PROMISING = 4e-3  # misfit of a wide fit from which pruning starts
_LOST = 3e-2  # misfit after a removal from which no further removal helps

_MENDING = 8  # steps of the fit after a removal


def prune_to(network, U, Y, widths, *, tol=1e-9, callback=None, deadline=np.inf):
    """Remove hidden units until given widths are reached, mending the rest after each.

    Parameters
    ----------
    network : FeedforwardNetwork
        Fits (U, Y) well.
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
    widths : sequence of int
        None of them above the network's.
    tol : float, default=1e-9
    callback : callable, default=None
        ``callback(widths, misfit)`` after every removal.
    deadline : float, default=inf
        See `fit_network`.

    Returns
    -------
    network : FeedforwardNetwork
    misfit : float
        Infinite when a removal did so much harm that the rest was not tried.
    """
    widths = tuple(widths)
    while network.layer_widths != widths:
        network = _without_cheapest(network, U, Y, widths)
        last = network.layer_widths == widths
        n_steps = 200 if last else _MENDING
        network, misfit = fit_network(network, U, Y, good=0.1 * tol, max_iter=n_steps, patience=25, deadline=deadline)
        if callback is not None:
            callback(network.layer_widths, misfit)
        if misfit > _LOST or time.perf_counter() > deadline:
            return network, np.inf
    return network, misfit


def _without_cheapest(network, U, Y, widths):
    """One unit less, and as many more as cost little beside what is unexplained already."""
    unexplained = np.mean(np.sum((network(U) - Y) ** 2, axis=1))
    first = True
    while True:
        costs, takeovers = removal_costs(network, U)
        over = [layer for layer, m in enumerate(widths[:-1]) if network.layer_widths[layer] > m]
        if not over:
            return network
        layer = min(over, key=lambda k: costs[k].min())
        unit = int(np.argmin(costs[layer]))
        if not first and costs[layer][unit] > 0.3 * unexplained:
            return network
        network = remove_unit(network, layer, unit, takeovers[layer][:, unit])
        unexplained += costs[layer][unit]
        first = False


def prune_to_smallest(network, U, Y, *, at_least=None, tol=1e-9, callback=None, deadline=np.inf):
    """Remove hidden units as long as the rest can mend what they did.

    Parameters
    ----------
    network : FeedforwardNetwork
        Fits (U, Y) well, to some thousandths at least.
    U : ndarray of shape (n, D)
    Y : ndarray of shape (n, m_L)
    at_least : sequence of int, default=None
        Widths below which layers are not pruned.
    tol : float, default=1e-9
        Misfit of a network that explains the answers.
    callback : callable, default=None
        ``callback(widths, misfit)`` after every removal tried.
    deadline : float, default=inf
        See `fit_network`.

    Returns
    -------
    network : FeedforwardNetwork
        The smallest found; every layer's cheapest unit has been tried in vain.
    misfit : float
        At most `tol`, or more if no network on the way explains the answers.
    """
    at_least = [1] * len(network.weights) if at_least is None else list(at_least)
    n_hidden = len(network.weights) - 1
    network, misfit = fit_network(network, U, Y, good=0.1 * tol, max_iter=_MENDING)
    closed = [False] * n_hidden
    while True:
        costs, takeovers = removal_costs(network, U)
        width = network.layer_widths
        over = [k for k in range(n_hidden) if width[k] > at_least[k] and not closed[k]]
        if not over or time.perf_counter() > deadline:
            break
        layer = min(over, key=lambda k: costs[k].min())
        unit = int(np.argmin(costs[layer]))
        smaller = remove_unit(network, layer, unit, takeovers[layer][:, unit])
        smaller, trial = fit_network(smaller, U, Y, good=0.1 * tol, max_iter=60, patience=25)
        if callback is not None:
            callback(smaller.layer_widths, trial)
        if trial <= tol or (misfit > tol and trial <= max(5.0 * misfit, 0.1 * PROMISING)):
            network, misfit = smaller, trial
        else:
            closed[layer] = True
    if misfit > tol:
        network, misfit = fit_network(network, U, Y, good=0.1 * tol, max_iter=200, patience=25)
    return network, misfit
