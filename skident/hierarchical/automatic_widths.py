"""``widths="auto"``: exact sums of squares, or the posterior mean of wide ones stacked with kernel ridge regression."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import torch

from skident.base.progress import StageLog

from .posterior import posterior_modules
from .problem import Fit
from .scaling import clipped_inputs, robust_scaling
from .solvers import WeightedSamples, set_trainable
from .stacking import KernelRidgePart, MeanOfNetworks, StackedPrediction, stacking_weights
from .sum_fits import EXPLAINED, fit_sum
from .unit_selection import grown_layers, unit_penalties, with_units

__all__ = ["WIDTHS", "fit_automatic_widths"]

WIDTHS = (6, 4)  # (k_2, k_3) from which units are removed: degree 8
_PROMISING = 1e-3  # relative loss of weighted samples below which the remaining units may be exact
_STARTS = 3  # of the chains: one of three may stay without the last layer (budget)
_L2_OF_START = 0.1  # in robust units; the chain forgets it
_STEPS_OF_START = 60  # of Levenberg-Marquardt (budget)
_ITERATIONS = 240  # per chain (budget)
_ITERATIONS_HELD_OUT = 150  # per fold (budget)
_N_FOLDS = 3  # of the stacking, each without one third of the samples (budget)
_MARGIN = 0.5  # of the clipped range, in ranges: means over the posterior grow less outside the data than one network
_SMALL_UNIT = 0.3  # mean weight norm relative to the largest in the layer, below which a unit is not counted
_STEPS_OF_COUNTED = 40  # of Levenberg-Marquardt for the network of the counted units (budget)


def fit_automatic_widths(problem, options):
    """The sum of squares with units selected by the data.

    First, units are removed layer by layer (`grown_layers`); if the rest explains the data to rounding, it is the fit.
    If not, there is noise or the target is outside the class. Then predictions are the posterior mean of networks of
    the full widths, stacked with kernel ridge regression on held-out samples. The network itself is the maximum of the
    posterior with the units that the posterior supports.
    """
    scaling = robust_scaling(problem.y)
    y = scaling.standardized(problem.y)
    exact = _exact(problem, options, WeightedSamples(problem.x, y, (1.0 + y.abs() / 2.0) ** -1.5))
    if exact is not None:
        return exact
    options.log.say("no sum of squares explains the data: posterior mean")
    mean, chain = _posterior_mean(problem, options, _ITERATIONS, _STARTS)
    weights, error = _stacked_on_held_out(problem, options)
    module, history, converged = _counted(problem, options, chain)
    parts = [mean, KernelRidgePart(problem.x, problem.y)] if weights[1] > 0.0 else [mean]
    return Fit(
        scaling.to_original_(module),
        None,
        history[-1:],
        history,
        converged,
        loss=history[-1],
        error=error,
        l2=float("nan"),
        margin=_MARGIN,
        predictor=StackedPrediction(parts, weights),
    )


def _exact(problem, options, samples):
    """The fit with few units, if it is exact; else None."""
    part, module = grown_layers(problem, options, samples)
    scale = float((samples.factors * (samples.y - samples.y.mean())).square().sum())
    with torch.no_grad():
        loss = float(samples.squared_errors(module).sum()) / scale
    options.log.say(f"widths {module.widths}: relative loss {loss:.2e}")
    if not loss < _PROMISING or len(part.x) <= part.architecture.n_weights:
        return None
    start = robust_scaling(problem.y).to_original_(module)
    fit = fit_sum(dataclasses.replace(part, start=start), dataclasses.replace(options, n_starts=1))
    return fit if fit.loss < EXPLAINED and fit.exact else None


def _posterior_mean(problem, options, n_iter, n_starts):
    """Mean of the networks of some chains, and the first chain with its parameter vectors."""
    scaling, chains = robust_scaling(problem.y), []
    samples = WeightedSamples(problem.x.cpu(), scaling.standardized(problem.y).cpu())
    problem = dataclasses.replace(problem, x=samples.x)
    for _ in range(n_starts):
        module = problem.build("sum")
        set_trainable(module)
        options.minimize(module, samples, l2=_L2_OF_START, max_iter=_STEPS_OF_START, patience=_STEPS_OF_START // 6)
        chains.append(posterior_modules(module, samples, np.random.RandomState(problem.seed()), n_iter))
    return MeanOfNetworks.of_chains(chains, scaling), chains[0]


def _stacked_on_held_out(problem, options):
    """Weights of posterior mean and kernel ridge regression, and their relative error on held-out samples."""
    n = len(problem.x)
    predictions, options = np.empty((n, 2)), dataclasses.replace(options, log=StageLog())
    for fold in np.array_split(np.arange(n), _N_FOLDS):
        part = problem.part(np.setdiff1d(np.arange(n), fold))
        mean, _ = _posterior_mean(part, options, _ITERATIONS_HELD_OUT, 1)
        x = clipped_inputs(problem.x[fold], part.x, _MARGIN)
        with torch.no_grad():
            for k, model in enumerate((mean, KernelRidgePart(part.x, part.y))):
                predictions[fold, k] = model(x)[:, 0].numpy()
    return stacking_weights(predictions, problem.y[:, 0].cpu().numpy())


def _counted(problem, options, chained):
    """The network of the units that the posterior supports, in robust units, with its losses and convergence."""
    vectors, chain = chained
    chain.assign(vectors[-1])
    norms = _mean_norms(vectors, chain)
    kept = [torch.nonzero(norm >= _SMALL_UNIT * norm.max())[:, 0] for norm in norms]
    _, module = with_units(problem, copy.deepcopy(chain.module), kept)
    set_trainable(module)
    samples, variance = chain.samples, float(((chain.samples.y - chain.samples.y.mean()) ** 2).sum())
    penalties = unit_penalties(module, chain.noise)
    result = options.minimize(module, samples, l2=penalties, max_iter=options.n_steps(_STEPS_OF_COUNTED))
    with torch.no_grad():
        loss = float(samples.squared_errors(module).sum()) / variance
    return module, [*[cost / variance for cost in result.history], loss], True


def _mean_norms(vectors, chain):
    """Mean weight norms of the units of each layer over the samples of the posterior."""
    sums = None
    for vector in vectors:
        chain.assign(vector)
        norms = [torch.linalg.vector_norm(W.detach(), dim=1) for W in chain.module.weights]
        sums = norms if sums is None else [a + b for a, b in zip(sums, norms)]
    chain.assign(vectors[-1])
    return [total / len(vectors) for total in sums]
