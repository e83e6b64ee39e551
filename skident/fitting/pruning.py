"""Networks made smaller unit by unit, while a fit mends what each removal did."""

from __future__ import annotations

import time

import numpy as np

from .one_fit import Stopping, fit_network
from .removal import cheapest_removal, remove_cheap

__all__ = ["PROMISING", "prune_to", "prune_to_smallest", "shrink"]

PROMISING = 4e-3  # misfit of a wide fit from which pruning starts
_LOST = 3e-2  # misfit after a removal from which no further removal helps
_MENDING = 8  # steps of the fit after a removal


def shrink(network, take, attempt):
    """Remove hidden units as long as the rest can mend what they did.

    Parameters
    ----------
    network : FeedforwardNetwork
    take : callable
        ``take(network, closed)`` gives the next `Removal` to try, or None to end; `closed` is the set of hidden layers
        of which a single unit was tried in vain.
    attempt : callable
        ``attempt(removal)`` gives the mended network, or None where it cannot be mended.

    Returns
    -------
    FeedforwardNetwork
        The last one that could be mended.
    """
    closed = set()
    while (removal := take(network, closed)) is not None:
        mended = attempt(removal)
        if mended is not None:
            network = mended
        elif removal.n_units == 1:
            closed.add(removal.layer)
    return network


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
        Misfit that counts as found; the last fit goes on to a tenth of it.
    callback : callable, default=None
        ``callback(widths, misfit)`` after every removal.
    deadline : float, default=inf
        No step is made after this time, of `time.perf_counter`.

    Returns
    -------
    network : FeedforwardNetwork
    misfit : float
        Infinite when a removal did so much harm that the rest was not tried.
    """
    widths = tuple(widths)
    while True:
        network = _without_cheapest(network, U, Y, widths)
        n_steps = 200 if network.layer_widths == widths else _MENDING
        stopping = Stopping(max_iter=n_steps, good=0.1 * tol, patience=25, deadline=deadline)
        network, misfit = fit_network(network, U, Y, stopping)
        if callback is not None:
            callback(network.layer_widths, misfit)
        if misfit > _LOST or time.perf_counter() > deadline:
            return network, np.inf
        if network.layer_widths == widths:
            return network, misfit


def _without_cheapest(network, U, Y, widths):
    """One unit less, and as many more as cost little beside what is unexplained already; none where none is over."""
    unexplained = np.mean(np.sum((network(U) - Y) ** 2, axis=1))

    def too_wide(net):
        return [layer for layer, m in enumerate(widths[:-1]) if net.layer_widths[layer] > m]

    removal = remove_cheap(network, U, too_wide, lambda one, spent: one.cost <= 0.3 * (unexplained + spent))
    return network if removal is None else removal.network


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
        No removal is tried after this time, of `time.perf_counter`.

    Returns
    -------
    network : FeedforwardNetwork
        The smallest found; every layer's cheapest unit has been tried in vain.
    misfit : float
        At most `tol`, or more if no network on the way explains the answers.
    """
    at_least = [1] * len(network.weights) if at_least is None else list(at_least)
    network, misfit = fit_network(network, U, Y, Stopping(good=0.1 * tol, max_iter=_MENDING, deadline=deadline))

    def take(net, closed):
        over = [k for k, m in enumerate(net.layer_widths[:-1]) if m > at_least[k] and k not in closed]
        return cheapest_removal(net, U, over) if over and time.perf_counter() <= deadline else None

    def attempt(removal):
        nonlocal misfit
        stopping = Stopping(good=0.1 * tol, max_iter=60, patience=25, deadline=deadline)
        mended, trial = fit_network(removal.network, U, Y, stopping)
        if callback is not None:
            callback(mended.layer_widths, trial)
        if not (trial <= tol or (misfit > tol and trial <= max(5.0 * misfit, 0.1 * PROMISING))):
            return None
        misfit = trial
        return mended

    network = shrink(network, take, attempt)
    if misfit > tol:
        stopping = Stopping(good=0.1 * tol, max_iter=200, patience=25, deadline=deadline)
        network, misfit = fit_network(network, U, Y, stopping)
    return network, misfit
