"""From one patch that is known entirely to all of the second layer, where patches by linear algebra have no choice."""

import numpy as np
import pytest

from skident.identification.second_layer.by_patch_and_extension.recover import extension_design, recover_by_extension
from skident.identification.second_layer.by_powers.design import power_designs
from skident.oracle import NotIdentified


def test_few_inputs_and_a_wide_second_layer(make_planted, make_downstream):
    network = make_planted((5, 10, 10, 2), seed=1)
    downstream, moved = make_downstream(network, seed=1)
    found = recover_by_extension(downstream, extension_design(5, (10, 10, 2)), 10).network
    X = np.random.RandomState(2).standard_normal((200, 5))
    assert np.abs(found(X) - network(X)).max() < 1e-8
    assert np.abs(found.biases[0] - downstream.biases - moved).max() < 1e-8


def test_units_that_are_not_there_are_noticed(make_planted, make_downstream):
    downstream, _ = make_downstream(make_planted((5, 10, 10, 2), seed=1), seed=1)
    with pytest.raises(NotIdentified, match="misfits the answers there by|powers were found"):
        recover_by_extension(downstream, extension_design(5, (10, 6, 2)), 6)


def test_plans_serve_few_inputs_only():
    assert extension_design(11, (64, 64, 4)) is None
    assert extension_design(3, (64, 64, 1)) is None
    eight = extension_design(8, (64, 64, 4))
    assert eight.n_queries < 0.5 * power_designs(8, (64, 64, 4))[0].n_queries
