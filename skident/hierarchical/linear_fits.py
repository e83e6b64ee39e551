"""Fits with linear readouts and a direct part."""

from __future__ import annotations

import copy
from operator import attrgetter

import numpy as np
import torch

from skident.optim import best_of

from .clipping import MARGIN, clipped_inputs
from .few_rows import fit_direct, has_few_rows, is_better, ridge_error
from .problem import Attempt, Fit
from .solvers import WeightedRows, set_trainable, warm_start_readout

__all__ = ["fit_linear"]

_L2_GRID = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)
_L2_OF_FEW_ROWS = 1e-2
_FEWEST_ROWS = 9  # for cross-validation
_PATIENCE = 10  # steps in which the loss must halve


def fit_linear(problem, search, l2="auto", cross_validate=False):
    """Linear readouts and a direct part, started from ridge regression.

    Parameters
    ----------
    problem : Problem
    search : Search
        Two starts at most.
    l2 : float or "auto", default="auto"
        "auto" is chosen by 3-fold cross-validation; 0.01 for less than nine rows.
    cross_validate : bool, default=False
        Whether to estimate the error for a given l2 too.

    Returns
    -------
    Fit
        ``error`` is the cross-validated relative squared error, infinite where there was no cross-validation; not
        finite if no start has finite outputs.
    """
    automatic = l2 == "auto"
    grid = _L2_GRID if automatic else (float(l2),)
    validated = (automatic or cross_validate) and len(problem.x) >= _FEWEST_ROWS
    folds = np.array_split(np.arange(len(problem.x)), 3)  # rows come in random order
    errors = _cross_validated(problem, search, grid, folds) if validated else []
    if automatic and problem.start is None:
        ridge = ridge_error(problem, folds) if validated else 1.0
        if is_better(ridge, min(errors, default=np.inf), problem):
            return fit_direct(problem, ridge)
    l2 = grid[int(np.argmin(errors))] if errors else _L2_OF_FEW_ROWS if automatic else grid[0]
    attempts = (_attempt(problem, search, l2) for _ in range(min(2, search.n_init)))
    best, losses = best_of(attempts, attrgetter("loss"))
    error = min(errors) if errors else float("inf")
    margin = 0.0 if validated and has_few_rows(problem) else MARGIN
    return Fit(best.module, best.initial, losses, best.history, best.converged, error=error, l2=l2, margin=margin)


def _attempt(problem, search, l2):
    """One start, and its loss relative to the variance."""
    module = _start(problem)
    initial, rows = copy.deepcopy(module), WeightedRows(problem.x, problem.y)
    result = search.minimise(module, rows, l2=l2, max_iter=search.steps(100), patience=_PATIENCE)
    scale = _sum_of_squares(problem.y)
    history = [cost / scale for cost in result.history]
    return Attempt(module, initial, result.cost / scale, history, result.status != "max_iter")


def _start(problem):
    """Small random weights and the readouts that suit them; or a given start. All but fixed layers to be trained."""
    module = problem.build("linear")
    if problem.start is None:
        with torch.no_grad():
            for W in module.weights:
                W *= 0.5
        warm_start_readout(module, problem.x, problem.y, 1e-2)
    set_trainable(module, fixed=problem.fixed)
    return module


def _cross_validated(problem, search, grid, folds):
    """Relative squared error of every l2 tried, each from new starts; stops where it rose twice in a row.

    From the largest down, since polynomials that are hardly penalised may explode on the held-out rows.
    """
    n, errors = len(problem.x), []
    parts = [problem.part(np.setdiff1d(np.arange(n), fold)) for fold in folds]
    for l2 in grid:
        total = 0.0
        for part, fold in zip(parts, folds):
            module = _start(part)
            rows = WeightedRows(part.x, part.y)
            search.minimise(module, rows, l2=l2, max_iter=search.steps(40), patience=_PATIENCE)
            x = clipped_inputs(problem.x[fold], part.x, 0.0 if has_few_rows(problem) else MARGIN)
            with torch.no_grad():
                error = float(((module(x) - problem.y[fold]) ** 2).sum())
            total += error if np.isfinite(error) else float("inf")
        errors.append(total / _sum_of_squares(problem.y))
        if len(errors) > 2 and errors[-1] > errors[-2] > errors[-3]:
            break
    return errors


def _sum_of_squares(y):
    """About the mean."""
    return float(((y - y.mean(dim=0)) ** 2).sum())
