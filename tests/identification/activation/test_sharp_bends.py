"""Sharp bends: max pooling, or ReLU units, in front of smooth units."""

import numpy as np
import pytest

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.activation.sharp_bends import recognize_sharp_bends
from skident.oracle import NotIdentified, Oracle

X = np.random.RandomState(0).standard_normal((200, 6))


def network(*widths, activation="tanh", seed=0):
    return make_network((6, *widths), activation=activation, output_activation="identity", random_state=seed)


BEFORE = {"max pooling": lambda X: np.maximum(X, X[:, ::-1]), "ReLU": lambda X: np.maximum(X @ np.eye(6)[::-1], 0.0)}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", BEFORE)
def test_kinks_are_recognized(kind, seed):
    inner = network(6, 1, seed=seed)
    found = recognize_sharp_bends(Oracle(lambda rows: inner(BEFORE[kind](rows)), 6), np.random.RandomState(0))
    assert found.kind == "sharp bends"


@pytest.mark.parametrize("widths", [(8, 1), (16, 8, 2)])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "erf", "softplus", "gelu", "silu", "elu", "sin"])
def test_smooth_units_have_none(activation, widths):
    oracle = Oracle(network(*widths, activation=activation).__call__, 6)
    assert recognize_sharp_bends(oracle, np.random.RandomState(0)) is None


@pytest.mark.parametrize("steepness", [10.0, 1e3])
def test_steep_units_have_none(steepness):
    W = network(4, 1).weights[0]
    oracle = Oracle(lambda rows: np.tanh(steepness * rows @ W).sum(axis=1), 6)
    assert recognize_sharp_bends(oracle, np.random.RandomState(0)) is None


@pytest.mark.slow
@pytest.mark.usefixtures("own_seconds")
@pytest.mark.filterwarnings("ignore:no network with up to:sklearn.exceptions.ConvergenceWarning")
def test_max_pooling_in_front_of_tanh_units_is_named():
    inner = network(4, 1)
    with pytest.raises(NotIdentified, match="^the outputs are curved and have sharp bends: max pooling") as caught:
        NetworkIdentifier(lambda rows: inner(BEFORE["max pooling"](rows)), random_state=0, max_seconds=20).fit(X)
    assert caught.value.stage == "model"
