"""The fit that is kept: of exact outputs the least-squares one, of noisy outputs the network of the posterior mean."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from skident.budget.constants import NOISELESS, OUTPUTS_PER_PARAMETER
from skident.fitting.batched_fits import BatchedNetworkFits, PenalizedNetworkFits, network_of
from skident.fitting.lack_of_fit import NO_NOISE, lack_of_fit
from skident.network import FeedforwardNetwork
from skident.optim import Ending, WorkBudget, batched_levenberg_marquardt

from .minima import minima_within_noise, refitted_minima
from .posterior import PosteriorSamples, network_of_mean, sample_posterior
from .width_selection import one_unit_more

__all__ = ["FinalFit", "final_fit", "some_of"]

_SEARCHED = 2**13  # rows at most that widths are searched on, and fits to fresh noise made on


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
