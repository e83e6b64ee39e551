"""The fit that is kept: of exact outputs the least-squares one, of noisy outputs the best minimum within the noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.fitting.batched_fits import BatchedNetworkFits, network_of
from skident.fitting.lack_of_fit import lack_of_fit
from skident.network import FeedforwardNetwork
from skident.optim import Ending, batched_levenberg_marquardt

from .minima import minima_within_noise, refitted_minima
from .width_selection import one_unit_more

__all__ = ["FinalFit", "final_fit", "some_of"]

_SEARCHED = 2**13  # rows at most that widths are searched on, and fits to fresh noise made on
_OUTPUTS_PER_PARAMETER = 2.0  # of networks with a unit more
_ROUNDING = 1e-9  # relative residual below which outputs have no detectable noise


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
    """

    network: FeedforwardNetwork
    without_held_out: FeedforwardNetwork
    noise: float
    lack_of_fit: float
    minima: list


def final_fit(table, rows, found, limits, rng, *, widths_given):
    """Fit again, first to the rows searched and then to all."""
    architecture, x, k = found.fitted.architecture, found.fitted.x, table.n_inputs
    noisy = len(architecture.widths) > 1 and found.fitted.cost > _ROUNDING**2 * rows.total
    if noisy:
        noise = found.fitted.cost / max(rows.n_values - len(x), 1.0)
        minima = minima_within_noise(architecture, x[None], noise, rows, limits, rng)
    x = minima.x[0] if noisy else _refit(architecture, rows, x)
    without, lack = network_of(x, k, architecture), lack_of_fit(architecture, rows, x, rng)
    if noisy:
        wider = [] if widths_given else _wider(minima, rows, limits, rng)
        minima = [refitted_minima(one, table, limits.budget) for one in (minima, *wider)]
        network = network_of(minima[0].x[0], k, architecture)
        return FinalFit(network, without, float(np.sqrt(minima[0].prior.noise)), lack, minima)
    x = _refit(architecture, table, x)
    cost = float(BatchedNetworkFits(architecture, table).cost(x[None])[0])
    noise = float(np.sqrt(cost / max(table.n_values - len(x), 1.0)))
    return FinalFit(network_of(x, k, architecture), without, noise, lack, [])


def _wider(minima, rows, limits, rng):
    """Minima of networks with one unit more in a layer: whether there is such a unit, noise may hide."""
    found, prior = [], minima.prior
    network = network_of(minima.x[0], rows.n_inputs, minima.architecture)
    for layer in range(len(minima.architecture.widths) - 1):
        architecture, starts = one_unit_more(network, layer, prior, limits.n_starts, rng)
        if _OUTPUTS_PER_PARAMETER * starts.shape[1] <= rows.n_values and not limits.spent:
            found.append(minima_within_noise(architecture, starts, prior.noise, rows, limits, rng))
    return found


def some_of(index, rng):
    """As many rows as are searched."""
    return index if len(index) <= _SEARCHED else np.sort(rng.permutation(index)[:_SEARCHED])


def _refit(architecture, rows, x):
    """A few steps more, to rounding or to the minimum."""
    result = batched_levenberg_marquardt(
        BatchedNetworkFits(architecture, rows), x[None], Ending(max_iter=30, ftol=1e-8, damping=1e-8)
    )
    return result.x[0]
