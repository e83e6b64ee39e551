"""A budget counts work; the clock is a guard that is told."""

import time

import numpy as np

from skident.optim import WorkBudget


def test_work_ends_it_and_it_can_be_extended():
    budget = WorkBudget(3e6, n_values=10)
    assert not budget.spent and budget.stopped_by is None
    budget.spend(2, 300)
    assert budget.work == 2 * 10 * 300**2 + 1e6 and not budget.spent
    budget.spend(2, 300)
    assert budget.spent and budget.stopped_by == "max_work" and not budget.late
    budget.extend()
    assert not budget.spent


def test_the_clock_is_told():
    budget = WorkBudget(deadline=time.perf_counter() - 1.0)
    assert budget.spent and budget.late and budget.stopped_by == "max_seconds"
    assert not WorkBudget(np.inf).spent
