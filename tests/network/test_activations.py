"""Activations: values, derivatives, limits, symmetries; networks with clipped outputs."""

import pickle

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from skident.datasets import make_network
from skident.network import (
    ACTIVATIONS,
    FeedforwardNetwork,
    bounded,
    change_inputs,
    change_outputs,
    clip,
    get_activation,
    leaky_relu,
)

# -- activations -------------------------------------------------------------------------------------------------------


Z = np.linspace(-6.0, 6.0, 48)  # 0, where relu has its activation boundary, is not among them
ALL = list(ACTIVATIONS.values())
NAMES = list(ACTIVATIONS)


def central(f, z, step=1e-5):
    return (f(z + step) - f(z - step)) / (2 * step)


@pytest.mark.parametrize("g", ALL, ids=NAMES)
def test_derivatives_against_central_differences(g):
    value, first, second = g.jet(Z, 2)
    np.testing.assert_array_equal(value, g(Z))
    np.testing.assert_allclose(first, central(g, Z), atol=2e-9)
    np.testing.assert_allclose(second, central(lambda z: g.jet(z, 1)[1], Z), atol=2e-9)


@pytest.mark.parametrize("g", ALL, ids=NAMES)
def test_jet_is_consistent_across_orders_and_keeps_the_shape(g):
    z = Z.reshape(4, 12)
    full = g.jet(z, 2)
    for order in range(3):
        jet = g.jet(z, order)
        assert len(jet) == order + 1
        for short, long in zip(jet, full):
            assert short.shape == z.shape
            np.testing.assert_array_equal(short, long)


@pytest.mark.parametrize("g", ALL, ids=NAMES)
def test_far_out_values_are_finite_and_reach_the_limits(g):
    far = np.array([-1e4, 1e4])
    assert all(np.isfinite(part).all() for part in g.jet(far, 2))
    assert g.saturating == (g.limits is not None)
    if g.saturating:
        np.testing.assert_allclose(g(far), g.limits, atol=1e-15)


SYMMETRY = {
    "odd": lambda g, z: (g(-z), -g(z)),
    "point": lambda g, z: (g(-z), sum(g.limits) - g(z)),
    "even": lambda g, z: (g(-3.0 * z), 9.0 * g(z)),
    "homogeneous": lambda g, z: (g(3.0 * z), 3.0 * g(z)),
    "sine": lambda g, z: (np.stack([g(-z), g(z + np.pi)]), np.stack([-g(z), -g(z)])),
    "linear": lambda g, z: (g(2.0 * z + 1.0), 2.0 * g(z) + 1.0),
}


@pytest.mark.parametrize("g", [g for g in ALL if g.symmetry], ids=lambda g: g.name)
def test_declared_symmetry_holds(g):
    np.testing.assert_allclose(*SYMMETRY[g.symmetry](g, Z), atol=1e-13)


def test_lookup():
    assert get_activation("logistic") is get_activation("sigmoid") is ACTIVATIONS["sigmoid"]
    assert get_activation(ACTIVATIONS["tanh"]) is ACTIVATIONS["tanh"]


@pytest.mark.parametrize("name", ["swish", "Tanh", None, 3, ["tanh"]])
def test_unknown_name(name):
    with pytest.raises(ValueError, match="activation must be one of .*'tanh'.*got"):
        get_activation(name)


def test_silu_and_elu():
    """elu has a second derivative everywhere but at 0, where it is taken as that of the exponential."""
    silu, elu = get_activation("silu"), get_activation("elu")
    np.testing.assert_allclose(silu(Z), Z / (1.0 + np.exp(-Z)), rtol=1e-14)
    np.testing.assert_allclose(elu(Z), np.where(Z > 0, Z, np.exp(Z) - 1.0), rtol=1e-12)
    assert silu.smooth and silu.curved and elu.curved and not elu.smooth
    np.testing.assert_array_equal(np.ravel(elu.jet(np.zeros(1), 2)), [0.0, 1.0, 1.0])


def test_leaky_relu():
    g = leaky_relu(0.25)
    value, slope, bend = g.jet(np.array([-2.0, 3.0]), 2)
    np.testing.assert_array_equal(value, [-0.5, 3.0])
    np.testing.assert_array_equal(slope, [0.25, 1.0])
    np.testing.assert_array_equal(bend, [0.0, 0.0])
    assert g == leaky_relu(0.25) == pickle.loads(pickle.dumps(g)) != leaky_relu(0.3)
    assert get_activation("leaky_relu").negative_slope == 0.01 and not g.curved and not g.smooth


@pytest.mark.parametrize("slope", [1.0, np.inf, np.nan])
def test_no_leaky_relu(slope):
    with pytest.raises(ValueError, match="negative_slope must be finite and not 1"):
        leaky_relu(slope)


# -- clip --------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("base", ["tanh", "sigmoid", "erf"])
@pytest.mark.parametrize("bounds", [(-0.2, 5.0), ([-0.2, 1.0], [0.3, 1.5])], ids=["one for all", "one per output"])
def test_a_saturating_activation_between_other_limits(base, bounds, tmp_path):
    plain = make_network((4, 5, 2), activation="relu", output_activation=base, random_state=0)
    network = FeedforwardNetwork(plain.weights, plain.biases, "relu", bounded(base, *bounds))
    (low, high), limits = np.array(bounds), get_activation(base).limits
    slope = (high - low) / (limits[1] - limits[0])
    np.testing.assert_allclose(network(X), low + slope * (plain(X) - limits[0]), atol=1e-14)
    np.testing.assert_allclose(network.jacobian(X), np.reshape(slope, (-1, 1)) * plain.jacobian(X), atol=1e-13)
    np.testing.assert_allclose(network.canonical()(X), network(X), atol=1e-14)
    network.save(tmp_path / "n.safetensors")
    assert FeedforwardNetwork.load(tmp_path / "n.safetensors") == network == pickle.loads(pickle.dumps(network))
    module = network.to_torch()
    np.testing.assert_allclose(module(torch.from_numpy(X)).detach().numpy(), network(X), atol=1e-14)
    assert FeedforwardNetwork.from_torch(module) == network
    if base != "erf":  # onnxruntime has no erf in double precision
        session = onnxruntime.InferenceSession(network.to_onnx().SerializeToString())
        np.testing.assert_allclose(session.run(None, {"X": X})[0], network(X), atol=1e-13)


def test_bounds_that_are_none():
    with pytest.raises(ValueError, match="must be finite"):
        bounded("tanh", 0.0, np.inf)
    with pytest.raises(ValueError, match="must be one of tanh, sigmoid and erf"):
        bounded("relu", 0.0, 1.0)
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
