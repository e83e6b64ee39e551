"""Levenberg-Marquardt for many small least-squares problems at once, each with its own damping and end."""

import time
from dataclasses import dataclass, field

import numpy as np

from skident.budget import MemoryLimitError, OutOfBudgetError, check_deadline
from skident.budget.constants import TINY

from .levenberg_marquardt import GROWTH, damping_after
from .work_budget import WorkBudget


@dataclass(frozen=True)
class Ending:
    """When a problem of a batch has ended, and how damped it begins."""

    max_iter: int = 100  # steps tried at most
    target: float = 0.0  # a cost that is low enough
    ftol: float = 0.0  # a step that lowers the cost by less, relatively, as predicted and in fact, is the last one
    rounding: float = 0.0  # costs that differ by less are equal: such steps are accepted, and are the last ones
    damping: float | np.ndarray = 1e-3  # the first damping, one for all problems or (B,)
    max_damping: float = 1e8  # the damping beyond which a problem is given up
    deadline: float = np.inf  # of `time.perf_counter`, after which no step is made
    budget: WorkBudget = field(default_factory=WorkBudget)  # counts the steps; none is made once it is spent

    @property
    def over(self):
        """Whether no further step may be made."""
        return time.perf_counter() > self.deadline or self.budget.spent


@dataclass(frozen=True)
class BatchedResult:
    """Where the problems ended.

    Attributes
    ----------
    x : ndarray of shape (B, ...)
    cost : ndarray of shape (B,)
    n_iter : ndarray of shape (B,)
        Steps tried.
    history : ndarray of shape (steps + 1, B)
        Costs after every step; a problem that has ended keeps its last one.
    damping : ndarray of shape (B,)
        With which a further step would begin.
    """

    x: np.ndarray
    cost: np.ndarray
    n_iter: np.ndarray
    history: np.ndarray
    damping: np.ndarray


class BatchedNormalEquations:
    """Gauss-Newton models ``J^T J`` (B, P, P) and ``J^T r`` (B, P), damped by their own diagonals.

    Parameters
    ----------
    matrix : ndarray of shape (B, P, P)
    gradient : ndarray of shape (B, P)
    floor : float, default=0
        Of the diagonals, relative to their largest entry.
    longest : ndarray of shape (P,), default=None
        Largest step, entry by entry; steps and predicted decreases are clipped to it.
    """

    def __init__(self, matrix, gradient, floor=0.0, longest=None):
        self.matrix, self.gradient, self.longest = matrix, gradient, longest
        diagonal = np.einsum("bii->bi", matrix)
        self.scale = np.maximum(diagonal, floor * diagonal.max(axis=1, keepdims=True) + TINY)

    def solve(self, damping):
        """Damped steps (B, P), and the decreases (B,) of the costs that the linear models predict.

        Parameters
        ----------
        damping : ndarray of shape (B,)

        Returns
        -------
        steps : ndarray of shape (B, P)
        predicted : ndarray of shape (B,)
        """
        damped, matrix = damping[:, None] * self.scale, self.matrix.copy()
        np.einsum("bii->bi", matrix)[...] += damped
        steps = -np.linalg.solve(matrix, self.gradient[..., None])[..., 0]
        if self.longest is None:
            return steps, np.sum(steps * (damped * steps - self.gradient), axis=1)
        steps = np.clip(steps, -self.longest, self.longest)
        curved = (self.matrix @ steps[..., None])[..., 0]
        return steps, -np.sum(steps * (2.0 * self.gradient + curved), axis=1)


def batched_levenberg_marquardt(problems, x0, ending):
    """Minimize many sums of squares in one batch.

    Parameters
    ----------
    problems : object
        With ``cost(x)`` (B,), ``linearize(x)`` (an object whose ``solve(damping)`` gives steps and predicted
        decreases), ``take(index)`` (the same for some problems) and, if that is not ``x + steps``, ``move(x, steps)``
        (parameters after steps).
    x0 : ndarray of shape (B, ...)
    ending : Ending

    Returns
    -------
    BatchedResult

    Notes
    -----
    A problem leaves the batch when it has ended, so a step costs what the remaining problems cost; memory is what
    ``linearize`` takes for all of them. The caller decides how many problems are held at once.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.optim import BatchedNormalEquations, Ending, batched_levenberg_marquardt
    >>> class Roots:  # of x^2 = a
    ...     def __init__(self, a):
    ...         self.a = a
    ...
    ...     def take(self, index):
    ...         return Roots(self.a[index])
    ...
    ...     def cost(self, x):
    ...         return (x[:, 0] ** 2 - self.a) ** 2
    ...
    ...     def linearize(self, x):
    ...         return BatchedNormalEquations(
    ...             4 * x[:, :, None] ** 2, 2 * x * (x**2 - self.a[:, None])
    ...         )
    >>> result = batched_levenberg_marquardt(
    ...     Roots(np.array([4.0, 9.0])), np.ones((2, 1)), Ending(target=1e-28)
    ... )
    >>> print(result.x[:, 0].round(12))
    [2. 3.]
    """
    x = np.array(x0, dtype=np.float64)
    cost = problems.cost(x)
    n_iter, history = np.zeros(len(x), dtype=int), [cost.copy()]
    damping, growth = np.full(len(x), ending.damping), np.full(len(x), GROWTH)
    active = np.flatnonzero(cost > ending.target)
    left = problems if len(active) == len(x) else problems.take(active)
    for _ in range(ending.max_iter):
        if not len(active) or ending.over:
            break
        ending.budget.spend(len(active), x[active][0].size)
        try:
            new, predicted, trial = _tried(left, x[active], damping[active])
        except MemoryLimitError:
            raise
        except OutOfBudgetError:
            break
        gain = cost[active] - trial
        better = gain > -ending.rounding if ending.rounding else gain > 0.0
        accepted, rejected = active[better], active[~better]
        x[accepted], cost[accepted] = new[better], trial[better]
        n_iter[active] += 1
        history.append(cost.copy())
        damping[accepted] = damping_after(damping[accepted], gain[better] / np.maximum(predicted[better], TINY))
        damping[rejected] *= growth[rejected]
        growth[accepted], growth[rejected] = GROWTH, 2.0 * growth[rejected]
        small = np.maximum(gain, predicted) <= np.maximum(ending.ftol * trial, ending.rounding)
        goes_on = ~(better & small) & (cost[active] > ending.target) & (damping[active] <= ending.max_damping)
        if not goes_on.all():
            active, left = active[goes_on], left.take(np.flatnonzero(goes_on))
    return BatchedResult(x, cost, n_iter, np.array(history), damping)


def _tried(problems, x, damping):
    """Parameters after a step, the predicted decreases, and the costs there."""
    check_deadline()
    linearize = getattr(problems, "linearize", None) or problems.linearise  # the method's name before 0.2
    steps, predicted = linearize(x).solve(damping)
    new = getattr(problems, "move", np.add)(x, steps)
    return new, predicted, problems.cost(new)
