"""Minima of the penalized fit within the noise, and fits to targets with fresh noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.fitting.batched_fits import (
    BatchedNetworkFits,
    Halving,
    PenalizedNetworkFits,
    Prior,
    WeightedSamples,
    network_of,
    parameters_of,
    random_parameters,
    successive_halving,
)
from skident.optim import Ending, batched_levenberg_marquardt

__all__ = ["Minima", "minima_within_noise", "refitted_minima", "resampled"]

# Penalized cost in units of the noise variance above the least one: a minimum beyond is the better one after fresh
# noise in fewer than one of a thousand samples (the difference of two fits has at most this standard deviation: 4).
_WITHIN_NOISE = 15.0
_MOST = 8  # minima, a bound on the cost
_SAME = 1e-2  # relative distance of parameters below which two ends are one minimum
_ROUNDS = ((25, 12), (60, 8))  # steps and survivors of the race
_END = Ending(max_iter=200, ftol=1e-9)
_FIRST = 8  # steps from every minimum (budget)
_KEPT = 2  # minima that go on (budget)
_LAST = 40  # steps, of which fits to fresh noise take 10 to 20
_FTOL = 1e-4  # a gain of 0.05 in chi squared of 500 outputs, against the noise of 1 in every direction


@dataclass(frozen=True)
class Minima:
    """Minima of a penalized fit that the noise does not distinguish.

    Attributes
    ----------
    architecture : Architecture
    x : ndarray of shape (M, P)
        The best first, the others aligned to it.
    prior : Prior
        With the variance of the noise, per degree of freedom.
    cost : float
        Of the first one, penalized.
    """

    architecture: object
    x: np.ndarray
    prior: Prior
    cost: float = np.inf


def minima_within_noise(architecture, x, noise, rows, limits, rng):
    """Minima of a fit with a broad prior, from given and from random starts.

    x (B, P).

    Without a prior, units of large weights follow the noise at single rows: residuals are then below those of the true
    network, and the standard errors describe another minimum.
    """
    D = rows.n_inputs
    prior = Prior.broad(architecture, D, noise)
    starts = random_parameters(D, architecture, 2 * limits.n_starts, rng)
    ending = replace(_END, budget=limits.budget)
    first = batched_levenberg_marquardt(PenalizedNetworkFits(architecture, rows, prior), x, ending).x
    for _ in range(2):  # the second time with the noise of the best one
        fits = PenalizedNetworkFits(architecture, rows, prior)
        x = successive_halving(
            fits, np.concatenate([first, starts]), Halving(_ROUNDS, ftol=1e-5, budget=limits.budget)
        )[0]
        first = np.concatenate([x, first[:1]])
        prior = _with_noise(architecture, rows, x[0], prior)
        starts = starts[:0]
    return refitted_minima(Minima(architecture, first, prior), rows, limits.budget)


def refitted_minima(minima, rows, budget):
    """The same minima on other rows, those that are left apart and within the noise."""
    architecture, D = minima.architecture, rows.n_inputs
    fits = PenalizedNetworkFits(architecture, rows, minima.prior)
    result = batched_levenberg_marquardt(fits, minima.x, replace(_END, budget=budget))
    order = np.argsort(result.cost, kind="stable")
    best = network_of(result.x[order[0]], D, architecture).canonical()
    kept = [parameters_of(best)]
    for k in order[1:]:
        if len(kept) == _MOST or result.cost[k] > result.cost[order[0]] + _WITHIN_NOISE * minima.prior.noise:
            break
        x = parameters_of(network_of(result.x[k], D, architecture).align_to(best))
        if all(np.linalg.norm(x - one) > _SAME * np.linalg.norm(one) for one in kept):
            kept.append(x)
    prior = _with_noise(architecture, rows, kept[0], minima.prior)
    return Minima(architecture, np.array(kept), prior, float(result.cost[order[0]]))


def _with_noise(architecture, rows, x, prior):
    """The prior with the noise that a fit leaves, per degree of freedom that the prior leaves."""
    fits = BatchedNetworkFits(architecture, rows)
    matrix = fits.normal_equations(x[None])[0][0]
    used = np.trace(np.linalg.lstsq(matrix + np.diag(prior.penalty(fits.shapes)), matrix, rcond=None)[0])
    left = max(rows.n_values - used, 1.0)
    return replace(prior, noise=max(float(fits.cost(x[None])[0]) / left, np.finfo(float).tiny))


def resampled(minima, noise, rows, n_fits, budget, rng):
    """Networks fitted to the targets with fresh noise, each the best that any of the minima leads to.

    Randomized maximum likelihood: noise is added to the targets and to the mean of the prior. Its distribution is the
    posterior one for linear models and close to it for others, minima that the noise may swap among them.
    """
    found = []
    spread = np.sqrt(noise / (np.ones(len(rows.U)) if rows.weight is None else rows.weight))[:, None]
    for _ in range(n_fits):
        noisy = WeightedSamples(rows.U, rows.Y + spread * rng.standard_normal(rows.Y.shape), rows.weight)
        x = _best_fit(minima, noisy, budget, rng)
        if budget.spent:
            break
        found.append(network_of(x, rows.n_inputs, minima.architecture))
    return found


def _best_fit(minima, rows, budget, rng):
    """Of fits from all minima, with the mean of the prior drawn from it."""
    variances = minima.prior.variances(BatchedNetworkFits(minima.architecture, rows).shapes)
    center = np.sqrt(np.where(np.isfinite(variances), variances, 0.0)) * rng.standard_normal(len(variances))
    fits = PenalizedNetworkFits(minima.architecture, rows, minima.prior, center)
    return successive_halving(fits, minima.x, Halving(((_FIRST, _KEPT), (_LAST, 1)), ftol=_FTOL, budget=budget))[0][0]
