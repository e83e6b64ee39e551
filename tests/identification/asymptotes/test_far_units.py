"""Hyperplanes and jumps of units far out, and their norms near the center, from rounded outputs."""

import numpy as np
import pytest

from skident.identification.asymptotes.far_units import find_far_units
from skident.identification.asymptotes.near_fit import fit_near_center
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, Oracle
from tests.rates import fewest_successes

SEEDS = range(430, 436)


def random_network(activation, seed, sizes=(6, 10, 2)):
    D, m, n_outputs = sizes
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((D, m)) / np.sqrt(D), rng.standard_normal((m, n_outputs))]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(m), rng.standard_normal(n_outputs)], activation)


def oracle_in_single_precision(function, D):
    oracle, U = Oracle(lambda X: np.float32(function(X)), D), np.random.RandomState(0).standard_normal((40, D))
    oracle.measure_accuracy(U, oracle.standardize_outputs(oracle(U)), np.random.RandomState(0))
    return oracle


def far_units(network, seed):
    oracle = oracle_in_single_precision(network, network.n_inputs)
    return oracle, find_far_units(oracle, None, 100, np.random.RandomState(seed))


@pytest.mark.parametrize("activation", ["gelu", "softplus"])
def test_hyperplanes_to_single_precision(activation):
    found = 0
    for seed in SEEDS:
        network = random_network(activation, seed)
        oracle, units = far_units(network, seed)
        W, b, V = network.weights[0], network.biases[0], network.weights[1]
        norms = np.linalg.norm(W, axis=0)
        match = np.argmax(np.abs(units.normals @ W) / norms, axis=1)
        sides = np.sign(np.sum(units.normals * W[:, match].T, axis=1))
        right = len(units) == len(norms) == len(set(match))
        right &= np.allclose(units.normals, sides[:, None] * (W / norms)[:, match].T, atol=1e-4)
        right &= np.allclose(units.positions, sides * (b / norms)[match], atol=0.1)
        jumps = (norms[:, None] * V)[match] / oracle.output_scale
        found += right and np.allclose(units.jumps, jumps, rtol=1e-3, atol=1e-3)
        assert oracle.n_queries < 12_000
    assert found >= fewest_successes(len(SEEDS), 12, 12)


@pytest.mark.parametrize("activation", ["gelu", "silu", "softplus", "elu"])
def test_the_activation_that_fits(activation):
    right = 0
    for seed in SEEDS[:3]:
        network = random_network(activation, seed)
        oracle, units = far_units(network, seed)
        names = ("softplus", "gelu", "silu", "elu")
        found, explains = fit_near_center(oracle, units, names, oracle.accuracy.std, np.random.RandomState(seed))
        X = np.random.RandomState(0).standard_normal((200, 6))
        right += explains and found.activation == activation and np.abs(found(X) - oracle(X)).max() < 1e-5
    assert right >= fewest_successes(3, 6, 6)


def test_linear_outputs_have_no_units():
    with pytest.raises(NotIdentified, match="no hyperplane is crossed"):
        find_far_units(oracle_in_single_precision(lambda X: X[:, :1], 4), None, 100, np.random.RandomState(0))


def test_a_unit_that_rounding_hides_far_out():
    """Its outgoing weight is 3e-5 of the largest; the residuals of the others show it near the center."""
    right = 0
    for seed in SEEDS[:3]:
        network = random_network("gelu", seed, (5, 8, 1))
        V = network.weights[1].copy()
        V[0] = 3e-5 * np.abs(V).max()
        network = network.with_parameters([network.weights[0], V], network.biases)
        oracle, units = far_units(network, seed)
        found, explains = fit_near_center(oracle, units, ("gelu",), oracle.accuracy.std, np.random.RandomState(seed))
        X = np.random.RandomState(0).standard_normal((200, 5))
        right += explains and found.layer_widths == (8, 1) and np.abs(found(X) - oracle(X)).max() < 1e-5
    assert right >= fewest_successes(3, 6, 6)
