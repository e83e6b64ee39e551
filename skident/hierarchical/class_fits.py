"""Fits to classes by L-BFGS: cross-entropy, and the loss of Theorem 4."""

from __future__ import annotations

import copy
from operator import attrgetter

import torch

from skident.optim import best_of

from .modules import ScaledLogits
from .problem import Attempt, Fit
from .solvers import fit_lbfgs, set_trainable
from .sum_fits import found_twice

__all__ = ["fit_cross_entropy", "fit_theorem4"]

_SHARPNESS = (1.0, 4.0, 16.0)  # v of Theorem 4


def fit_cross_entropy(problem, search, l2="auto"):
    """Linear readouts on the multinomial cross-entropy, by L-BFGS.

    Parameters
    ----------
    problem : Problem
        y of integers 0, ..., o - 1.
    search : Search
        Two starts at most.
    l2 : float or "auto", default="auto"
        "auto" is 1e-3.

    Returns
    -------
    Fit
        Not finite if no start has a finite loss.
    """
    l2 = 1e-3 if l2 == "auto" else float(l2)
    attempts = (_cross_entropy_attempt(problem, search, l2) for _ in range(min(2, search.n_init)))
    best, losses = best_of(attempts, attrgetter("loss"))
    return Fit(best.module, best.initial, losses, best.history, best.converged, l2=l2)


def _cross_entropy_attempt(problem, search, l2):
    """One random start, or a given one, and where it led."""
    module = problem.build("linear")
    initial = copy.deepcopy(module)
    set_trainable(module, fixed=problem.fixed)

    def loss():
        return torch.nn.functional.cross_entropy(module(problem.x), problem.y)

    result = fit_lbfgs(module, loss, l2=l2, max_iter=search.max_iter or 300, tol=1e-6)
    return Attempt(module, initial, result.cost, result.history, result.status != "max_iter")


def fit_theorem4(problem, search, l2="auto"):
    """``mean log(1 + exp(-y v (x_0 + F(x)))) + v l2 Reg`` by L-BFGS, v = 1, 4, 16 (Theorem 4, eq. (3.3)).

    Parameters
    ----------
    problem : Problem
        y of -1 and 1, (n, 1). Without ``x0``, F has a direct part ``D [x, x^2]`` instead.
    search : Search
        Three starts at most.
    l2 : float or "auto", default="auto"
        "auto" is 1e-5.

    Returns
    -------
    Fit
        Not finite if no start has a finite loss.
    """
    l2 = 1e-5 if l2 == "auto" else float(l2)
    attempts = _theorem4_attempts(problem, search, l2)
    best, losses = best_of(attempts, attrgetter("loss"), found_twice)
    return Fit(best.module, best.initial, losses, best.history, best.converged, l2=l2, sharpness=_SHARPNESS[-1])


def _theorem4_attempts(problem, search, l2):
    """The starts one after the other, each sharpened in stages."""
    with_offset = problem.x0 is not None
    x = torch.cat([problem.x0, problem.x], dim=1) if with_offset else problem.x
    for k in range(min(3, search.n_init)):
        net = problem.build("sum", direct=not with_offset)
        initial, history = copy.deepcopy(net), []
        logits = ScaledLogits(net, with_offset).to(x.device)

        def loss(logits=logits):
            return torch.nn.functional.softplus(-problem.y * logits(x)).mean()

        for sharpness in _SHARPNESS:
            logits.sharpness = sharpness
            # Hidden biases hinder the search, as for squares, and belong to the exact solution.
            kinds = {"weights", "offset", "direct"} | ({"biases"} if sharpness > 1 else set())
            set_trainable(net, kinds=kinds, fixed=problem.fixed)
            result = fit_lbfgs(net, loss, l2=sharpness * l2, max_iter=search.max_iter or 400, tol=1e-7)
            history += result.history
        search.log.say(f"start {k + 1}: cross-entropy {result.cost:.4f}")
        yield Attempt(net, initial, result.cost, history, result.status != "max_iter")
