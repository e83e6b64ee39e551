"""Pruning of hidden units: what removing one costs, networks pruned while a fit mends them, redundant units."""

import time
from dataclasses import dataclass

import numpy as np

from skident.budget.constants import DENSE_PARAMETERS, EXACT_RANK_TOL, FEW_STEPS, REFIT_STEPS, ROOT_RANK_TOL
from skident.linalg import svd
from skident.network import FeedforwardNetwork, get_activation
from skident.network.calculus import forward_jets, output_sensitivities

from .least_squares import Stopping, fit_network

PROMISING = 4e-3  # residual of a wide fit from which pruning starts: most of those near a solution are below 2e-3
_HOPELESS = 3e-2  # residual after a removal from which further ones do not lead back to an exact fit
_FINAL_STEPS = 200  # of the fit at the widths wanted
_PATIENCE = 25  # steps without progress after which such a fit ends
_CHEAP_SHARE = 0.3  # of the residual's mean square: further removals that cost less go at once
_ACCEPTED_GROWTH = 5.0  # of the residual of a network that is not exact yet, by one removal
_NO_LOSS = 1e-8  # residual, relative to the standard deviation of the outputs, of a removal that changes nothing
_MENDABLE = 1e-3  # relative residual up to which a fit of the other units may still replace a unit
_CONSTANT = 4.0 * np.finfo(float).eps  # range of a unit over the layer's largest output: rounding
_DEAD_SHARE = 0.01  # of `tol`: weight norms, relative to the layer's largest, of units without effect


def removal_costs(network, U):
    """What removing each hidden unit costs if the other units of its layer replace it as well as they can.

    Returns per hidden layer the predicted increases (m_l,) of the mean squared error on U (n, D), summed over outputs,
    and replacements (m_l + 1, m_l): column j is the combination of the other units, and of 1 (last row), closest to
    unit j. With ``a = (y_l, 1)`` and ``G = E[a a^T]``, that is ``-sum_i (G^-1)_ij / (G^-1)_jj a_i``, with mean squared
    error ``1 / (G^-1)_jj``; outgoing weights and the mean of ``B^T B``, ``B = d f / d z``, carry it to the outputs.
    Copies, constant units and units without outgoing weights cost nothing. ``O(n m^2 + m^3)`` per layer.
    Source: the optimal brain surgeon (Hassibi and Stork, 1993) for whole units.
    """
    inputs, jets = forward_jets(network.weights, network.biases, network.activations, U, order=1)
    sensitivities, _ = output_sensitivities(network.weights, jets)
    costs, replacements = [], []
    for y, W, B in zip(inputs[1:], network.weights[1:], sensitivities[1:], strict=True):
        inverse = _inverse_gram(np.hstack([y, np.ones((len(y), 1))]))
        own = np.diag(inverse)[:-1]
        metric = np.tensordot(B, B, axes=((0, 1), (0, 1))) / len(U)
        costs.append(np.einsum("jp,pq,jq->j", W, metric, W) / own)
        replacement = -inverse[:, :-1] / own
        np.fill_diagonal(replacement, 0.0)
        replacements.append(replacement)
    return costs, replacements


def _inverse_gram(a):
    """Inverse of ``E[a a^T]``, from singular values of the columns scaled to norm 1: copies differ by rounding only."""
    norms = np.sqrt(np.mean(a**2, axis=0))
    norms = np.maximum(norms, ROOT_RANK_TOL * norms.max())
    short = len(a) < a.shape[1]
    s, Vt = svd(a / norms, full_matrices=short)[1:]
    if short:  # null vectors too
        s = np.append(s, np.zeros(a.shape[1] - len(s)))
    s = np.maximum(s, EXACT_RANK_TOL * s[0])
    return (Vt.T * (len(a) / s**2)) @ Vt / (norms[:, None] * norms)


def remove_unit(network, layer, unit, replacement):
    """The network without one unit of a hidden layer (from 0), its outgoing weights given to others (m_l + 1,)."""
    weights, biases = list(network.weights), list(network.biases)
    outgoing = weights[layer + 1][unit]
    weights[layer + 1] = np.delete(weights[layer + 1] + np.outer(replacement[:-1], outgoing), unit, axis=0)
    biases[layer + 1] = biases[layer + 1] + replacement[-1] * outgoing
    weights[layer] = np.delete(weights[layer], unit, axis=1)
    biases[layer] = np.delete(biases[layer], unit)
    return network.with_parameters(weights, biases)


