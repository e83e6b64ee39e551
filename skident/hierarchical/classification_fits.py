"""Classification fits by L-BFGS: multinomial cross-entropy with linear readouts, and the loss of Theorem 4."""

import copy
from operator import attrgetter

import torch

from skident.budget.constants import MAX_STARTS
from skident.optim import best_of

from .modules import ScaledLogits
from .problem import Attempt, Fit
from .solvers import fit_lbfgs, set_trainable
from .sum_fits import regressed_signs, repeated_minimum

_SHARPNESS = (1.0, 4.0, 16.0)  # v of Theorem 4, increasing: the last is the fit
_L2 = 1e-3  # default of cross-entropy; not tuned, of the order of the grid for least squares
_L2_OF_THEOREM4 = 1e-5  # default; small, since the planted sum is in the class and only its scale must be bounded
_STEPS = 300  # of L-BFGS (budget)
_STEPS_OF_THEOREM4 = 400  # of L-BFGS per value of v (budget)
_GRADIENT_TOL = 1e-6  # largest entry of the gradient at convergence, of cross-entropy per sample
_GRADIENT_TOL_OF_THEOREM4 = 1e-7  # smaller, since accurate logits are the solution here
_MAX_STARTS_OF_THEOREM4 = 3  # (budget)


def fit_cross_entropy(problem, options, l2="auto"):
    """Linear readouts by L-BFGS on the multinomial cross-entropy, best of at most two starts; l2="auto" is 1e-3."""
    l2 = _L2 if l2 == "auto" else float(l2)
    attempts = (_cross_entropy_attempt(problem, options, l2) for _ in range(min(MAX_STARTS, options.n_starts)))
    best, losses = best_of(attempts, attrgetter("loss"))
    return Fit(best.module, best.initial, losses, best.history, best.converged, l2=l2)


def _cross_entropy_attempt(problem, options, l2):
    """L-BFGS from one random or given start."""
    module = problem.build("linear")
    initial = copy.deepcopy(module)
    set_trainable(module, fixed=problem.fixed)

    def loss():
        losses = torch.nn.functional.cross_entropy(module(problem.x), problem.y, reduction="none")
        return problem.mean(losses[:, None]).sum()

    result = fit_lbfgs(module, loss, l2=l2, max_iter=options.max_iter or _STEPS, tol=_GRADIENT_TOL)
    return Attempt(module, initial, result.cost, result.history, result.status != "max_iter")


def fit_theorem4(problem, options, l2="auto"):
    """Minimize ``mean log(1 + exp(-y v (x_0 + F(x)))) + v l2 Reg`` by L-BFGS for v = 1, 4, 16 in turn.

    Theorem 4, eq. (3.3); y in {-1, 1}, (n, 1). Without ``x0``, F has a direct part ``D [x, x^2]`` instead. Best of at
    most three starts; l2="auto" is 1e-5.
    """
    l2 = _L2_OF_THEOREM4 if l2 == "auto" else float(l2)
    attempts = _theorem4_attempts(problem, options, l2)
    best, losses = best_of(attempts, attrgetter("loss"), repeated_minimum)
    return Fit(best.module, best.initial, losses, best.history, best.converged, l2=l2, sharpness=_SHARPNESS[-1])


def _theorem4_attempts(problem, options, l2):
    """One attempt per start, each with increasing v; the second one with the signs of a regression on y."""
    with_offset = problem.x0 is not None
    x = torch.cat([problem.x0, problem.x], dim=1) if with_offset else problem.x
    for k in range(min(_MAX_STARTS_OF_THEOREM4, options.n_starts)):
        net = problem.build("sum", direct=not with_offset)
        if k == 1 and problem.start is None:
            net.all_signs.copy_(regressed_signs(problem))
        initial, history = copy.deepcopy(net), []
        logits = ScaledLogits(net, with_offset).to(x.device)

        def loss(logits=logits):
            return problem.mean(torch.nn.functional.softplus(-problem.y * logits(x))).sum()

        for sharpness in _SHARPNESS:
            logits.sharpness = sharpness
            # Hidden biases slow the search down, as for squares, but belong to the exact solution.
            kinds = {"weights", "offset", "direct"} | ({"biases"} if sharpness > 1 else set())
            set_trainable(net, kinds=kinds, fixed=problem.fixed)
            max_iter = options.max_iter or _STEPS_OF_THEOREM4
            result = fit_lbfgs(net, loss, l2=sharpness * l2, max_iter=max_iter, tol=_GRADIENT_TOL_OF_THEOREM4)
            history += result.history
        options.log.say(f"start {k + 1}: cross-entropy {result.cost:.4f}")
        yield Attempt(net, initial, result.cost, history, result.status != "max_iter")
