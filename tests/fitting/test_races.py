"""Of many starts the better ones go on."""

import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting.batched_fits import BatchedNetworkFits, Rows, random_parameters
from skident.fitting.races import Race, race
from skident.network import Architecture
from skident.optim import WorkBudget


@pytest.fixture
def fits():
    truth = make_network((3, 2, 1), output_activation="identity", random_state=0)
    U = np.random.RandomState(1).standard_normal((80, 3))
    return BatchedNetworkFits(Architecture((2, 1)), Rows(U, truth(U)))


def test_the_best_come_first_and_as_many_as_asked_for(fits):
    x = random_parameters(3, Architecture((2, 1)), 6, np.random.RandomState(0))
    ends, cost = race(fits, x, Race(rounds=((3, 4), (3, 2))))
    assert ends.shape == (2, x.shape[1]) and cost[0] <= cost[1] < fits.cost(x).min()
    np.testing.assert_allclose(fits.cost(ends), cost)


def test_it_ends_once_one_is_good(fits):
    x = random_parameters(3, Architecture((2, 1)), 6, np.random.RandomState(0))
    ends, cost = race(fits, x, Race(rounds=((200, 6), (1, 1)), good=1e-20))
    assert cost[0] <= 1e-20 and len(ends) == 6


def test_no_step_is_made_after_the_deadline(fits):
    x = random_parameters(3, Architecture((2, 1)), 2, np.random.RandomState(0))
    ends, cost = race(fits, x, Race(budget=WorkBudget(0.0)))
    np.testing.assert_array_equal(np.sort(cost), np.sort(fits.cost(x)))
