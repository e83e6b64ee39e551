"""From one patch that is known entirely to all of the second layer, where patches by linear algebra have no choice."""

import numpy as np
import pytest

from skident.identification.second_layer.plan import alternative_plans
from skident.identification.second_layer.walked import find_second_layer_by_walking, plan_walking
from skident.oracle import NotIdentified


def test_few_inputs_and_a_wide_second_layer(make_planted, make_behind):
    network = make_planted((5, 10, 10, 2), seed=1)
    behind, moved = make_behind(network, seed=1)
    found = find_second_layer_by_walking(behind, plan_walking(5, (10, 10, 2)), 10).network
    X = np.random.RandomState(2).standard_normal((200, 5))
    assert np.abs(found(X) - network(X)).max() < 1e-8
    assert np.abs(found.biases[0] - behind.biases - moved).max() < 1e-8


def test_units_that_are_not_there_are_noticed(make_planted, make_behind):
    behind, _ = make_behind(make_planted((5, 10, 10, 2), seed=1), seed=1)
    with pytest.raises(NotIdentified, match="misfits the answers there by|powers were found"):
        find_second_layer_by_walking(behind, plan_walking(5, (10, 6, 2)), 6)


def test_plans_serve_few_inputs_only():
    assert plan_walking(11, (64, 64, 4)) is None
    assert plan_walking(3, (64, 64, 1)) is None
    eight = plan_walking(8, (64, 64, 4))
    assert eight.n_queries < 0.5 * alternative_plans(8, (64, 64, 4))[0].n_queries
