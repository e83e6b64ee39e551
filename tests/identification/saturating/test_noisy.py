"""One hidden layer of saturating units from outputs with large errors."""

import numpy as np
import pytest

from skident.identification.saturating.first_layer import find_first_layer
from skident.identification.saturating.noisy import find_noisy_network, queries_of_noisy_network
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle

D, M, NOISE = 4, 5, 1e-2
# Errors of the outputs, each as a function of a generator and outputs of standard deviation about 1.
FORMATS = {
    "noise": lambda rng, Y: Y + NOISE * rng.standard_normal(Y.shape),
    "2 decimals": lambda rng, Y: Y.round(2),
    "float16": lambda rng, Y: Y.astype(np.float16).astype(float),
}


def planted(seed, activation="tanh", n_hidden=M):
    """A network with units of different heights."""
    rng = np.random.RandomState(seed)
    weights = [
        rng.standard_normal((D, n_hidden)),
        rng.uniform(0.3, 1.0, (n_hidden, 1)) * rng.choice([-1, 1], (n_hidden, 1)),
    ]
    return FeedforwardNetwork(weights, [rng.standard_normal(n_hidden), np.array([0.3])], activation)


def oracle_of(network, outputs="noise", seed=0):
    """An oracle of a network whose outputs have errors."""
    rng = np.random.RandomState(seed)
    oracle = Oracle(lambda X: FORMATS[outputs](rng, network(X)), D)
    U = np.random.RandomState(1).standard_normal((200, D))
    oracle.standardize_outputs(oracle(U))
    oracle.measure_accuracy(U, oracle(U), np.random.RandomState(2))
    return oracle


def found_network(oracle, activation="tanh", seed=0):
    rng = np.random.RandomState(seed)
    first = find_first_layer(oracle, activation=activation, rng=rng, noise=oracle.accuracy.noise_std)
    return find_noisy_network(oracle, first, activation, rng)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf"])
@pytest.mark.parametrize("outputs", FORMATS)
def test_network_is_recovered_to_its_standard_errors(outputs, activation):
    right = 0
    for seed in range(3):
        network = planted(seed, activation)
        oracle = oracle_of(network, outputs)
        found = found_network(oracle, activation, seed)
        U = np.random.RandomState(5).standard_normal((500, D))
        if found is None or len(found.network.biases[0]) != M:
            continue
        error = oracle.output_center + oracle.output_scale * found.network(U) - network(U)
        # Errors of N outputs and P parameters average to sqrt(P / N) of one output's; N / P is above 100.
        right += np.sqrt(np.mean(error**2)) < 3.0 * NOISE / np.sqrt(100.0)
    assert right >= 2


def test_two_hidden_layers_are_no_such_network():
    rng = np.random.RandomState(0)
    weights = [2.0 * rng.standard_normal((D, 4)), 2.0 * rng.standard_normal((4, 3)), rng.standard_normal((3, 1))]
    deep = FeedforwardNetwork(weights, [rng.standard_normal(4), rng.standard_normal(3), np.zeros(1)], "tanh")
    assert found_network(oracle_of(deep, "2 decimals")) is None


def test_queries_are_those_that_were_announced():
    oracle = oracle_of(planted(0))
    first = find_first_layer(oracle, rng=np.random.RandomState(0), noise=oracle.accuracy.noise_std)
    n_before = oracle.n_queries
    assert find_noisy_network(oracle, first, "tanh", np.random.RandomState(0)) is not None
    assert oracle.n_queries - n_before <= queries_of_noisy_network(D, M)
