"""Fits with linear readouts and a direct part."""

from __future__ import annotations

import copy

import numpy as np
import torch

from skident.optim import give_up_when_slow

from .problem import Fit, minimise
from .solvers import set_trainable, warm_start_readout

__all__ = ["fit_linear"]

_L2_GRID = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)


def fit_linear(problem, l2="auto"):
    """Linear readouts and a direct part, started from ridge regression; l2 by 3-fold cross-validation.

    Returns
    -------
    Fit
        ``error`` is the cross-validated relative squared error.

    Raises
    ------
    FloatingPointError
        If no start has finite outputs.
    """
    grid = _L2_GRID if l2 == "auto" else (float(l2),)
    errors = _cross_validated(problem, grid)
    l2 = grid[int(np.argmin(errors))] if errors else 1e-2
    best, losses = None, []
    variance = float(((problem.y - problem.y.mean(dim=0)) ** 2).sum())
    for _ in range(min(2, problem.options["n_init"])):
        module = _start_linear(problem)
        initial = copy.deepcopy(module)
        result = _fit_from(problem, module, l2, 100)
        losses.append(result.cost / variance)
        if best is None or result.cost < best[1].cost:
            best = module, result, initial
    module, result, initial = best
    if not np.isfinite(result.cost):
        raise FloatingPointError
    history = [cost / variance for cost in result.history]
    error = min(errors) if errors else float("inf")
    return Fit(module, losses, history, initial, result.status != "max_iter", error=error, l2=l2)


def _start_linear(problem):
    module = problem.build("linear")
    if problem.start is None:
        with torch.no_grad():
            for W in module.weights:
                W *= 0.5
        warm_start_readout(module, problem.x, problem.y, 1e-2)
    return module


def _fit_from(problem, module, l2, max_iter):
    set_trainable(module, fixed=problem.fixed)
    return minimise(
        problem, module, problem.x, problem.y, l2=l2, max_iter=max_iter, callback=give_up_when_slow(10, 0.0)
    )


def _cross_validated(problem, grid):
    """Relative squared error of every l2 tried, each from new starts; stops where it rose twice in a row.

    From the largest down, since polynomials that are hardly penalised may explode on the held-out rows. Empty where
    rows are too few.
    """
    n = len(problem.x)
    if n < 9 or (len(grid) == 1 and not problem.options.get("compare")):
        return [] if len(grid) > 1 else [float("inf")]
    folds = list(np.array_split(np.arange(n), 3))  # rows come in random order
    parts = [problem.part(np.setdiff1d(np.arange(n), fold)) for fold in folds]
    variance = float(((problem.y - problem.y.mean(dim=0)) ** 2).sum())
    errors = []
    for l2 in grid:
        total = 0.0
        for part, fold in zip(parts, folds):
            module = _start_linear(part)
            _fit_from(part, module, l2, 40)
            with torch.no_grad():
                error = float(((module(problem.x[fold]) - problem.y[fold]) ** 2).sum())
            total += error if np.isfinite(error) else float("inf")
        errors.append(total / variance)
        if len(errors) > 2 and errors[-1] > errors[-2] > errors[-3]:
            break
    return errors