def without_constant_units(network, U):
    """The network without the hidden units that are constant on U (n, D), which biases replace; one per layer stays.

    Hidden layers whose units are the identity on U, as ReLU units that are always active, go as well, but for one.
    """
    weights, biases, Y, linear = list(network.weights), list(network.biases), U, []
    for k, activation in enumerate(network.activations[:-1]):
        Z = Y @ weights[k] + biases[k]
        Y = activation(Z)
        kept = np.ptp(Y, axis=0) > _CONSTANT * np.abs(Y).max()
        kept[0] |= not kept.any()
        biases[k + 1] = biases[k + 1] + Y[0, ~kept] @ weights[k + 1][~kept]
        weights[k], biases[k], weights[k + 1] = weights[k][:, kept], biases[k][kept], weights[k + 1][kept]
        Y = Y[:, kept]
        linear += [k] * np.array_equal(Y, Z[:, kept])
    for k in linear[: len(weights) - 2][::-1]:
        biases[k : k + 2] = [biases[k] @ weights[k + 1] + biases[k + 1]]
        weights[k : k + 2] = [weights[k] @ weights[k + 1]]
    return FeedforwardNetwork(weights, biases, network.activations[0], network.activations[-1])


@dataclass(frozen=True)
class Removal:
    """A network after hidden units were removed: the layer of the last one, their number and summed cost."""

    network: FeedforwardNetwork
    layer: int
    n_units: int
    cost: float


def cheapest_removal(network, U, layers):
    """The removal of the unit that costs least on U (n, D), of hidden layers (from 0) with two units or more."""
    costs, replacements = removal_costs(network, U)
    layer = min(layers, key=lambda k: costs[k].min())
    unit = int(np.argmin(costs[layer]))
    smaller = remove_unit(network, layer, unit, replacements[layer][:, unit])
    return Removal(smaller, layer, 1, float(costs[layer][unit]))


def remove_cheap(network, U, layers, cheap, limit=np.inf):
    """Remove the cheapest unit, then up to `limit` in all while ``cheap(next removal, cost so far)`` holds.

    ``layers(network)`` gives the hidden layers that may lose a unit; None if there are none at the start.
    """
    total = None
    while layers(network) and (total is None or total.n_units < limit):
        one = cheapest_removal(network, U, layers(network))
        if total is not None and not cheap(one, total.cost):
            break
        spent, n_units = (0.0, 0) if total is None else (total.cost, total.n_units)
        total = Removal(one.network, one.layer, n_units + 1, spent + one.cost)
        network = one.network
    return total


def prune_units(network, propose, mend):
    """Remove hidden units as long as the others can replace them.

    ``propose(network, closed)`` gives the next `Removal` to try, or None to end; `closed` are the hidden layers of
    which a single unit was tried in vain. ``mend(removal)`` gives the mended network, or None if the removal cannot be
    mended.
    """
    closed = set()
    while (removal := propose(network, closed)) is not None:
        mended = mend(removal)
        if mended is not None:
            network = mended
        elif removal.n_units == 1:
            closed.add(removal.layer)
    return network


def prune_to(network, U, Y, widths, *, tol=1e-9, deadline=np.inf):
    """Remove hidden units until given widths are reached, refitting to U (n, D) and Y (n, m_L) after each.

    Returns the network and its residual, which is infinite if a removal did so much harm that pruning was given up. The
    last fit goes on to a tenth of the residual `tol`.
    """
    widths = tuple(widths)
    while True:
        network = _without_cheapest(network, U, Y, widths)
        n_steps = _FINAL_STEPS if network.layer_widths == widths else FEW_STEPS
        stopping = Stopping(max_iter=n_steps, target=0.1 * tol, patience=_PATIENCE, deadline=deadline)
        network, residual = fit_network(network, U, Y, stopping)
        if residual > _HOPELESS or time.perf_counter() > deadline:
            return network, np.inf
        if network.layer_widths == widths:
            return network, residual


def _without_cheapest(network, U, Y, widths):
    """One unit less, and more if they cost little beside what is unexplained already; the network itself if narrow."""
    unexplained = np.mean(np.sum((network(U) - Y) ** 2, axis=1))

    def too_wide(net):
        return [layer for layer, m in enumerate(widths[:-1]) if net.layer_widths[layer] > m]

    removal = remove_cheap(network, U, too_wide, lambda one, spent: one.cost <= _CHEAP_SHARE * (unexplained + spent))
    return network if removal is None else removal.network


