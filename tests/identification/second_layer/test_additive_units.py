"""Outputs that read both hidden layers: averages of networks with one and two hidden layers, and residual blocks."""

import numpy as np
import pytest

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.saturating.first_layer import find_first_layer
from skident.identification.second_layer.additive_units import WithoutUnits, find_additive_units, joined_with_units
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle

D = 6
ROWS = 3.0 * np.random.RandomState(0).standard_normal((500, D))
SAMPLES = np.random.RandomState(1).standard_normal((200, D))


def network(*widths, activation="tanh", seed=0):
    options = {"activation": activation, "output_activation": "identity", "bias_scale": 0.5, "random_state": seed}
    return make_network((D, *widths), **options)


def average(activation, n_outputs, seed):
    """The mean of networks with one and with two hidden layers."""
    one = network(4, n_outputs, activation=activation, seed=seed)
    two = network(5, 3, n_outputs, activation=activation, seed=seed + 100)
    return one, two, lambda rows: (one(rows) + two(rows)) / 2.0


def residual_block(seed):
    """``h + tanh(h W + b) V`` of a tanh layer h, and a linear output."""
    stem, inner = network(8, 8, seed=seed), make_network((8, 6, 8), output_activation="identity", random_state=seed)
    outgoing = np.random.RandomState(seed).standard_normal((8, 1))

    def model(rows):
        H = np.tanh(rows @ stem.weights[0] + stem.biases[0])
        return (H + inner(H)) @ outgoing

    return model


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_additive_units_and_their_outputs(activation):
    """They are told from the others, and what is left of the model has a constant gradient along each of them."""
    one, two, model = average(activation, 2, seed=3)
    oracle, rng = Oracle(model, D), np.random.RandomState(0)
    first = find_first_layer(oracle, n_units=9, rng=rng, activation=activation)
    units, rest = find_additive_units(oracle, first, activation, rng)
    assert units.weights.shape == (D, 4) and rest.weights.shape == (D, 5)
    left = WithoutUnits(oracle, units)(ROWS) - two(ROWS) / 2.0
    assert np.ptp(left, axis=0).max() < 1e-11  # an offset per output, and rounding at a distance of 1e4
    halved = two.with_parameters([*two.weights[:-1], two.weights[-1] / 2.0], [*two.biases[:-1], two.biases[-1] / 2.0])
    joined = joined_with_units(halved, units)
    assert joined.layer_widths == (5 + 4 + 2, 3 + 2, 2)
    np.testing.assert_allclose(joined(ROWS), halved(ROWS) + units(ROWS), rtol=0, atol=1e-12)


def test_no_additive_units():
    """Two queries at each of up to five sign patterns per unit show that there is none."""
    oracle, rng = Oracle(network(5, 3, 1), D), np.random.RandomState(0)
    first = find_first_layer(oracle, n_units=5, rng=rng)
    before = oracle.n_queries
    units, rest = find_additive_units(oracle, first, "tanh", rng)
    assert units is None and rest.weights.shape == (D, 5)
    assert oracle.n_queries - before <= 2 * 5 * 5


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda seed: average("tanh", 1, seed)[2], id="tanh average"),
        pytest.param(lambda seed: average("sigmoid", 1, seed)[2], id="sigmoid average", marks=pytest.mark.slow),
        pytest.param(lambda seed: average("tanh", 2, seed)[2], id="tanh average, two outputs"),
        pytest.param(residual_block, id="residual block"),
    ],
)
def test_outputs_that_read_both_layers(make, tmp_path, own_seconds):
    n_exact = 0
    for seed in range(3):
        model = make(seed)
        try:
            identifier = NetworkIdentifier(model, random_state=seed, max_seconds=10).fit(SAMPLES)
        except ValueError:
            continue
        if identifier.report_.exact:
            n_exact += 1
            truth = model(ROWS)
            found = identifier.predict(ROWS).reshape(truth.shape)
            assert np.abs(found - truth).max() < 1e-9 * np.std(truth)
            assert "linear" in identifier.network_.activation
            identifier.network_.save(tmp_path / "network.safetensors")
            assert FeedforwardNetwork.load(tmp_path / "network.safetensors") == identifier.network_
    assert n_exact >= 2
