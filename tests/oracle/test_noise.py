import numpy as np
import pytest

import skident.oracle
from skident.datasets import make_network
from skident.oracle import Oracle, measure_noise

SEEDS = range(4)


def network(seed, activation="tanh"):
    options = {"activation": activation, "output_activation": "identity"}
    return make_network((8, 6, 3), shift_scale=0.5, random_state=seed, **options)


def single(net, X):
    """The network in float32, as torch would answer."""
    y = X.astype(np.float32)
    for W, b in zip(net.weights[:-1], net.biases[:-1]):
        y = np.tanh(y @ W.astype(np.float32) + b.astype(np.float32))
    return y @ net.weights[-1].astype(np.float32) + net.biases[-1].astype(np.float32)


def measure(box, seed):
    oracle = Oracle(box, 8)
    U = np.random.RandomState(seed).standard_normal((100, 8))
    level = measure_noise(oracle, U, np.random.RandomState(seed))
    assert level.std.shape == (3,)
    return *level, oracle.n_queries


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1e-6, 1e-3])
def test_fresh_noise_of_every_output(size, seed):
    """Twenty degrees of freedom: the estimate's own standard deviation is 16 %, three of them are 50 %."""
    net, rng, unit = network(seed), np.random.RandomState(seed + 100), np.array([1.0, 10.0, 0.1])
    std, repeatable, n_queries = measure(lambda X: net(X) + size * unit * rng.standard_normal((len(X), 3)), seed)
    assert np.all(np.abs(std / (size * unit) - 1) < 0.5)
    assert not repeatable and n_queries <= 100


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("decimals", [2, 4, 6])
def test_rounding_is_noise_that_repeats(decimals, seed):
    """The rounding error is uniform of length 10^-decimals; coarse rounding leaves few distinct values to see it by."""
    net = network(seed)
    std, repeatable, _ = measure(lambda X: net(X).round(decimals), seed)
    expected = 10.0**-decimals / np.sqrt(12)
    assert repeatable and np.all(std > expected / 4) and np.all(std < 4 * expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_single_precision(seed):
    net = network(seed)
    std, repeatable, _ = measure(lambda X: single(net, X), seed)
    assert repeatable and np.all(std > 5e-9) and np.all(std < 5e-7)


@pytest.mark.parametrize(
    "activation", ["tanh", "sigmoid", "erf", "softplus", "sin", "gelu", "silu", "elu", "relu", "quadratic"]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_exact_answers_are_not_noisy(activation, seed):
    """Rounding of float64 sums of a few terms; kinks of relu are not noise."""
    net = network(seed, activation)
    std, repeatable, n_queries = measure(net, seed)
    largest = np.abs(net(np.random.RandomState(seed).standard_normal((100, 8)))).max()
    assert repeatable and std.max() < 1e-14 * largest and n_queries <= 100


def test_steep_networks_are_not_noisy():
    net = network(0)
    assert measure(lambda X: net(30.0 * X), 0)[0].max() < 1e-13


def test_offset_counts_as_rounding_only():
    net = network(0)
    std, repeatable, _ = measure(lambda X: net(X) + 1e6, 0)
    assert repeatable and std.max() < 1e-9


def test_constant_output():
    """It cannot be told from one that is rounded coarsely, so larger spacings are tried too."""
    std, repeatable, n_queries = measure(lambda X: np.tile([1.0, 0.0, 1e9], (len(X), 1)), 0)
    assert repeatable and np.all(std == 0) and n_queries == 143


def test_the_old_name_of_the_noise_limit_warns():
    with pytest.warns(FutureWarning, match="MAX_NOISE"):
        assert skident.oracle.MOST_NOISE == skident.oracle.MAX_NOISE