def prune_to_smallest(network, U, Y, min_widths, *, tol, deadline=np.inf):
    """Remove hidden units, down to `min_widths`, as long as a refit to U (n, D) and Y (n, m_L) replaces them.

    Returns the smallest network, of which every layer's cheapest unit was tried in vain, and its residual: at most
    `tol`, unless no network on the way explains the outputs.
    """
    target = 0.1 * tol
    first = Stopping(target=target, max_iter=FEW_STEPS, deadline=deadline)
    network, residual = fit_network(network, U, Y, first)

    def propose(net, closed):
        wide = [k for k, m in enumerate(net.layer_widths[:-1]) if m > min_widths[k] and k not in closed]
        return cheapest_removal(net, U, wide) if wide and time.perf_counter() <= deadline else None

    def mend(removal):
        nonlocal residual
        stopping = Stopping(target=target, max_iter=REFIT_STEPS, patience=_PATIENCE, deadline=deadline)
        mended, trial = fit_network(removal.network, U, Y, stopping)
        if not (trial <= tol or (residual > tol and trial <= max(_ACCEPTED_GROWTH * residual, 0.1 * PROMISING))):
            return None
        residual = trial
        return mended

    network = prune_units(network, propose, mend)
    if residual > tol:
        stopping = Stopping(target=target, max_iter=_FINAL_STEPS, patience=_PATIENCE, deadline=deadline)
        network, residual = fit_network(network, U, Y, stopping)
    return network, residual


def redundant_units(network, U=None, tol=1e-5, *, deadline=np.inf):
    """Count hidden units per layer that could be removed without changing the function; linear ones do not count.

    Two units are one if their incoming weights and biases, scaled to norm 1, differ by less than `tol` up to sign. A
    unit is dead if its incoming or outgoing weights are below a hundredth of `tol`, relative to its layer. With inputs
    U (n, D), two outputs per parameter or more, a unit also counts if a fit without it reproduces the network's outputs
    there to 1e-8 of their standard deviation.

    For tanh these are the only ways in which one hidden layer can be reducible (Sussmann, 1992). A fit with redundant
    units reaches zero residual on a set of such networks, in which the other weights are arbitrary. The residual is
    quadratic in the distance from that set, so at rounding level the distance is far below `tol`.
    """
    counts, n_linear = [], getattr(get_activation(network.activations[0]), "n_linear", 0)
    for W, b, after in zip(network.weights[:-1], network.biases[:-1], network.weights[1:], strict=True):
        m = W.shape[1] - n_linear
        incoming, outgoing = np.linalg.norm(W[:, :m], axis=0), np.linalg.norm(after[:m], axis=1)
        least = _DEAD_SHARE * tol
        dead = (incoming <= least * incoming.max()) | (outgoing <= least * outgoing.max())
        units = np.vstack([W, b])[:, :m][:, ~dead]
        units = units / np.linalg.norm(units, axis=0)
        # The sine, not the cosine: 1 - cos cannot resolve angles below 1e-8.
        gaps = [_distances(units[:, i], units[:, :i]) for i in range(units.shape[1])]
        doubles = sum(len(g) > 0 and g.min() < tol for g in gaps)
        counts.append(int(dead.sum() + doubles))
    if U is None or n_linear:  # a fit without a unit would change which units are linear
        return counts
    return [max(pair) for pair in zip(counts, _replaceable(network, U, deadline), strict=True)]


def _replaceable(network, U, deadline):
    """Hidden units per layer without which the network can be fitted to its own outputs on U (n, D)."""
    Y = network(U)
    variance = max(float(np.sum(np.var(Y, axis=0))), np.finfo(float).tiny)

    def mend(removal):
        if removal.cost > _MENDABLE**2 * variance:
            return None
        if removal.cost <= _NO_LOSS**2 * variance:
            return removal.network
        # Units that are merging: a fit that converges slowly leaves them some way apart.
        if removal.network.n_parameters > DENSE_PARAMETERS:
            return None
        stopping = Stopping(target=0.1 * _NO_LOSS, max_iter=REFIT_STEPS, deadline=deadline)
        fitted, residual = fit_network(removal.network, U, Y, stopping)
        return fitted if residual <= _NO_LOSS else None

    counts = []
    for layer in range(len(network.weights) - 1):

        def propose(net, closed, layer=layer):
            able = net.layer_widths[layer] > 1 and layer not in closed and time.perf_counter() <= deadline
            return cheapest_removal(net, U, [layer]) if able else None

        smaller = prune_units(network, propose, mend)
        counts.append(network.layer_widths[layer] - smaller.layer_widths[layer])
        network = smaller
    return counts


def _distances(direction, others):
    """Distances of a unit vector (d,) from unit vectors (d, k) up to sign."""
    signs = np.where(direction @ others < 0, -1.0, 1.0)
    return np.linalg.norm(direction[:, None] - signs * others, axis=0)
