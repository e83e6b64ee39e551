"""The last layer from outputs: signs, output weights, linear parts and undetermined weights."""

import numpy as np
import pytest

from skident.identification.units.readout import (
    PreactivationSigns,
    fill_undetermined,
    hidden_outputs,
    read_out,
    spread_points,
)
from skident.network import FeedforwardNetwork


@pytest.mark.parametrize("widths", [(5, 6, 1), (5, 7, 6, 1), (5, 7, 6, 3)], ids=str)
def test_the_output_is_read(widths, planted):
    net = planted(widths, 0)
    L = len(widths) - 2
    (W, b), _ = net.unsigned(L)
    probe = net.probe()
    found = read_out(probe, net.layers(L - 1), W, b, net.rng)
    assert found.features_share == found.network_share == 1.0 and found.linear.shape == (widths[-3], 0)
    if widths[-1] * widths[-3] >= widths[-2]:
        assert found.deviation.max() < 1e-6
    X = net.rng.standard_normal((100, 5))
    np.testing.assert_allclose(found.network(X), probe.query(X)[0], atol=1e-9 * np.abs(probe.query(X)[0]).max())


def test_a_unit_that_is_always_on_is_read_as_a_pair(planted):
    net = planted((5, 6, 6, 1), 1)
    biases = [b.copy() for b in net.network.biases]
    biases[1][2] = 1e3
    net.set(net.network.weights, biases)
    (W, b), _ = net.unsigned(2)
    others = np.arange(6) != 2
    probe = net.probe()
    found = read_out(probe, net.layers(1), W[:, others], b[others], net.rng)
    assert found.network_share == 1.0 and found.linear.shape == (6, 1) and found.network.layer_widths == (6, 7, 1)
    X = net.rng.standard_normal((100, 5))
    F = probe.query(X)[0]
    np.testing.assert_allclose(found.network(X), F, atol=1e-8 * np.abs(F).max())


def test_weights_that_are_undetermined_are_read_from_the_linear_part(planted):
    net = planted((5, 6, 4, 1), 4)
    W, b = [w.copy() for w in net.network.weights], [v.copy() for v in net.network.biases]
    # The second unit is on wherever the first input is.
    b[0][0], W[1][0, 1] = -4.0 * np.linalg.norm(W[0][:, 0]) / 2.0, 30.0
    net.set(W, b)
    undetermined = np.zeros((6, 4))
    undetermined[0, 1] = -1.0
    unknown = np.where(undetermined != 0, 0.0, W[1])
    found = read_out(net.probe(), net.layers(1), unknown, b[1], net.rng, undetermined=undetermined)
    X = hidden_outputs(net.layers(1), 2.0 * net.rng.standard_normal((2000, 5)))
    if np.all((X @ unknown[:, 1] + b[1][1])[X[:, 0] > 0] > 0):
        assert abs(found.network.weights[1][0, 1] - 30.0) < 1e-4
    assert found.features_share > 0.9


def test_rare_sides_are_among_the_points(planted):
    net = planted((5, 6, 4, 1), 0)
    net.set(net.network.weights, [net.network.biases[0], net.network.biases[1] - [0, 0, 0, 6.0], net.network.biases[2]])
    probe = net.probe()
    X = spread_points(probe, net.layers(2), 50, net.rng)
    on = net.pre_activations(X)[1] > 0
    pool = net.pre_activations(3.0 * net.rng.standard_normal((20_000, 5)))[1] > 0
    reached = (pool.mean(axis=0) > 1e-3) & (pool.mean(axis=0) < 0.999)
    assert np.all(on.sum(axis=0)[reached] >= 4) and np.all((~on).sum(axis=0)[reached] >= 4)


@pytest.fixture(params=[1.0, -1.0], ids=["on", "off"])
def setting(request, planted):
    """Input 0 is inactive on the boundary of unit 0, which keeps one sign where input 0 is active."""
    net = planted((4, 6, 3, 2), 3)
    weights, biases = ([v.copy() for v in part] for part in (net.network.weights, net.network.biases))
    # With t = v . x the first inputs are relu(t - 1) and relu(t); the unit's boundary is at t = 1 / 2.
    weights[0][:, 0] = weights[0][:, 1]
    biases[0][:2] = -1.0, 0.0
    weights[1][:, 0] = request.param * np.array([2.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    biases[1][0] = -0.5 * request.param
    return net.set(weights, biases), request.param


def test_a_unit_keeps_the_side_on_which_it_is_at_the_boundary(setting):
    net, side = setting
    W, b = net.network.weights[1].copy(), net.network.biases[1]
    undetermined = np.zeros(W.shape)
    undetermined[0, 0], W[0, 0] = -1.0, 0.0
    X = 2.0 * net.rng.standard_normal((4000, 4))
    inputs = net.pre_activations(X)[0]
    H = np.maximum(inputs, 0.0)
    sides = PreactivationSigns.determine(H @ W + b, H, inputs, undetermined)
    assert sides.signs[0, 0] == side and np.count_nonzero(sides.signs) == 1
    truth = np.where(net.pre_activations(X)[1] >= 0, 1.0, -1.0)
    np.testing.assert_array_equal(sides.of(H @ W + b, H), truth)
    assert sides.take(np.array([1, 2])).signs.shape == (6, 2)


def test_weights_that_no_boundary_tells_are_read_from_the_outputs(setting):
    net, side = setting
    probe, signs = net.probe(), np.array([1.0, -1.0, 1.0])
    W, b = net.network.weights[1] * signs, net.network.biases[1] * signs
    undetermined = np.zeros(W.shape)
    undetermined[0, 0], W[0, 0] = -1.0, 0.0
    readout = read_out(probe, net.layers(1), W, b, net.rng, undetermined=undetermined)
    assert readout.features_share > 0.99 and readout.network_share > 0.99 and readout.linear.shape[1] == 0
    X = 2.0 * net.rng.standard_normal((500, 4))
    F = probe.query(X)[0]
    assert np.abs(readout.network(X) - F).max() < 1e-9 * np.abs(F).max()
    if side > 0:
        found = readout.network.weights[1][0, 0]
        np.testing.assert_allclose(found, net.network.weights[1][0, 0], atol=1e-9)


def test_a_unit_that_is_off_with_an_input_is_kept_off():
    weights, biases, points = np.array([[0.0], [1.0]]), np.zeros(1), np.array([[1.0, 3.0], [2.0, 1.0], [0.0, 5.0]])
    undetermined = np.array([[-1.0], [0.0]])
    H = np.array([[1e-3, 0.0], [0.0, 1.0]])
    sides = PreactivationSigns.determine(np.array([[-1.0], [1.0]]), H, H - [[0.0, 1.0], [1.0, 0.0]], undetermined)
    filled = fill_undetermined(
        weights, biases, undetermined, sides, np.ones(1), np.ones((1, 1)), np.zeros((2, 1)), points
    )
    Z = FeedforwardNetwork([filled, np.ones((1, 1))], [biases, np.zeros(1)], "relu")(points).ravel()
    np.testing.assert_allclose(Z, [0.0, 0.0, 5.0])
