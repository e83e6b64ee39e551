import numpy as np

from skident.identification.second_layer.first_rows import find_first_rows
from skident.identification.second_layer.patch_from_rows import known_patch_from_rows
from skident.identification.second_layer.plan import alternative_plans
from skident.identification.second_layer.walk import walk_to_all_units
from skident.network import FeedforwardNetwork


def test_a_unit_that_is_nearly_dead_is_found(make_planted, make_behind):
    planted = make_planted((8, 14, 10, 1), seed=6, scale=1.0, shift=0.3)
    readout = planted.weights[2].copy()
    readout[0] *= 1e-3 / np.abs(readout[0])
    network = FeedforwardNetwork([*planted.weights[:2], readout], planted.biases, "tanh")
    problem, _ = make_behind(network)
    first = find_first_rows(problem, alternative_plans(8, (14, 10, 1))[0], 10)
    rows = network.weights[1][first.free]
    cosines = np.abs(first.rows.T @ (rows / np.linalg.norm(rows, axis=0)))
    assert cosines.max(axis=0).min() > 1.0 - 1e-4
    X = np.random.RandomState(1).standard_normal((100, 8))
    found = walk_to_all_units(problem, known_patch_from_rows(problem, first)).network
    np.testing.assert_allclose(found(X), network(X), atol=1e-6)
