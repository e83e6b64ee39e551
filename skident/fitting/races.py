"""Many starts of a fit at once, of which the better ones go on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from skident.optim import Ending, WorkBudget, batched_levenberg_marquardt

__all__ = ["Race", "race"]


@dataclass(frozen=True)
class Race:
    """How many steps starts get before the worse ones are dropped.

    Attributes
    ----------
    rounds : tuple of (int, int)
        Steps of a round, and how many starts go on after it.
    good : float
        A cost that ends the race.
    ftol : float
        A start whose step lowers its cost by less than this fraction, as predicted and in fact, has ended.
    budget : WorkBudget
        No step is made once it is spent; without limits by default.
    """

    rounds: tuple = ((25, 8), (35, 4), (100, 3), (300, 3))
    good: float = 0.0
    ftol: float = 1e-5
    budget: WorkBudget = field(default_factory=WorkBudget)


def race(fits, x, options=None):
    """Levenberg-Marquardt from many starts in one batch; after every round the better part goes on.

    Parameters
    ----------
    fits : BatchedNetworkFits
        Or another object as `batched_levenberg_marquardt` takes it.
    x : ndarray of shape (B, P)
        Starts.
    options : Race, default=None

    Returns
    -------
    x : ndarray of shape (b, P)
        Those of the last round, the best first.
    cost : ndarray of shape (b,)

    Notes
    -----
    A tanh network of two hidden layers at its true width is found from one start in ten or so, and the starts that
    get there are among the best third after a few dozen steps.
    """
    options = Race() if options is None else options
    ending = Ending(ftol=options.ftol, target=options.good, budget=options.budget)
    damping, cost = ending.damping, np.full(len(x), np.inf)
    for steps, n_kept in options.rounds:
        result = batched_levenberg_marquardt(fits, x, replace(ending, max_iter=steps, damping=damping))
        order = np.argsort(result.cost, kind="stable")[:n_kept]
        x, cost, damping = result.x[order], result.cost[order], result.damping[order]
        if cost[0] <= options.good or options.budget.spent:
            break
    return x, cost
