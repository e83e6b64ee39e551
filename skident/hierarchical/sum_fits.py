"""Fits of the paper's form, eq. (1.1): sums of squares."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import torch

from skident.optim import best_of

from .clipping import MARGIN
from .exactness import is_exact
from .layer_by_layer import regress_layers, regressable_layers
from .layer_regression import RIDGES
from .modules import QuadraticDenseNet
from .problem import Attempt, Fit
from .solvers import WeightedRows, set_trainable
from .units import robust_units

__all__ = ["EXPLAINED", "fit_sum", "found_twice"]

EXPLAINED = 1e-10  # relative loss from which the data are explained
_ALL_FOUND = 1e-20  # from which the layers added to a given start are found too, however small their alpha
_HOPEFUL = 1e-2  # relative loss from which the hidden biases are let free
_PATIENCE = 30  # steps in which the loss must halve


def fit_sum(problem, search, l2="auto", hopeless=None):
    """The paper's form, eq. (1.1), from random starts until one explains the data.

    Degree-2^L targets have heavy tails: a few rows carry most of the squared error, and a fit that follows them stalls.
    Where the target is in the class, weights change the way and not the end; so rows get the weight
    ``(1 + |y - median| / (2 unit))^-1.5`` until the data are explained, and one where they cannot be. Every start
    trains the weights on a part of the rows, then hidden biases too, and the rows in full at the end.

    Parameters
    ----------
    problem : Problem
        One output.
    search : Search
    l2 : float or "auto", default="auto"
        "auto" is zero. With a penalty there is nothing to explain exactly: rows have weight one.
    hopeless : float, default=None
        Three starts above this relative loss end the search.

    Returns
    -------
    Fit
        Not finite if no start has finite outputs.
    """
    l2 = 0.0 if l2 == "auto" else float(l2)
    units = robust_units(problem.y)
    y = units.standardised(problem.y)
    rows = WeightedRows(problem.x, y, torch.ones_like(y) if l2 else (1.0 + y.abs() / 2.0) ** -1.5)
    done = EXPLAINED if problem.start is None else _ALL_FOUND

    def enough(losses):
        given_up = hopeless is not None and len(losses) > 2 and min(losses) > hopeless
        return losses[-1] < done or found_twice(losses) or given_up

    starts = _starts(problem, search, rows, units, l2)
    attempts = (_descend(problem, search, start, rows, l2) for start in starts)
    best, losses = best_of(attempts, attrgetter("loss"), enough)
    if not np.isfinite(best.loss):
        return Fit(best.module, best.initial, losses, best.history, l2=l2)
    return _finished(problem, search, best, losses, rows, units, l2)


def found_twice(losses):
    """Whether the lowest loss was reached by two starts: another one would hardly find a lower one.

    Parameters
    ----------
    losses : list of float

    Returns
    -------
    bool
    """
    low = sorted(losses)[:2]
    return len(low) == 2 and low[0] > 1e-5 and low[1] < (1 + 1e-3) * low[0]


@dataclass(frozen=True)
class _Start:
    """Where a search begins, and whether nothing is known of its weights."""

    number: int
    module: QuadraticDenseNet
    random: bool


def _starts(problem, search, rows, units, l2):
    """From regressions where these can be, then random ones."""
    regressable = not l2 and bool(regressable_layers(problem, search))
    for k in range(search.n_init):
        module = problem.build("sum", units)
        regressed = regressable and k < len(RIDGES)
        if regressed:
            regress_layers(problem, search, module, rows, RIDGES[k])
        yield _Start(k + 1, module, problem.start is None and not regressed)


def _descend(problem, search, start, rows, l2):
    """The weights on a part of the rows, and where that is hopeful the hidden biases too."""
    initial, history, loss, converged = copy.deepcopy(start.module), [], float("inf"), True
    phases = [({"weights", "offset"}, 6, 100), ({"weights", "biases", "offset"}, 8, 150)]
    # A given start has its biases: without them, a new layer would learn what they stand for.
    for kinds, n_per_weight, usual in phases if start.random else phases[1:]:
        some = rows.first(max(n_per_weight * problem.architecture.n_weights, 400))
        set_trainable(start.module, kinds=kinds, fixed=problem.fixed)
        scale = float((some.w * (some.y - some.y.mean())).square().sum())
        result = search.minimise(
            start.module, some, l2=l2, max_iter=search.steps(usual), target=1e-26 * scale, patience=_PATIENCE
        )
        loss, converged = result.cost / scale, result.status != "max_iter"
        history += [cost / scale for cost in result.history]
        if not loss < _HOPEFUL or l2:
            break
    search.log.say(f"start {start.number}: relative loss {loss:.2e}")
    return Attempt(start.module, initial, loss, history, converged)


def _finished(problem, search, best, losses, rows, units, l2):
    """The best start fitted to all rows; its loss, whether it is exact and whether it converged are those of the end.

    The error on new rows is the one that generalised cross-validation expects.
    """
    explained, module = best.loss < EXPLAINED, best.module
    set_trainable(module, fixed=problem.fixed)
    result = search.minimise(
        module,
        rows if explained else WeightedRows(rows.x, rows.y),
        l2=l2,
        max_iter=search.steps(100),
        target=1e-28 * len(rows.y),
        patience=_PATIENCE,
    )
    variance = float(((rows.y - rows.y.mean()) ** 2).mean())
    with torch.no_grad():
        relative = float(((module(rows.x) - rows.y) ** 2).mean()) / variance
    losses[int(np.argmin(losses))] = relative
    n, P = len(rows.y), problem.architecture.n_weights
    exact = n > P and relative < EXPLAINED and is_exact(module, rows)
    return Fit(
        units.leave_(module),
        units.leave_(best.initial),
        losses,
        [*best.history, *[cost / (n * variance) for cost in result.history]],
        result.status != "max_iter",
        loss=relative,
        exact=exact,
        margin=None if exact else MARGIN,
        error=relative / (1.0 - P / n) ** 2 if n > P else float("inf"),
        l2=l2,
    )
