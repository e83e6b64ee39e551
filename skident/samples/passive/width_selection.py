"""Layer widths for noisy outputs: units that explain more than chance."""

from dataclasses import replace

import numpy as np

from skident.budget.constants import FEW_ROUNDS, NOISELESS, OUTPUTS_PER_PARAMETER
from skident.fitting.batched_fits import (
    Halving,
    Prior,
    network_of,
    parameters_of,
    random_parameters,
    successive_halving,
)
from skident.fitting.scored_pruning import Scoring, half_as_wide_again, prune_by_score
from skident.network import Architecture

_SMALL = 0.03  # outgoing weights of a unit that is tried, relative to those of the others
_FINISH = {"max_iter": 100, "ftol": 1e-6}


def units_above_noise(found, rows, limits, rng):
    """The network with all units that explain more than noise does, at a level of one in twenty for every unit.

    Weights and biases have Gaussian priors with the variances of the fitted ones; without, units of any size and
    direction fit noise, and the best of them gains as much as small true units. Units are added to every layer one at a
    time, and networks half as wide again are fitted afresh; the result is pruned by the penalized criterion.
    """
    fitted, n_hidden = found.fitted, len(found.fitted.widths) - 1
    exact = fitted.cost <= NOISELESS**2 * rows.total
    if exact or not n_hidden or (n_hidden > 1 and not found.settled) or len(fitted.x) >= rows.n_values:
        return found
    fitted, scoring = _with_its_prior(*_with_its_prior(fitted, Scoring(rows, 0.0, budget=limits.budget)))
    settled = False
    for _ in range(FEW_ROUNDS):
        widths, fitted = fitted.widths, prune_by_score(_grown(fitted, scoring, limits, rng), scoring)
        settled = fitted.widths == widths
        if settled:
            break
        fitted, scoring = _with_its_prior(fitted, scoring)
    best = min(fitted, _afresh(fitted, scoring, limits, rng), key=lambda one: one.score)
    limits.say(f"units that explain more than noise: widths {best.widths}")
    settled = settled and not limits.spent and _may_grow(fitted, scoring, limits)
    return replace(found, fitted=best, settled=found.settled or settled)


def _with_its_prior(fitted, scoring):
    """Fitted again with the prior and the noise that it implies."""
    network = network_of(fitted.x, scoring.samples.n_inputs, fitted.architecture)
    scoring = replace(scoring, prior=_typical(network, scoring.samples))
    return scoring.refit(fitted.architecture, fitted.x[None], **_FINISH), scoring


def _typical(network, rows):
    squares = np.sum((network(rows.U) - rows.Y) ** 2, axis=1)
    left = rows.n_values - network.n_parameters
    return Prior.like(network, float(squares.sum() if rows.weight is None else rows.weight @ squares) / left)


def _grown(fitted, scoring, limits, rng):
    """With units more for as long as they lower the score."""
    while not limits.spent and _may_grow(fitted, scoring, limits):
        larger = [_one_more(fitted, layer, scoring, limits, rng) for layer in range(len(fitted.widths) - 1)]
        best = min(larger, key=lambda one: one.score)
        if best.score >= fitted.score:
            break
        fitted = best
    return fitted


def _may_grow(fitted, scoring, limits):
    few = len(fitted.x) < scoring.samples.n_values / OUTPUTS_PER_PARAMETER
    return few and fitted.architecture.n_hidden < limits.max_neurons


def _one_more(fitted, layer, scoring, limits, rng):
    """The best of networks with one unit more in a layer, which hardly speaks at first."""
    network = network_of(fitted.x, scoring.samples.n_inputs, fitted.architecture)
    return scoring.refit(*one_unit_more(network, layer, scoring.prior, limits.n_starts, rng), **_FINISH)


def one_unit_more(network, layer, prior, n_starts, rng):
    """Starts with one unit more in a layer, which hardly speaks at first.

    Returns (n_starts, P).
    """
    widths, starts = network.layer_widths, []
    architecture = Architecture.of(network).with_widths(m + (k == layer) for k, m in enumerate(widths))
    for _ in range(n_starts):
        weights, biases = list(network.weights), list(network.biases)
        reads = np.sqrt(prior.weights[layer]) * rng.standard_normal((weights[layer].shape[0], 1))
        speaks = _SMALL * np.sqrt(prior.weights[layer + 1]) * rng.standard_normal((1, weights[layer + 1].shape[1]))
        shift = np.sqrt(prior.biases[layer]) * rng.standard_normal(1)
        weights[layer], biases[layer] = np.hstack([weights[layer], reads]), np.append(biases[layer], shift)
        weights[layer + 1] = np.vstack([weights[layer + 1], speaks])
        starts.append(parameters_of(network.with_parameters(weights, biases)))
    return architecture, np.array(starts)


def _afresh(best, scoring, limits, rng):
    """Pruned from new starts of half as many units again."""
    architecture, D = best.architecture.with_widths(half_as_wide_again(best.widths)), scoring.samples.n_inputs
    too_many = architecture.n_hidden > limits.max_neurons
    if too_many or OUTPUTS_PER_PARAMETER * architecture.n_parameters(D) > scoring.samples.n_values or limits.spent:
        return best
    x = random_parameters(D, architecture, limits.n_starts, rng)
    x, cost = successive_halving(scoring.fits(architecture), x, Halving(ftol=1e-4, budget=limits.budget))
    return prune_by_score(scoring.scored(architecture, x[0], cost[0]), scoring)
