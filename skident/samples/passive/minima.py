"""Minima of the penalized fit within the noise, and fits to targets with fresh noise."""

from dataclasses import dataclass, replace

import numpy as np

from skident.budget.constants import FINE_FTOL, OUTPUTS_PER_PARAMETER
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
from skident.fitting.scored_pruning import WIDE_ROUNDS, Scoring, half_as_wide_again, prune_to
from skident.optim import Ending, batched_levenberg_marquardt

# Penalized cost in units of the noise variance above the least one, alone or with the log determinant of the curvature:
# a minimum beyond is the better one after fresh noise in fewer than one of a thousand samples (the difference of two
# fits has at most this standard deviation: 4).
_WITHIN_NOISE = 15.0
# Variances of pre-activations, of which the evidence chooses. Smaller ones are left out: parameters that the rows
# determine less well would count as determined by the prior alone.
_VARIANCES = (4.0, 2.0, 1.0)
_VARIANCE_STEPS = Ending(max_iter=30, ftol=1e-5)
_MOST = 8  # minima, a bound on the cost
_SAME = 1e-2  # relative distance of parameters below which two ends are one minimum
_ROUNDS = ((25, 12), (60, 8))  # steps and survivors of the race
_END = Ending(max_iter=200, ftol=1e-9)
_FIRST = 8  # steps from every minimum (budget)
_KEPT = 2  # minima that go on (budget)
_LAST = 40  # steps, of which fits to fresh noise take 10 to 20


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
        The least penalized one.
    curvature : ndarray of shape (M,)
        Log determinants of the curvatures, in units of the noise: a minimum holds the more of the posterior
        distribution, the lower they are.
    """

    architecture: object
    x: np.ndarray
    prior: Prior
    cost: float = np.inf
    curvature: np.ndarray | None = None


def minima_within_noise(architecture, x, noise, rows, limits, rng, variance=None):
    """Minima of a fit with a broad prior, from given and from random starts.

    x (B, P). The prior's variance of pre-activations is that of the largest evidence, if it is not given.

    Without a prior, units of large weights follow the noise at single rows: residuals are then below those of the true
    network, and the standard errors describe another minimum.
    """
    D = rows.n_inputs
    prior = Prior.broad(architecture, D, noise)
    starts = random_parameters(D, architecture, 2 * limits.n_starts, rng)
    if (
        variance is None and len(architecture.widths) > 2
    ):  # starts of the widths themselves rarely lead to the best minimum
        starts = np.concatenate([starts, _pruned(architecture, prior, rows, limits, rng)])
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
    variances = _VARIANCES if variance is None else (variance,)
    priors = [Prior.broad(architecture, D, prior.noise, one) for one in variances]
    prior, first = max(
        (_evidence(one, architecture, first, rows, limits.budget) for one in priors), key=lambda e: e[0]
    )[1:]
    return refitted_minima(Minima(architecture, first, prior), rows, limits.budget)


def _evidence(prior, architecture, x, rows, budget):
    """Log evidence of a prior (Laplace, up to a constant), the prior, and the minima with it.

    That of the minimum with the largest one.
    """
    fits = PenalizedNetworkFits(architecture, rows, prior)
    result = batched_levenberg_marquardt(fits, x, replace(_VARIANCE_STEPS, budget=budget))
    variances = prior.variances(fits.shapes)
    least = np.min(result.cost / prior.noise + _log_curvature(fits, result.x, prior.noise))
    return -0.5 * (least + np.sum(np.log(variances[np.isfinite(variances)]))), prior, result.x


def _log_curvature(fits, x, noise):
    """Log determinants (B,) of the Gauss-Newton matrices at x (B, P), penalties included."""
    return np.linalg.slogdet(fits.normal_equations(x)[0] / noise)[1]


def _pruned(architecture, prior, rows, limits, rng):
    """Ends of layers half as wide again, pruned to the widths; (B, P), empty if there are too few rows for these."""
    D, widths = rows.n_inputs, architecture.widths
    wide = architecture.with_widths(half_as_wide_again(widths))
    found = [np.zeros((0, architecture.n_parameters(D)))]
    if OUTPUTS_PER_PARAMETER * wide.n_parameters(D) <= rows.n_values and not limits.spent:
        scoring = Scoring(rows, 0.0, budget=limits.budget, prior=prior)
        x = random_parameters(D, wide, limits.n_starts, rng)
        x, cost = successive_halving(scoring.fits(wide), x, Halving(WIDE_ROUNDS, ftol=FINE_FTOL, budget=limits.budget))
        for end in zip(x, cost, strict=True):
            if not limits.spent:
                found.append(prune_to(scoring.scored(wide, *end), scoring, widths).x[None])
    return np.concatenate(found)


def refitted_minima(minima, rows, budget):
    """The same minima on other rows, those that are left apart and within the noise, the largest evidence first."""
    architecture, D = minima.architecture, rows.n_inputs
    fits = PenalizedNetworkFits(architecture, rows, minima.prior)
    result = batched_levenberg_marquardt(fits, minima.x, replace(_END, budget=budget))
    curvature = _log_curvature(fits, result.x, minima.prior.noise)
    scores = result.cost / minima.prior.noise + curvature
    order = np.argsort(scores, kind="stable")
    best = network_of(result.x[order[0]], D, architecture).canonical()
    kept, index = [parameters_of(best)], [order[0]]
    beyond = np.minimum(scores - scores.min(), (result.cost - result.cost.min()) / minima.prior.noise)
    for k in order[1:]:
        if len(kept) == _MOST or not beyond[k] <= _WITHIN_NOISE:
            continue
        x = parameters_of(network_of(result.x[k], D, architecture).align_to(best))
        if all(np.linalg.norm(x - one) > _SAME * np.linalg.norm(one) for one in kept):
            kept, index = [*kept, x], [*index, k]
    prior = _with_noise(architecture, rows, kept[0], minima.prior)
    return Minima(architecture, np.array(kept), prior, float(result.cost[index].min()), curvature[index])


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
    posterior one for linear models and close to it for others, minima that the noise may swap among them. The noise of
    all fits adds up to 0, so that their mean is the posterior one for linear models.
    """
    found, weight = [], np.ones(len(rows.U)) if rows.weight is None else rows.weight
    spread = np.sqrt(noise / weight)[:, None]
    variances = minima.prior.variances(BatchedNetworkFits(minima.architecture, rows).shapes)
    deviations = np.sqrt(np.where(np.isfinite(variances), variances, 0.0))
    noises, centers = _balanced(n_fits, rows.Y.shape, rng), _balanced(n_fits, deviations.shape, rng)
    for target, center in zip(noises, centers, strict=True):
        noisy = WeightedSamples(rows.U, rows.Y + spread * target, rows.weight)
        x = _best_fit(minima, noisy, deviations * center, budget)
        if budget.spent:
            break
        found.append(network_of(x, rows.n_inputs, minima.architecture))
    return found


def _balanced(n, shape, rng):
    """Standard normal variables (n, *shape) that add up to 0 over the first axis, if there are several."""
    draws = rng.standard_normal((n, *shape))
    return (draws - draws.mean(axis=0)) * np.sqrt(n / (n - 1.0)) if n > 1 else draws


def _best_fit(minima, rows, center, budget):
    """Of fits from all minima, the one of the largest evidence with this mean of the prior."""
    fits = PenalizedNetworkFits(minima.architecture, rows, minima.prior, center)
    x, ending = minima.x, Ending(max_iter=_FIRST, ftol=FINE_FTOL, budget=budget)
    beyond = minima.prior.noise * (np.zeros(len(x)) if minima.curvature is None else minima.curvature)
    for n_kept, steps in ((_KEPT, _LAST), (1, 0)):
        result = batched_levenberg_marquardt(fits, x, ending)
        order = np.argsort(result.cost + beyond, kind="stable")[:n_kept]
        x, beyond = result.x[order], beyond[order]
        ending = replace(ending, max_iter=steps, damping=result.damping[order])
    return x[0]
