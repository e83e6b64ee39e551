"""How a quadratic DenseNet is fitted to classes by L-BFGS: cross-entropy, and the loss of Theorem 4."""

from __future__ import annotations

import copy

import numpy as np
import torch

from .modules import ScaledLogits
from .problem import Fit
from .solvers import fit_lbfgs, set_trainable
from .sum_fits import found_twice

__all__ = ["fit_cross_entropy", "fit_theorem4"]

_SHARPNESS = (1.0, 4.0, 16.0)  # v of Theorem 4


def fit_cross_entropy(problem, l2):
    """Linear readouts on the multinomial cross-entropy, by L-BFGS.

    Raises
    ------
    FloatingPointError
        If no start has a finite loss.
    """
    l2 = 1e-3 if l2 == "auto" else float(l2)
    best, losses = None, []
    for _ in range(min(2, problem.options["n_init"])):
        module = problem.build("linear")
        initial = copy.deepcopy(module)
        set_trainable(module, fixed=problem.fixed)
        loss = lambda module=module: torch.nn.functional.cross_entropy(module(problem.x), problem.y)  # noqa: E731
        result = fit_lbfgs(module, loss, l2=l2, max_iter=problem.options["max_iter"] or 300, tol=1e-6)
        losses.append(result.cost)
        if best is None or result.cost < best[1].cost:
            best = module, result, initial
    module, result, initial = best
    if not np.isfinite(result.cost):
        raise FloatingPointError
    return Fit(module, losses, result.history, initial, result.status != "max_iter", l2=l2)


def fit_theorem4(problem, offset_column, l2):
    """``mean log(1 + exp(-y v (x_0 + F(x)))) + v l2 Reg`` by L-BFGS, v = 1, 4, 16 (Theorem 4, eq. (3.3)).

    Parameters
    ----------
    problem : Problem
        y of -1 and 1, (n, 1).
    offset_column : Tensor (n, 1) or None
        x_0; None lets F have a direct part ``D [x, x^2]`` instead.

    Raises
    ------
    FloatingPointError
        If no start has a finite loss.
    """
    l2 = 1e-5 if l2 == "auto" else float(l2)
    x = problem.x if offset_column is None else torch.cat([offset_column, problem.x], dim=1)
    limit = problem.options["max_iter"] or 400
    best, losses = None, []
    for k in range(min(3, problem.options["n_init"])):
        net = problem.build("sum", direct=offset_column is None)
        initial = copy.deepcopy(net)
        module, history, status = ScaledLogits(net, offset_column is not None).to(x.device), [], ""
        loss = lambda module=module: torch.nn.functional.softplus(-problem.y * module(x)).mean()  # noqa: E731
        for sharpness in _SHARPNESS:
            module.sharpness = sharpness
            # Hidden biases hinder the search, as for squares, and belong to the exact solution.
            kinds = {"weights", "offset", "direct"} | ({"biases"} if sharpness > 1 else set())
            set_trainable(net, kinds=kinds, fixed=problem.fixed)
            result = fit_lbfgs(net, loss, l2=sharpness * l2, max_iter=limit, tol=1e-7)
            history, status = history + result.history, result.status
        losses.append(result.cost)
        if problem.options["verbose"]:
            print(f"[hierarchical] start {k + 1}: cross-entropy {result.cost:.4f}")
        if best is None or result.cost < best[1]:
            best = module, result.cost, history, initial, status
        if found_twice(losses):
            break
    module, cost, history, initial, status = best
    if not np.isfinite(cost):
        raise FloatingPointError
    return Fit(module, losses, history, initial, status != "max_iter", l2=l2)
