"""Units that come and go: what a population of fits gains, and what it costs."""

import numpy as np
import pytest

from skident.fitting.batched_fits import BatchedNetworkFits, Rows, random_parameters
from skident.fitting.unit_replacement import Replacing, replace_units
from skident.network import Architecture, FeedforwardNetwork
from skident.optim import WorkBudget


def steep(widths, n, seed, n_inputs=4):
    rng = np.random.RandomState(seed)
    sizes = (n_inputs, *widths)
    weights = [
        (5.0 if c != widths[-1] else 1.0) * rng.standard_normal((a, c)) / np.sqrt(a) for a, c in zip(sizes, widths)
    ]
    truth = FeedforwardNetwork(weights, [rng.standard_normal(c) for c in widths], "tanh")
    U = rng.standard_normal((n, n_inputs))
    return Rows(U, truth(U)), rng


@pytest.mark.parametrize("widths", [(5, 1), (4, 2), (4, 3, 1)])
def test_steep_networks_are_met_where_plain_fits_are_not(widths):
    rows, rng = steep(widths, 500, seed=1)
    architecture = Architecture(widths)
    x = random_parameters(4, architecture, 6, rng)
    good = 1e-20 * rows.total
    found, cost = replace_units(rows, architecture, x, rng, Replacing(good=good))
    assert cost[0] <= good and np.all(np.diff(cost) >= 0)
    np.testing.assert_allclose(BatchedNetworkFits(architecture, rows).cost(found), cost, rtol=1e-6, atol=good)


def test_costs_never_rise_and_weights_count():
    rows, rng = steep((3, 1), 200, seed=2)
    noisy = Rows(rows.U, rows.Y + 0.1 * rng.standard_normal(rows.Y.shape), rng.uniform(0.5, 2.0, 200))
    architecture = Architecture((3, 1))
    x = random_parameters(4, architecture, 3, rng)
    before = BatchedNetworkFits(architecture, noisy).cost(x)
    _, cost = replace_units(noisy, architecture, x, rng, Replacing(n_generations=2, n_children=2))
    assert np.all(cost <= np.sort(before))


def test_a_time_that_is_over_is_over():
    rows, rng = steep((3, 1), 100, seed=3)
    x = random_parameters(4, Architecture((3, 1)), 2, rng)
    found, _ = replace_units(rows, Architecture((3, 1)), x, rng, Replacing(budget=WorkBudget(0.0)))
    assert {tuple(one) for one in found} == {tuple(one) for one in x}
