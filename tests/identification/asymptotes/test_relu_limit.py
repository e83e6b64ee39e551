"""Several hidden layers of units that grow linearly, from their ReLU limit and profiles far out."""

import numpy as np
import pytest

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.asymptotes.deep_limit import network_from_limit
from skident.identification.asymptotes.profiles import limits_of
from skident.metrics import parameter_error, relative_max_error
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, Oracle
from tests.rates import fewest_successes

SHAPE = (6, 10, 6, 1)
X = np.random.RandomState(0).standard_normal((200, 6))


def network_of(activation, seed, shape=SHAPE):
    return make_network(shape, activation=activation, output_activation="identity", random_state=seed)


def limit_of(network, rng):
    """The ReLU limit with units of any scale."""
    weights, factors = [], np.ones(network.n_inputs)
    for W in network.weights[:-1]:
        scales = np.exp(rng.standard_normal(W.shape[1]))
        weights.append(W / factors[:, None] * scales)
        factors = scales / limits_of(network.activations[0])[1]
    weights.append(network.weights[-1] / factors[:, None])
    return FeedforwardNetwork(weights, [np.zeros(W.shape[1]) for W in weights], "relu")


@pytest.mark.parametrize("shape", [SHAPE, (6, 10, 6, 4, 2)])
@pytest.mark.parametrize("activation", ["gelu", "silu", "softplus", "mish", "selu"])
def test_scales_and_biases_from_profiles(activation, shape):
    """Profiles at 1e5 standard deviations are accurate to 1e-5 of rounding there, and to 1e-8 after the fit."""
    rng, network = np.random.RandomState(0), network_of(activation, 1, shape)
    found = network_from_limit(Oracle(network, 6), limit_of(network, rng), (activation,), rng)
    assert relative_max_error(network(X), found(X)) < 1e-6
    assert parameter_error(found, network) < 1e-5


def with_a_unit_that_is_always_active():
    W, V, U = network_of("gelu", 1).weights
    V = V.copy()
    V[:, 2] = np.abs(V[:, 2])
    return FeedforwardNetwork([W, V, U], network_of("gelu", 1).biases, "gelu")


def test_a_unit_that_is_always_active_far_out_is_fitted_near_the_center():
    rng, network = np.random.RandomState(0), with_a_unit_that_is_always_active()
    found = network_from_limit(Oracle(network, 6), limit_of(network, rng), ("gelu",), rng)
    assert parameter_error(found, network) < 1e-5


@pytest.mark.parametrize(
    ("network", "options"),
    [
        (network_of("gelu", 0), {"layer_widths": (10, 6, 1)}),
        (network_of("silu", 0), {}),
        (network_of("softplus", 0), {"activation": "softplus"}),
        (network_of("gelu", 0, (6, 10, 6, 4, 1)), {}),
        (with_a_unit_that_is_always_active(), {}),
    ],
)
def test_networks_are_identified(network, options):
    found = NetworkIdentifier(lambda rows: network(rows), random_state=0, **options).fit(X)
    assert found.report_.exact and found.report_.route == "ReLU limit"
    assert parameter_error(found.network_, network) < 1e-8


@pytest.mark.slow
def test_most_networks_are_identified():
    successes = 0
    for seed in range(20, 26):
        network = network_of("gelu", seed)
        try:
            found = NetworkIdentifier(lambda rows, network=network: network(rows), random_state=seed).fit(X)
        except NotIdentified:
            continue
        successes += found.report_.exact and parameter_error(found.network_, network) < 1e-8
    assert successes >= fewest_successes(6, 27, 30)
