import builtins

import numpy as np
import pytest

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.network import FeedforwardNetwork, leaky_relu

NETWORK = make_network((3, 4, 2), shift_scale=0.5, output_activation="identity", random_state=0)


def test_summary():
    lines = NETWORK.summary().splitlines()
    assert lines[0] == repr(NETWORK)
    assert lines[2].split()[:5] == ["1", "3", "4", "tanh", "16"]
    assert lines[3].split()[:5] == ["2", "4", "2", "identity", "10"]
    assert float(lines[2].split()[5]) == pytest.approx(np.abs(NETWORK.weights[0]).max(), rel=1e-2)
    assert float(lines[2].split()[6]) == pytest.approx(np.abs(NETWORK.biases[0]).max(), rel=1e-2)
    assert lines[4].split() == ["total", "26"] and len({len(line) for line in lines[1:4]}) == 1
    slope = FeedforwardNetwork([[[1.0]], [[1.0]]], [[0.0], [0.0]], leaky_relu(0.25))
    assert "leaky_relu(0.25)" in slope.summary()


def test_every_parameter_has_its_label():
    frame = NETWORK.to_frame()
    assert list(frame.columns) == ["value"] and len(frame) == NETWORK.n_parameters and frame.index.is_unique
    assert frame.index.names == ["layer", "unit", "source"]
    for layer, (W, b) in enumerate(zip(NETWORK.weights, NETWORK.biases), 1):
        for (i, unit), weight in np.ndenumerate(W):
            source = f"x{i}" if layer == 1 else f"unit {i}"
            assert frame.loc[(layer, unit, source), "value"] == weight
        for unit, shift in enumerate(b):
            assert frame.loc[(layer, unit, "shift"), "value"] == shift
    named = NETWORK.to_frame(feature_names=["age", "bmi", "sex"])
    assert named.loc[(1, 2, "bmi"), "value"] == NETWORK.weights[0][1, 2]


def test_standard_errors_of_noisy_answers():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((200, 3))
    with pytest.warns(UserWarning, match="the outputs carry noise"):
        identifier = NetworkIdentifier(lambda X: NETWORK(X).round(5), layer_widths=(4, 2), random_state=0).fit(X)
    found, truth = identifier.network_, NETWORK.align_to(identifier.network_).to_frame()
    frame = found.to_frame(stderr=identifier.stderr_)
    assert list(frame.columns) == ["value", "stderr"] and (frame["stderr"] > 0).all()
    assert frame.loc[(2, 1, "shift"), "stderr"] == identifier.stderr_[1][1][1]
    assert ((frame["value"] - truth["value"]).abs() / frame["stderr"]).median() < 2.0
    assert found.to_frame(stderr=None).columns.tolist() == ["value"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"stderr": ([np.ones((3, 4))], [np.ones(4)])},
            r"shapes of the weights and biases, .*\(4, 2\).* got \[\(3, 4\)",
        ),
        ({"stderr": 1.0}, "stderr must be a pair of lists of arrays"),
        ({"feature_names": ["a", "b"]}, "feature_names must be 3 names, one per input, got 2"),
    ],
)
def test_to_frame_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        NETWORK.to_frame(**options)


def test_without_pandas_it_is_named(monkeypatch):
    load = builtins.__import__
    monkeypatch.setattr(
        builtins, "__import__", lambda name, *args: load("no_" + name if name == "pandas" else name, *args)
    )
    with pytest.raises(ImportError, match="to_frame needs pandas, which is not installed"):
        NETWORK.to_frame()
