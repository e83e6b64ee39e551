import numpy as np

from skident.identification.second_layer.by_patch_and_extension.extension import extend_to_all_units
from skident.identification.second_layer.by_patch_and_extension.patch_from_powers import known_patch_from_powers
from skident.identification.second_layer.by_powers.design import power_designs
from skident.identification.second_layer.by_powers.first_patch import powers_on_first_patch
from skident.network import FeedforwardNetwork


def test_a_unit_that_is_nearly_dead_is_found(make_planted, make_downstream):
    planted = make_planted((8, 14, 10, 1), seed=6, scale=1.0, shift=0.3)
    readout = planted.weights[2].copy()
    readout[0] *= 1e-3 / np.abs(readout[0])
    network = FeedforwardNetwork([*planted.weights[:2], readout], planted.biases, "tanh")
    problem, _ = make_downstream(network)
    first = powers_on_first_patch(problem, power_designs(8, (14, 10, 1))[0], 10)
    rows = network.weights[1][first.free]
    cosines = np.abs(first.rows.T @ (rows / np.linalg.norm(rows, axis=0)))
    assert cosines.max(axis=0).min() > 1.0 - 1e-4
    X = np.random.RandomState(1).standard_normal((100, 8))
    found = extend_to_all_units(problem, known_patch_from_powers(problem, first)).network
    np.testing.assert_allclose(found(X), network(X), atol=1e-6)
