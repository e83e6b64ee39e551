"""Outputs that read both hidden layers: averages of networks with one and two hidden layers, and residual blocks."""

import numpy as np
import pytest

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.network import FeedforwardNetwork

D = 9
ROWS = 3.0 * np.random.RandomState(0).standard_normal((500, D))
SAMPLES = np.random.RandomState(1).standard_normal((200, D))


def network(*widths, activation="tanh", seed=0):
    options = {"activation": activation, "output_activation": "identity", "bias_scale": 0.5, "random_state": seed}
    return make_network((D, *widths), **options)


def average(activation, n_outputs, seed):
    """The mean of networks with one and with two hidden layers."""
    one = network(4, n_outputs, activation=activation, seed=seed)
    two = network(8, 5, n_outputs, activation=activation, seed=seed + 100)
    return one, two, lambda rows: (one(rows) + two(rows)) / 2.0


def residual_block(seed):
    """``h + tanh(h W + b) V`` of a tanh layer h, and a linear output."""
    stem, inner = network(8, 8, seed=seed), make_network((8, 5, 8), output_activation="identity", random_state=seed)
    outgoing = np.random.RandomState(seed).standard_normal((8, 1))

    def model(rows):
        H = np.tanh(rows @ stem.weights[0] + stem.biases[0])
        return (H + inner(H)) @ outgoing

    return model


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
    for seed in range(2):
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
    assert n_exact >= 1
