"""The posterior distribution of a network, sampled by fits to targets with fresh noise, and the network of its mean."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import special

from skident.fitting.batched_fits import (
    Halving,
    PenalizedNetworkFits,
    WeightedSamples,
    network_of,
    parameters_of,
    successive_halving,
)

from .minima import resampled

__all__ = ["PosteriorSamples", "network_of_mean", "sample_posterior"]

_RESAMPLES = 24  # fits to fresh noise: their deviation is known to 15 %
_PRICE = 2.5  # of a parameter, see `Scoring.score`
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
    return minima.cost / noise + _PRICE * minima.x.shape[1]
