"""Least squares fits with linear readouts and a direct part; l2 by cross-validation."""

from __future__ import annotations

import copy
import dataclasses
from operator import attrgetter

import numpy as np
import torch

from skident.budget.constants import FEWEST_FOLDED, MAX_STARTS, RANGE_MARGIN
from skident.optim import best_of

from .problem import Attempt, Fit
from .ridge_fallback import fit_ridge_only, has_few_samples, prefers_ridge, ridge_error
from .scaling import clipped_inputs
from .solvers import set_trainable, warm_start_readout

__all__ = ["fit_linear"]

_L2_GRID = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)  # relative to targets of variance one; decades, from the safest down
_L2_OF_FEW_SAMPLES = 1e-2  # the middle of the grid, without cross-validation
_INITIAL_SIZE = 0.5  # factor of N(0, 1 / fan in): squares of squares of larger weights overflow on outliers
_INITIAL_RIDGE = 1e-2  # per sample, of the readouts at the start
_STEPS = 100  # of Levenberg-Marquardt per start (budget)
_VALIDATION_STEPS = 40  # per fold and l2 (budget)
_PATIENCE = 10  # steps in which the loss must halve (budget)


def fit_linear(problem, options, l2="auto", cross_validate=False):
    """Fit linear readouts and a direct part by least squares, initialized by ridge regression.

    l2="auto" is selected by 3-fold cross-validation (0.01 for less than nine samples). The error of the `Fit` is the
    cross-validated relative squared error; for a given l2 it is estimated only if `cross_validate`. Best of two starts.
    """
    automatic = l2 == "auto"
    grid = _L2_GRID if automatic else (float(l2),)
    validated = (automatic or cross_validate) and len(problem.x) >= FEWEST_FOLDED
    folds = np.array_split(np.arange(len(problem.x)), 3)  # samples come in random order
    squares = _cross_validated(problem, options, grid, folds) if validated else []
    errors = [problem.relative_error(some) for some in squares]
    if automatic and problem.start is None:
        ridge = ridge_error(problem, folds) if validated else 1.0
        if prefers_ridge(ridge, min(errors, default=np.inf), problem):
            return fit_ridge_only(problem, ridge)
    l2 = grid[int(np.argmin(errors))] if errors else _L2_OF_FEW_SAMPLES if automatic else grid[0]
    attempts = (_attempt(problem, options, l2) for _ in range(min(MAX_STARTS, options.n_starts)))
    best, losses = best_of(attempts, attrgetter("loss"))
    error, squares = min(errors, default=float("inf")), squares[int(np.argmin(errors))] if errors else None
    margin = 0.0 if validated and has_few_samples(problem) else RANGE_MARGIN
    fit = Fit(best.module, best.initial, losses, best.history, best.converged, error=error, l2=l2, margin=margin)
    return dataclasses.replace(fit, squares=squares)


def _attempt(problem, options, l2):
    """One start; its loss is relative to the variance."""
    module = _start(problem)
    initial, samples = copy.deepcopy(module), problem.samples()
    result = options.minimize(module, samples, l2=l2, max_iter=options.n_steps(_STEPS), patience=_PATIENCE)
    scale = len(problem.x) * problem.variance()
    history = [cost / scale for cost in result.history]
    return Attempt(module, initial, result.cost / scale, history, result.status != "max_iter")


def _start(problem):
    """Small random weights with readouts by ridge regression, or the given start; all but fixed layers trainable."""
    module = problem.build("linear")
    if problem.start is None:
        with torch.no_grad():
            for W in module.weights:
                W *= _INITIAL_SIZE
        warm_start_readout(module, problem.samples(), _INITIAL_RIDGE)
    set_trainable(module, fixed=problem.fixed)
    return module


def _cross_validated(problem, options, grid, folds):
    """Squared errors (n,) of samples left out, for each l2 from new starts; stops once they rose twice in a row.

    From the largest l2 down: polynomials with almost no penalty may overflow on the held-out samples.
    """
    n, found, errors = len(problem.x), [], []
    parts = [problem.part(np.setdiff1d(np.arange(n), fold)) for fold in folds]
    for l2 in grid:
        squares = np.empty(n)
        for part, fold in zip(parts, folds):
            module = _start(part)
            options.minimize(
                module, part.samples(), l2=l2, max_iter=options.n_steps(_VALIDATION_STEPS), patience=_PATIENCE
            )
            x = clipped_inputs(problem.x[fold], part.x, 0.0 if has_few_samples(problem) else RANGE_MARGIN)
            with torch.no_grad():
                squares[fold] = ((module(x) - problem.y[fold]) ** 2).sum(dim=1).cpu()
        found.append(np.nan_to_num(squares, nan=np.inf, posinf=np.inf))
        errors.append(problem.relative_error(found[-1]))
        if len(errors) > 2 and errors[-1] > errors[-2] > errors[-3]:
            break
    return found
