"""The fit that is kept: of exact outputs the least-squares one, of noisy outputs the network of the posterior mean."""

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import special

from skident.budget.constants import NOISELESS, OUTPUTS_PER_PARAMETER
from skident.fitting.batched_fits import (
    BatchedNetworkFits,
    Halving,
    PenalizedNetworkFits,
    WeightedSamples,
    network_of,
    parameters_of,
    successive_halving,
)
from skident.fitting.lack_of_fit import NO_NOISE, lack_of_fit
from skident.fitting.scored_pruning import PARAMETER_PRICE
from skident.network import FeedforwardNetwork
from skident.optim import Ending, WorkBudget, batched_levenberg_marquardt

from .minima import minima_within_noise, refitted_minima, resampled
from .width_selection import one_unit_more

_SEARCHED = 2**13  # rows at most that widths are searched on, and fits to fresh noise made on
_RESAMPLES = 24  # fits to fresh noise: their deviation is known to 15 %
_LEAST_WEIGHT = 0.02  # of wider networks: with less, half of the fits are better spent on the chosen widths
_FROM_FITS = 8  # fits to fresh noise from which the network of the mean starts, besides the minima (budget)
_MEAN_ROUNDS = ((25, 4), (100, 1))  # steps and survivors of its fit
_MEAN_FTOL = 1e-6  # of a cost that is the distance of the mean from the networks of these widths


@dataclass(frozen=True)
class PosteriorSamples:
    """Networks fitted to targets with fresh noise, of the widths chosen and of wider ones.

    Attributes
    ----------
    groups : list of (list of FeedforwardNetwork, float)
        Networks of equal widths, and the weight of these widths; empty if the budget ended before.
    rows : WeightedSamples or None
        That they were fitted to.
    """

    groups: list = field(default_factory=list)
    rows: WeightedSamples | None = None

    @property
    def n_fits(self):
        """Number of all networks."""
        return sum(len(networks) for networks, _ in self.groups)

    @property
    def per_group(self):
        """Networks of every group."""
        return len(self.groups[0][0]) if self.groups else 0

    def mean(self, statistic):
        """The weighted mean of a statistic of the networks."""
        return sum(weight * np.mean([statistic(one) for one in networks], axis=0) for networks, weight in self.groups)


@dataclass(frozen=True)
class FinalFit:
    """A network fitted to all rows, of whitened inputs and standardized targets.

    Attributes
    ----------
    network : FeedforwardNetwork
    without_held_out : FeedforwardNetwork
        Fitted without the rows held out.
    noise : float
        Standard deviation of the residuals, per degree of freedom.
    lack_of_fit : float
        See `lack_of_fit`.
    minima : list of Minima
        Of its widths, and of networks with one unit more where widths were not given; none where outputs are exact or
        there are no hidden units.
    samples : PosteriorSamples
        Without networks where outputs are exact or residuals are no noise.
    """

    network: FeedforwardNetwork
    without_held_out: FeedforwardNetwork
    noise: float
    lack_of_fit: float
    minima: list
    samples: PosteriorSamples = field(default_factory=PosteriorSamples)


def final_fit(table, rows, found, limits, rng, *, widths_given):
    """Fit again, to all rows and without those held out."""
    architecture, x, k = found.fitted.architecture, found.fitted.x, table.n_inputs
    if len(architecture.widths) > 1 and found.fitted.cost > NOISELESS**2 * rows.total:
        return _fit_of_noisy(table, rows, found, limits, rng, widths_given)
    x = _refit(BatchedNetworkFits(architecture, rows), x)
    without, lack = network_of(x, k, architecture), lack_of_fit(architecture, rows, x, rng)
    fits = BatchedNetworkFits(architecture, table)
    x = _refit(fits, x)
    noise = float(np.sqrt(float(fits.cost(x[None])[0]) / max(table.n_values - len(x), 1.0)))
    return FinalFit(network_of(x, k, architecture), without, noise, lack, [])


