"""Units of the second layer from critical points in nearby linear regions, and what a wide first layer needs."""

import numpy as np
import pytest

from skident.budget import OutOfBudgetError
from skident.identification.piecewise.deep import network as deep
from skident.identification.piecewise.deep.known_layers import KnownLayers
from skident.identification.piecewise.deep.layer_units import LayerUnits
from skident.identification.piecewise.deep.nearby_points import add_units_of_nearby_points
from skident.identification.piecewise.deep.predictions import _trimmed_step
from skident.oracle import Budget, Oracle


def test_units_are_recovered_with_few_queries(planted):
    """Weights of most of 3 x 36 units to 1e-7; following their boundaries takes 2,500 queries per unit."""
    n_units, queries = 0, 0
    for seed in range(3):
        net = planted((16, 36, 36, 1), seed)
        known, factors = net.known(1)
        layer = LayerUnits(known, slope=None)
        before = net.oracle.n_queries
        assert add_units_of_nearby_points(net.probe(), layer, net.rng)
        queries += net.oracle.n_queries - before
        np.testing.assert_array_equal(layer.signs, np.sign(factors))
        W, b = net.network.weights[1] / np.abs(factors)[:, None], net.network.biases[1]
        truth, found = np.vstack([W, b]), [layer._weights_of(unit) for unit in layer.units]
        which = set()
        for w, determined in found:
            true = np.where(determined[:, None], truth, 0.0)
            w = np.where(determined, w, 0.0)
            cosine = (true.T @ w) / np.linalg.norm(true, axis=0) / np.linalg.norm(w)
            k = int(np.argmax(np.abs(cosine)))
            which.add(k)
            true = np.sign(cosine[k]) * true[:, k] / np.linalg.norm(true[:, k])
            assert np.abs(w / np.linalg.norm(w) - true).max() < 1e-7
        n_units += len(which)
    assert n_units >= 90 and queries < 108 * 2500


def test_no_units_where_the_method_does_not_apply(planted):
    net = planted((16, 36, 36, 2), 0)
    known, _ = net.known(1)
    layer, before = LayerUnits(known), net.oracle.n_queries
    assert not add_units_of_nearby_points(net.probe(), layer, net.rng)
    small = KnownLayers([], known.weights[:, :8], known.biases[:8])
    assert not add_units_of_nearby_points(net.probe(), LayerUnits(small), net.rng)
    assert layer.signs is None and net.oracle.n_queries - before < 20_000  # the probe measures rounding


def test_a_step_without_the_points_of_other_boundaries():
    """Three of 40 equations for 30 unknowns are wrong: a least-squares fit to all of them hides which."""
    for seed in range(10):
        rng = np.random.RandomState(seed)
        A, x = rng.standard_normal((40, 30)), 1e-9 * rng.standard_normal(30)
        y = -A @ x
        y[:3] += 1e-5
        step, residual = _trimmed_step(A, y)
        assert np.abs(step - x).max() < 1e-13 and residual < 1e-13


@pytest.mark.parametrize("left", [90_000, 120_000])
def test_too_few_queries_for_a_wide_first_layer_are_told_before_they_are_spent(planted, left):
    net = planted((20, 70, 60, 1), 0)
    net.oracle = Oracle(net.network, 20, budget=Budget(max_queries=left))
    net.oracle.standardize_outputs(net.network(net.rng.standard_normal((200, 20))))
    with pytest.raises(OutOfBudgetError, match=r"first one of \d+ units need [\d,]+ or more: raise max_queries"):
        deep.find_deep_relu_network(net.probe(), rng=net.rng, n_validation=1000)
    assert net.oracle.n_queries < left
