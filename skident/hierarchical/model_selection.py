"""Model selection on held-out samples: the penalty of the sum form, and the sum form or linear readouts."""

import copy
import dataclasses

import numpy as np
import torch

from skident.base.progress import StageLog
from skident.budget.constants import FEWEST_FOLDED, HALVING_STEPS, NEAR_STEPS, RANGE_MARGIN

from .linear_readout_fits import fit_linear, has_few_samples
from .scaling import clipped_inputs, robust_scaling
from .solvers import set_trainable
from .sum_fits import EXPLAINED, fit_sum

# Penalties relative to robustly scaled targets. Half decades in the range that helps targets with noise of 0.3 standard
# deviations; tuned on seeds 0 to 9 of make_hierarchical_target(10, (3, 2)), 600 samples.
_L2_GRID = (0.0, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
_PATIENCE = 6  # steps per penalty in which the objective must halve (budget)
_HOPELESS = 0.02  # relative loss above which three starts of the sum suffice (budget)
_FAR_BEHIND = 1.15  # ratio of errors in the first fold above which other folds are not fitted (budget)


def fit_penalized_sum(problem, options, l2="auto"):
    """`fit_sum`, with a cross-validated penalty if the sum does not explain the data."""
    fit = fit_sum(problem, options, l2)
    tunable = l2 == "auto" and problem.whole and len(problem.x) >= FEWEST_FOLDED
    if not tunable or not fit.finite or fit.loss < EXPLAINED:
        return fit
    return with_selected_penalty(problem, options, fit, l2)


def with_selected_penalty(problem, options, fit, l2="auto", rival=np.inf):
    """Refit a sum of squares with the penalty that 3-fold cross-validation selects; the fit has its held-out error.

    With noise, the weights follow the noise of the few samples with the largest features, and polynomials of degree
    ``2^L`` amplify it at new samples; generalized cross-validation does not detect this. Each penalty's fit is
    initialized at that of the next smaller one. For a given `l2`, or if `problem.whole` is False, only the error is
    estimated. It is infinite if the first fold has a clearly larger error than a `rival`, and nothing is refitted if a
    rival is better.
    """
    grid = _L2_GRID if l2 == "auto" and problem.whole else (fit.l2,)
    squares = _cross_validated(problem, options, grid, rival)
    errors = [problem.relative_error(some) for some in squares]
    best = int(np.argmin(errors))
    error = errors[best] if np.isfinite(errors[best]) else float("inf")
    if best == 0 or not error < rival:
        return dataclasses.replace(fit, error=error, squares=squares[best])
    module, history, converged = list(_penalty_path(problem, options, fit.module, grid[: best + 1]))[-1]
    losses = list(fit.restart_losses)
    with torch.no_grad():
        loss = float(problem.mean((module(problem.x) - problem.y) ** 2)) / problem.variance()
    losses[losses.index(fit.loss)] = loss
    history = [*fit.history, *history]
    changed = {"module": module, "restart_losses": losses, "history": history, "converged": converged}
    changed["squares"] = squares[best]
    return dataclasses.replace(fit, **changed, loss=loss, error=error, l2=grid[best])


def _penalty_path(problem, options, module, grid):
    """Module, history and convergence for each penalty after the first, with which `module` was fitted."""
    scaling = robust_scaling(problem.y)
    samples = problem.samples(scaling.standardized(problem.y))
    scale = len(problem.x) * problem.variance() / scaling.scale**2
    module = scaling.to_standardized_(copy.deepcopy(module))
    set_trainable(module, fixed=problem.fixed)
    for l2 in grid[1:]:
        result = options.minimize(module, samples, l2=l2, max_iter=options.n_steps(NEAR_STEPS), patience=_PATIENCE)
        history = [cost / scale for cost in result.history]
        yield scaling.to_original_(copy.deepcopy(module)), history, result.status != "max_iter"


def _cross_validated(problem, options, grid, rival):
    """Squared errors (penalties, n) of samples left out, from new starts; infinite if far above a rival's."""
    n, hopeless = len(problem.x), np.full((len(grid), len(problem.x)), np.inf)
    squares = np.zeros((len(grid), n))
    options = dataclasses.replace(options, n_starts=min(2, options.n_starts), patience=HALVING_STEPS, log=StageLog())
    for fold in np.array_split(np.arange(n), 3):
        part = problem.part(np.setdiff1d(np.arange(n), fold))
        fit = fit_sum(part, options, grid[0])
        if not fit.finite:
            return hopeless
        x, y = clipped_inputs(problem.x[fold], part.x, RANGE_MARGIN), problem.y[fold]
        modules = [fit.module, *[module for module, *_ in _penalty_path(part, options, fit.module, grid)]]
        with torch.no_grad():
            squares[:, fold] = [((module(x) - y) ** 2).sum(dim=1).cpu().numpy() for module in modules]
        if fold[0] == 0:
            w = np.ones(n) if problem.weights is None else problem.sample_weights
            spread = w[fold] @ ((y - problem.mean(problem.y)) ** 2).sum(dim=1).cpu().numpy()
            if not np.nanmin(squares[:, fold] @ w[fold]) <= _FAR_BEHIND * rival * spread:
                return hopeless
    return np.nan_to_num(squares, nan=np.inf, posinf=np.inf)


def fit_auto(problem, options, l2="auto"):
    """The sum form if it explains the data or has a lower held-out error than linear readouts, else these."""
    if has_few_samples(problem):
        return fit_linear(problem, options, l2, cross_validate=True)
    fit = fit_sum(problem, options, l2, hopeless=_HOPELESS)
    if fit.loss < EXPLAINED:
        return fit
    if not fit.finite:
        return fit_linear(problem, options, l2)
    linear = fit_linear(problem, options, l2, cross_validate=True)
    fit = with_selected_penalty(problem, options, fit, l2, linear.error)
    return fit if fit.error < linear.error else linear
