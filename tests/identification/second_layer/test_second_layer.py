import pytest

from skident.identification.second_layer.by_powers.design import power_designs
from skident.identification.second_layer.by_powers.recover import recover_by_powers
from skident.metrics import relative_max_error
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified


@pytest.mark.parametrize(
    ("sizes", "scale"),
    [((10, 16, 16, 1), 1.5), ((10, 16, 16, 1), 3.0), ((6, 9, 7, 2), 1.5), ((10, 8, 9, 1), 2.0), ((7, 10, 10, 3), 1.0)],
)
def test_networks_from_their_patches(sizes, scale, make_planted, make_downstream, rng):
    network = make_planted(sizes, seed=5, scale=scale)
    problem, _ = make_downstream(network)
    found = recover_by_powers(problem, power_designs(sizes[0], sizes[1:])[0], sizes[2])
    X = rng.standard_normal((500, sizes[0]))
    assert found.misfit < 1e-3
    assert relative_max_error(network(X), found.network(X)) < 5e-3


def test_shifts_known_beforehand_as_of_erf_units(make_planted, make_downstream, rng):
    network = make_planted((8, 11, 10, 1), seed=6, activation="erf")
    problem, _ = make_downstream(network, known_shifts=True)
    found = recover_by_powers(problem, power_designs(8, (11, 10, 1))[0], 10)
    X = rng.standard_normal((500, 8))
    assert relative_max_error(network(X), found.network(X)) < 1e-3


def test_width_from_the_gap(make_planted, make_downstream):
    network = make_planted((10, 14, 11, 1), seed=7)
    problem, _ = make_downstream(network)
    assert recover_by_powers(problem, power_designs(10, (14, 16, 1))[0]).network.layer_widths == (14, 11, 1)


def without_unit(network, k, output):
    weights = [W.copy() for W in network.weights]
    weights[2][k] = output
    return FeedforwardNetwork(weights, network.biases)


def test_a_dead_unit_is_named(make_planted, make_downstream):
    network = make_planted((10, 14, 11, 1), seed=7)
    problem, _ = make_downstream(without_unit(network, 3, 0.0))
    with pytest.raises(NotIdentified, match="no sum of 11 powers, but of 10") as failure:
        recover_by_powers(problem, power_designs(10, (14, 11, 1))[0], 11)
    assert failure.value.n_seen == 10


def with_equal_rows(network):
    weights = [W.copy() for W in network.weights]
    weights[1][:, 4] = weights[1][:, 2]
    return FeedforwardNetwork(weights, network.biases)


def test_two_units_with_equal_rows_are_named(make_planted, make_downstream):
    problem, _ = make_downstream(with_equal_rows(make_planted((10, 14, 11, 1), seed=7)))
    with pytest.raises(NotIdentified, match="no sum of 11 powers, but of 10") as failure:
        recover_by_powers(problem, power_designs(10, (14, 11, 1))[0], 11)
    assert failure.value.n_seen == 10


def test_too_few_signs_for_the_saturated_ones_alone(make_planted, make_downstream, rng):
    network = make_planted((6, 7, 12, 1), seed=5)
    problem, _ = make_downstream(network)
    found = recover_by_powers(problem, power_designs(6, (7, 12, 1))[0], 12)
    X = rng.standard_normal((500, 6))
    assert relative_max_error(network(X), found.network(X)) < 5e-3


def test_a_wrong_length_is_noticed(make_planted, make_downstream):
    network = make_planted((10, 16, 16, 1), seed=8)
    problem, _ = make_downstream(network)
    weights, biases = problem.weights.copy(), problem.biases.copy()
    weights[:, :4] *= 1.7
    biases[:4] *= 1.7
    wrong = type(problem)(problem.query, weights, biases, "tanh", None, 1, problem.rng)
    with pytest.raises(NotIdentified, match="no sum of|powers were found|were not found|misfits the answers"):
        recover_by_powers(wrong, power_designs(10, (16, 16, 1))[0], 16)


def test_patches_out_of_reach_are_named(make_planted, make_downstream):
    network = make_planted((10, 16, 16, 1), seed=8)
    problem, _ = make_downstream(network)
    near = type(problem)(problem.query, problem.weights, problem.biases, "tanh", None, 1, problem.rng, farthest=5.0)
    with pytest.raises(NotIdentified, match="7 free units has 0 points in reach"):
        recover_by_powers(near, power_designs(10, (16, 16, 1))[0], 16)


def test_a_unit_known_far_from_its_centre_is_looked_at_again(make_planted, make_downstream, rng):
    network = make_planted((8, 12, 10, 1), seed=9)
    problem, _ = make_downstream(network)
    biases = problem.biases.copy()
    biases[5] -= 1.8
    far = type(problem)(problem.query, problem.weights, biases, "tanh", None, 1, problem.rng)
    found = recover_by_powers(far, power_designs(8, (12, 10, 1))[0], 10)
    X = rng.standard_normal((500, 8))
    assert relative_max_error(network(X), found.network(X)) < 5e-3