def _fit_of_noisy(table, rows, found, limits, rng, widths_given):
    """The network of the posterior mean, or the best minimum if there are too many rows or too little budget for it."""
    architecture, x, k = found.fitted.architecture, found.fitted.x, table.n_inputs
    some = table.rows(some_of(np.arange(len(table.X)), rng))
    noise = found.fitted.cost / max(rows.n_values - len(x), 1.0)
    starts = x[None] if found.ends is None else np.concatenate([x[None], found.ends])
    minima = [minima_within_noise(architecture, starts, noise, some, limits, rng)]
    minima += [] if widths_given else _wider(minima[0], some, limits, rng)
    if len(some.U) < len(table.X):
        minima = [refitted_minima(one, table, limits.budget) for one in minima]
    best, prior = minima[0].x[0], minima[0].prior
    x = _refit(PenalizedNetworkFits(architecture, rows, prior), best, limits.budget)
    without, lack = network_of(x, k, architecture), lack_of_fit(architecture, rows, x, rng)
    noise, samples = float(np.sqrt(prior.noise)), PosteriorSamples()
    if lack >= NO_NOISE:
        samples = sample_posterior(minima, noise, some, limits.budget, rng)
    network = network_of(best, k, architecture)
    if samples.groups and len(some.U) == len(table.X):
        network = network_of_mean(samples, minima[0], limits.budget)
    return FinalFit(network, without, noise, lack, minima, samples)


def _wider(minima, rows, limits, rng):
    """Minima of networks with one unit more in a layer: whether there is such a unit, noise may hide."""
    found, prior = [], minima.prior
    network = network_of(minima.x[0], rows.n_inputs, minima.architecture)
    for layer in range(len(minima.architecture.widths) - 1):
        architecture, starts = one_unit_more(network, layer, prior, limits.n_starts, rng)
        if OUTPUTS_PER_PARAMETER * starts.shape[1] <= rows.n_values and not limits.spent:
            found.append(minima_within_noise(architecture, starts, prior.noise, rows, limits, rng, prior.biases[0]))
    return found


def some_of(index, rng):
    """As many rows as are searched."""
    return index if len(index) <= _SEARCHED else np.sort(rng.permutation(index)[:_SEARCHED])


def _refit(fits, x, budget=None):
    """A few steps more, to rounding or to the minimum."""
    ending = Ending(max_iter=30, ftol=1e-8, damping=1e-8, budget=WorkBudget() if budget is None else budget)
    return batched_levenberg_marquardt(fits, x[None], ending).x[0]


def sample_posterior(minima, noise, rows, budget, rng):
    """`PosteriorSamples` of the first of some `Minima`, and of the best of the wider ones if there are any."""
    groups = _groups(minima)
    n_fits = _RESAMPLES // len(groups)
    found = [(resampled(one, noise**2, rows, n_fits, budget, rng), weight) for one, weight in groups]
    complete = all(len(networks) == n_fits for networks, _ in found)
    return PosteriorSamples(found if complete else [], rows)


def network_of_mean(samples, minima, budget):
    """The network of the chosen widths whose outputs on the rows are closest to the posterior mean.

    Several minima of the cost, and curved valleys, explain noisy targets alike. Their mean has a smaller expected error
    than the best minimum, which follows the noise most closely.
    """
    rows = samples.rows
    mean = samples.mean(lambda network: network(rows.U))
    own = samples.groups[0][0]
    starts = np.concatenate([minima.x, [parameters_of(one) for one in own[:_FROM_FITS]]])
    # The mean is known to the noise over the number of fits, and so the prior counts for less by as much.
    prior = replace(minima.prior, noise=minima.prior.noise / samples.n_fits)
    fits = PenalizedNetworkFits(minima.architecture, WeightedSamples(rows.U, mean, rows.weight), prior)
    x = successive_halving(fits, starts, Halving(_MEAN_ROUNDS, ftol=_MEAN_FTOL, budget=budget))[0][0]
    return network_of(x, rows.n_inputs, minima.architecture)


def _groups(minima):
    """Minima that fits to fresh noise start from, and the weights of these fits.

    By the score that decided on the widths: a wider network at which one more unit is just worth its price has half of
    the weight.
    """
    own, wider = minima[0], minima[1:]
    if not wider:
        return [(own, 1.0)]
    noise = own.prior.noise
    best = min(wider, key=lambda one: _score(one, noise))
    weight = float(special.expit(-0.5 * (_score(best, noise) - _score(own, noise))))
    return [(own, 1.0)] if weight < _LEAST_WEIGHT else [(own, 1.0 - weight), (best, weight)]


def _score(minima, noise):
    return minima.cost / noise + PARAMETER_PRICE * minima.x.shape[1]
