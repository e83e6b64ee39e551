"""Networks with clipped outputs."""

import pickle

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from skident.datasets import make_network
from skident.network import FeedforwardNetwork, change_inputs, change_outputs, clip, get_activation

BOUNDS = {
    "one for all": (-0.2, 0.3),
    "one per output": ([-0.2, -np.inf], [0.3, 0.1]),
    "from below": (-0.1, np.inf),
    "from above": (-np.inf, 0.1),
}
X = 3.0 * np.random.default_rng(0).standard_normal((300, 4))


def _network(bounds, activation="tanh"):
    plain = make_network((4, 5, 2), activation=activation, output_activation="identity", random_state=0)
    return plain, plain.with_clip(*bounds)


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_values_derivatives_and_parts(bounds):
    plain, network = _network(bounds)
    Y = plain(X)
    np.testing.assert_array_equal(network(X), np.clip(Y, *bounds))
    inside = (np.array(bounds[0]) < Y) & (np.array(bounds[1]) > Y)
    np.testing.assert_array_equal(network.jacobian(X), plain.jacobian(X) * inside[:, :, None])
    assert 0 < inside.mean() < 1 and network.without_clip() == plain and plain.output_range is None
    np.testing.assert_array_equal(network.output_range[0], np.broadcast_to(bounds[0], 2))
    np.testing.assert_allclose(network.canonical()(X), network(X), atol=1e-14)
    np.testing.assert_array_equal(network.align_to(network.canonical())(X).round(12), network(X).round(12))


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_changed_units(bounds):
    network = _network(bounds)[1]
    changed = change_outputs(
        change_inputs(network, np.ones(4), np.full(4, 2.0)), np.array([1.0, -2.0]), np.array([3.0, 0.5])
    )
    np.testing.assert_allclose(changed(X), [1.0, -2.0] + np.array([3.0, 0.5]) * network(1.0 + 2.0 * X), atol=1e-13)


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_there_and_back(bounds, tmp_path):
    network = _network(bounds)[1]
    network.save(tmp_path / "n.safetensors")
    assert FeedforwardNetwork.load(tmp_path / "n.safetensors") == network
    assert pickle.loads(pickle.dumps(network)) == network
    module = network.to_torch()
    np.testing.assert_allclose(module(torch.from_numpy(X)).detach().numpy(), network(X), atol=1e-14)
    assert FeedforwardNetwork.from_torch(module) == network
    assert FeedforwardNetwork.from_onnx(network.to_onnx()) == network


def test_a_graph_with_a_clip_runs():
    for bounds in BOUNDS.values():
        network = _network(bounds)[1]
        session = onnxruntime.InferenceSession(network.to_onnx().SerializeToString())
        np.testing.assert_allclose(session.run(None, {"X": X})[0], network(X), atol=1e-13)


def test_torch_modules_that_clip():
    for last, bounds in ((nn.Hardtanh(-0.5, 0.25), (-0.5, 0.25)), (nn.ReLU6(), (0.0, 6.0))):
        network = FeedforwardNetwork.from_torch(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2), last))
        assert network.activations[-1] == clip(*bounds)


def test_bounds_that_are_none():
    for bounds in ((1.0, 1.0), (2.0, [3.0, 1.0]), (np.nan, 1.0)):
        with pytest.raises(ValueError, match="low must be below high"):
            clip(*bounds)
    with pytest.raises(ValueError, match="must be numbers"):
        clip("a", 1.0)
    with pytest.raises(ValueError, match="bounds for 3 outputs"):
        _network((np.zeros(3), [1.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="only linear outputs"):
        make_network((4, 3, 2), random_state=0).with_clip(0.0, 1.0)
    with pytest.raises(ValueError, match="a hidden layer has one low"):
        FeedforwardNetwork([np.eye(2), np.eye(2)], np.zeros((2, 2)), clip([0.0, 1.0], 2.0))
    assert get_activation(clip(0.0, 1.0)) == clip([0.0, 0.0], 1.0) and clip().name == "clip(-inf, inf)"
