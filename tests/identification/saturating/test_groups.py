import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.saturating.first_layer import find_first_layer
from skident.identification.saturating.groups import group_size
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle
from tests.rates import fewest_successes

CASES = {
    "two layers": ((20, 20, 5), "tanh", "tanh"),
    "three layers": ((20, 16, 10, 5), "tanh", "tanh"),
    "more units than inputs": ((12, 24, 6), "tanh", "identity"),
    "sigmoid": ((20, 16, 10, 5), "sigmoid", "identity"),
    "erf": ((15, 12, 6), "erf", "erf"),
    "three outputs": ((10, 8, 3), "tanh", "identity"),
}


def search(net, seed, **options):
    oracle = Oracle(net, net.n_inputs)
    first = find_first_layer(
        oracle, activation=net.activation, precise=False, rng=np.random.RandomState(seed), **options
    )
    assert sum(first.queries.values()) == oracle.n_queries
    return first, oracle


def misses(net, first):
    """Errors of weights relative to their length, and of biases up to the units' signs; every unit once."""
    W, lengths = net.weights[0], np.linalg.norm(net.weights[0], axis=0)
    match = np.abs((W / lengths).T @ first.directions).argmax(axis=1)
    assert first.weights.shape == W.shape and sorted(match) == list(range(W.shape[1]))
    D = first.directions[:, match]
    direction = np.linalg.norm(D * np.sign(np.sum(W * D, axis=0)) - W / lengths, axis=0).max()
    return direction, np.abs(np.linalg.norm(first.weights, axis=0)[match] / lengths - 1).max()


@pytest.mark.parametrize(("known", "seed"), [(True, 0), (True, 1), (False, 2)])
@pytest.mark.parametrize("name", CASES)
def test_all_units(name, known, seed):
    """Forward differences of 1e-5, and pre-activations read off a polynomial of degree 6 through ten points."""
    sizes, activation, output = CASES[name]
    net = make_network(sizes, bias_scale=0.5, activation=activation, output_activation=output, random_state=seed)
    first, _ = search(net, seed, n_units=sizes[1] if known else None)
    direction, length = misses(net, first)
    assert direction < 1e-2 and length < 0.15


@pytest.mark.parametrize("seed", range(3))
def test_number_of_queries(seed):
    """15 a step for the scan, 10 for its profile, 3 to check, k = 8 within the subspace, and D + 1 a group."""
    net = make_network((50, 40, 10), bias_scale=0.5, random_state=seed)
    first, oracle = search(net, seed, n_units=40)
    assert misses(net, first)[0] < 1e-2
    groups = 40 * 8 + 5 * 51
    # A unit whose step overlaps another takes about 100 more.
    assert oracle.n_queries < 1.1 * (32 + 40 * (15 + 10 + 3) + groups) + 3 * 100


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_any_length(scale):
    """Directions always; where weights are a tenth of what is usual, a length is now and then off by nine tenths."""
    right = 0
    for seed in range(10):
        net = make_network((10, 12, 4), bias_scale=0.5, output_activation="identity", random_state=seed)
        network = FeedforwardNetwork([scale * net.weights[0], net.weights[1]], net.biases, "tanh", "identity")
        direction, length = misses(network, search(network, seed)[0])
        assert direction < 1e-2
        right += length < 1e-2
    # Of 30 networks each.
    assert right >= fewest_successes(10, 25 if scale < 1 else 30, 30)


def test_biases():
    """Two layers determine them, up to the error of the directions times the distance of the points."""
    net = make_network((10, 8, 5), bias_scale=0.5, output_activation="identity", random_state=0)
    first, _ = search(net, 0)
    match = np.abs(net.weights[0].T @ first.directions).argmax(axis=1)
    signs = np.sign(np.sum(net.weights[0] * first.weights[:, match], axis=0))
    np.testing.assert_allclose(signs * first.biases[match], net.biases[0], atol=1e-2)


def test_group_size():
    assert group_size(50, 1, 40) == group_size(50, 2, 40) == 0  # their effects could not be separated
    assert group_size(50, 10, 40) == 8 and group_size(50, 100, 3) == 3 and group_size(3, 10, 9) == 0


def test_single_output_goes_one_by_one():
    net = make_network((8, 6, 1), bias_scale=0.5, random_state=0)
    (grouped, few), oracle = search(net, 0), Oracle(net, 8)
    direct = find_first_layer(oracle, rng=np.random.RandomState(0))
    np.testing.assert_array_equal(grouped.weights, direct.weights)
    assert few.n_queries == oracle.n_queries
