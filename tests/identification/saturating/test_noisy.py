"""One hidden layer of saturating units from outputs with large errors: steps, local units, fusion, the network."""

import numpy as np
import pytest

from skident.identification.saturating.noisy.fusion import fuse_units
from skident.identification.saturating.noisy.local_units import fit_local_units
from skident.identification.saturating.noisy.network import find_noisy_network
from skident.identification.saturating.noisy.steps import find_steps
from skident.network import FeedforwardNetwork, get_activation
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


def query_of(network, seed=0):
    """Noisy outputs (n,) of a network."""
    rng = np.random.RandomState(seed)
    return lambda U: network(U)[:, 0] + NOISE * rng.standard_normal(len(U))


def constant_std(Y):
    return np.full(Y.shape, NOISE)


def test_steps_lie_on_hyperplanes_and_are_as_high_as_units():
    network = planted(0)
    steps = find_steps(query_of(network), D, NOISE, 4, np.random.RandomState(0))
    Z = steps.points @ network.weights[0] + network.biases[0]
    slopes = np.abs(np.sum(network.weights[0][:, np.abs(Z).argmin(axis=1)].T * steps.directions, axis=1))
    assert len(steps) >= 3 * M
    # Within the interval that the step was narrowed down to.
    assert np.mean(np.abs(Z).min(axis=1) <= slopes * steps.widths) > 0.9
    heights = 2.0 * np.abs(network.weights[1][np.abs(Z).argmin(axis=1), 0])
    share = np.abs(steps.heights) / heights  # of means on both sides, on an interval that resolves the profile
    assert 0.5 < np.median(share) < 1.0 and share.max() < 1.1


def test_constant_outputs_have_no_steps():
    noise = np.random.RandomState(0)
    assert len(find_steps(lambda U: NOISE * noise.standard_normal(len(U)), D, NOISE, 2, np.random.RandomState(0))) == 0


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf"])
def test_local_units_have_the_weights_of_units_and_information_of_their_errors(activation):
    network, rng = planted(1, activation), np.random.RandomState(0)
    query = query_of(network)
    steps = find_steps(query, D, NOISE, 8, rng)
    units = fit_local_units(query, steps, get_activation(activation), constant_std, rng)
    sign = np.sign(network.weights[1][:, 0])
    W = (network.weights[0] * sign).T
    nearest = np.linalg.norm(units.weights[:, None] - W, axis=2).argmin(axis=1)
    off = np.column_stack([units.weights - W[nearest], units.offsets - _sums(network, sign, units, nearest)])
    size = np.einsum("bi,bij,bj->b", off, units.information, off) / (D + 1)
    assert len(units) > 0.7 * len(steps)
    assert 0.5 < np.median(size) < 1.5  # the mean of chi-squared with D + 1 degrees of freedom, per degree


def _sums(network, sign, units, nearest):
    return np.sum(units.points * (network.weights[0] * sign).T[nearest], axis=1) + (network.biases[0] * sign)[nearest]


def test_fused_units_are_those_of_the_network():
    network, rng = planted(2), np.random.RandomState(0)
    query = query_of(network)
    steps = find_steps(query, D, NOISE, 12, rng)
    units = fuse_units(fit_local_units(query, steps, get_activation("tanh"), constant_std, rng))
    sign = np.sign(network.weights[1][:, 0])
    W, b = (network.weights[0] * sign).T, network.biases[0] * sign
    nearest = [np.linalg.norm(unit.weights - W, axis=1).argmin() for unit in units]
    assert sorted(nearest) == list(range(M))
    for unit, k in zip(units, nearest, strict=True):
        np.testing.assert_allclose(unit.weights, W[k], atol=0.05 * np.linalg.norm(W[k]))
        assert abs(unit.bias - b[k]) < 0.1 * np.linalg.norm(W[k])


@pytest.mark.parametrize("outputs", FORMATS)
def test_network_is_recovered_to_its_standard_errors(outputs):
    right = 0
    for seed in range(3):
        network = planted(seed)
        found = find_noisy_network(oracle_of(network, outputs), rng=np.random.RandomState(seed))
        U = np.random.RandomState(5).standard_normal((500, D))
        if found is None or len(found.network.biases[0]) != M:
            continue
        oracle = oracle_of(network, outputs)
        error = oracle.output_center + oracle.output_scale * found.network(U) - network(U)
        # Errors of N outputs and P parameters average to sqrt(P / N) of one output's; N / P is above 100.
        right += np.sqrt(np.mean(error**2)) < 3.0 * NOISE / np.sqrt(100.0)
    assert right >= 2


def test_two_hidden_layers_are_no_such_network():
    rng = np.random.RandomState(0)
    weights = [2.0 * rng.standard_normal((D, 4)), 2.0 * rng.standard_normal((4, 3)), rng.standard_normal((3, 1))]
    deep = FeedforwardNetwork(weights, [rng.standard_normal(4), rng.standard_normal(3), np.zeros(1)], "tanh")
    assert find_noisy_network(oracle_of(deep, "2 decimals"), rng=np.random.RandomState(0)) is None
