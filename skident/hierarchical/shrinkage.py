"""The penalty of a sum of squares that does not explain the data, chosen on held-out samples."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import torch

from skident.base.progress import StageLog

from .clipping import MARGIN, clipped_inputs
from .solvers import WeightedRows, set_trainable
from .sum_fits import EXPLAINED, fit_sum
from .units import robust_units

__all__ = ["fit_shrunk_sum", "shrunk"]

# Half decades where penalties help targets with noise of 0.3 standard deviations; tuned on seeds 0 to 9 of
# make_hierarchical_target(10, (3, 2)), 600 samples. Of robustly standardised targets.
_L2_GRID = (0.0, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
_FEWEST_ROWS = 9  # for cross-validation
_STEPS = 40  # per penalty at most (budget)
_PATIENCE = 10  # steps in which the objective must halve (budget)


def fit_shrunk_sum(problem, search, l2="auto"):
    """`fit_sum`, with a penalty on the weights if the sum does not explain the data.

    Parameters
    ----------
    problem : Problem
        One output.
    search : Search
    l2 : float or "auto", default="auto"

    Returns
    -------
    Fit
    """
    found = fit_sum(problem, search, l2)
    tunable = l2 == "auto" and problem.whole and len(problem.x) >= _FEWEST_ROWS
    return shrunk(problem, search, found, l2) if tunable and found.finite and not found.loss < EXPLAINED else found


def shrunk(problem, search, found, l2="auto"):
    """A sum of squares fitted again with the penalty that 3-fold cross-validation chooses.

    With noise, the weights follow the noise of the few samples with the largest features, and polynomials of degree
    ``2^L`` amplify that at new samples; generalised cross-validation does not see it.

    Parameters
    ----------
    problem : Problem
        One output.
    search : Search
    found : Fit
        Of `fit_sum`, finite.
    l2 : float or "auto", default="auto"
        What `found` was fitted with.

    Returns
    -------
    Fit
        With its cross-validated error.

    Notes
    -----
    Penalties rise, each fit starting at the one before. If `l2` is given, or single layers are fitted
    (`problem.whole` is False), the error alone is measured.
    """
    grid = _L2_GRID if l2 == "auto" and problem.whole else (found.l2,)
    errors = _cross_validated(problem, search, grid)
    best = int(np.argmin(errors))
    error = errors[best] if np.isfinite(errors[best]) else float("inf")
    if best == 0:
        return dataclasses.replace(found, error=error)
    module, history, converged = list(_path(problem, search, found.module, grid[: best + 1]))[-1]
    losses = list(found.restart_losses)
    with torch.no_grad():
        loss = float(((module(problem.x) - problem.y) ** 2).mean() / ((problem.y - problem.y.mean()) ** 2).mean())
    losses[losses.index(found.loss)] = loss
    history = [*found.history, *history]
    changed = {"module": module, "restart_losses": losses, "history": history, "converged": converged}
    return dataclasses.replace(found, **changed, loss=loss, error=error, l2=grid[best])


def _path(problem, search, module, grid):
    """Module, history and convergence with each penalty after the first one, which `module` was fitted with."""
    units = robust_units(problem.y)
    rows = WeightedRows(problem.x, units.standardised(problem.y))
    scale = float(((rows.y - rows.y.mean()) ** 2).sum())
    module = units.enter_(copy.deepcopy(module))
    set_trainable(module, fixed=problem.fixed)
    for l2 in grid[1:]:
        result = search.minimise(module, rows, l2=l2, max_iter=search.steps(_STEPS), patience=_PATIENCE)
        history = [cost / scale for cost in result.history]
        yield units.leave_(copy.deepcopy(module)), history, result.status != "max_iter"


def _cross_validated(problem, search, grid):
    """Relative squared error with each penalty on held-out samples, from new starts."""
    n, totals = len(problem.x), np.zeros(len(grid))
    search = dataclasses.replace(search, n_init=min(2, search.n_init), log=StageLog())
    for fold in np.array_split(np.arange(n), 3):
        part = problem.part(np.setdiff1d(np.arange(n), fold))
        fit = fit_sum(part, search, grid[0])
        if not fit.finite:
            return np.full(len(grid), np.inf)
        x, y = clipped_inputs(problem.x[fold], part.x, MARGIN), problem.y[fold]
        modules = [fit.module, *[module for module, *_ in _path(part, search, fit.module, grid)]]
        with torch.no_grad():
            totals += [float(((module(x) - y) ** 2).sum()) for module in modules]
    return np.nan_to_num(totals / float(((problem.y - problem.y.mean()) ** 2).sum()), nan=np.inf, posinf=np.inf)
