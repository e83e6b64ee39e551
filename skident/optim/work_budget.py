"""A budget of work for a fit, counted in products, so that the same data give the same result on every machine."""

import time

import numpy as np

_STEP = 1e6  # products in the time that the rest of a step takes: 0.3 ms of one core


class WorkBudget:
    """Products of Jacobians that a search may form, and a deadline as a guard.

    Parameters
    ----------
    max_work : float, default=inf
        Products of floating-point numbers: a step of a fit with P parameters counts ``n_values * P^2``, and a batch of
        steps a million more.
    n_values : float, default=1
        Scalar outputs: samples times m_L.
    deadline : float, default=inf
        Of `time.perf_counter`. A search that meets it ends at a place that depends on the machine.

    Attributes
    ----------
    work : float
        Products formed until now.
    late : bool
        Whether the deadline ended the search.

    Examples
    --------
    >>> from skident.optim import WorkBudget
    >>> budget = WorkBudget(1000.0, n_values=10)
    >>> budget.spend(2, 5)
    >>> print(budget.work, budget.spent)
    1000500.0 True
    """

    def __init__(self, max_work=np.inf, n_values=1, deadline=np.inf):
        self.max_work, self.n_values, self.deadline = max_work, n_values, deadline
        self.work, self.limit, self.late = 0.0, max_work, False
        self._ended = False

    def spend(self, n_problems, n_parameters):
        """Count a step of some fits.

        Parameters
        ----------
        n_problems, n_parameters : int
        """
        self.work += _STEP + float(n_problems) * self.n_values * n_parameters**2

    def extend(self):
        """Allow as much work again, up to the same deadline, for what follows a search."""
        self.limit = self.work + self.max_work

    @property
    def exhausted(self):
        """Whether the count is used up."""
        return self.work >= self.limit

    @property
    def spent(self):
        """Whether no further step may be made."""
        self._ended = self._ended or self.exhausted
        if self.exhausted:
            return True
        self.late = self.late or time.perf_counter() > self.deadline
        return self.late

    @property
    def stopped_by(self):
        """``"max_seconds"``, ``"max_work"`` or None: the limit that ended a search early."""
        return "max_seconds" if self.late else "max_work" if self._ended else None
