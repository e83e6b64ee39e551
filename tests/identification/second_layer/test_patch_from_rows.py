import numpy as np
import pytest

from skident.identification.second_layer.by_patch_and_extension.extension import extend_to_all_units
from skident.identification.second_layer.by_patch_and_extension.known_units import KnownUnits
from skident.identification.second_layer.by_patch_and_extension.patch_from_powers import known_patch_from_powers
from skident.identification.second_layer.by_powers.design import power_designs
from skident.identification.second_layer.by_powers.first_patch import powers_on_first_patch
from skident.oracle import NotIdentified


@pytest.fixture(params=["tanh", "erf"])
def case(request, make_planted, make_downstream):
    network = make_planted((7, 11, 9, 2), seed=4, scale=1.0, shift=0.3, activation=request.param)
    problem, _ = make_downstream(network, known_shifts=request.param == "erf")
    first = powers_on_first_patch(problem, power_designs(7, (11, 9, 2))[0], 9)
    return network, problem, first


def test_a_patch_and_all_from_there(case):
    network, problem, first = case
    patch = known_patch_from_powers(problem, first)
    known = KnownUnits.from_patch(patch, network.activation)
    moves = np.linalg.pinv(problem.weights[:, patch.free])
    U = patch.point + 0.5 * np.random.RandomState(0).standard_normal((40, len(patch.free))) @ moves
    assert known.misfit(U @ problem.weights + problem.biases, network(U).reshape(40, -1)) < 1e-3
    lengths = np.sort(np.linalg.norm(network.weights[1][patch.free], axis=0))
    np.testing.assert_allclose(np.sort(np.linalg.norm(patch.rows, axis=0)), lengths, rtol=1e-2)
    X = np.random.RandomState(1).standard_normal((100, 7))
    np.testing.assert_allclose(extend_to_all_units(problem, patch).network(X), network(X), atol=1e-6)


def test_units_that_stand_still_unsaturated_are_named(make_planted, make_downstream):
    network = make_planted((10, 8, 9, 1), seed=4)
    problem, _ = make_downstream(network)
    first = powers_on_first_patch(problem, power_designs(10, (8, 9, 1))[0], 9)
    with pytest.raises(NotIdentified, match="nowhere on the patch"):
        known_patch_from_powers(problem, first)
