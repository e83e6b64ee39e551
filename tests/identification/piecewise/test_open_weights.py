import numpy as np
import pytest

from skident.identification.piecewise.deep.readout import PreactivationSigns, fill_undetermined, read_out
from skident.network import FeedforwardNetwork


@pytest.fixture(params=[1.0, -1.0], ids=["on", "off"])
def setting(request, planted):
    """Input 0 is silent on all kinks of unit 0, which stays on, or off, where that is active."""
    net = planted((4, 6, 3, 2), 3)
    weights, biases = ([v.copy() for v in part] for part in (net.network.weights, net.network.biases))
    # With t = v . x the first inputs are relu(t - 1) and relu(t); the unit's kink is at t = 1 / 2.
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
    heights = net.pre_activations(X)[0]
    H = np.maximum(heights, 0.0)
    sides = PreactivationSigns.determine(H @ W + b, H, heights, undetermined)
    assert sides.signs[0, 0] == side and np.count_nonzero(sides.signs) == 1
    truth = np.where(net.pre_activations(X)[1] >= 0, 1.0, -1.0)
    np.testing.assert_array_equal(sides.of(H @ W + b, H), truth)
    assert sides.take(np.array([1, 2])).signs.shape == (6, 2)


def test_weights_that_no_kink_tells_are_read_from_the_answers(setting):
    net, side = setting
    answers, signs = net.answers(), np.array([1.0, -1.0, 1.0])
    W, b = net.network.weights[1] * signs, net.network.biases[1] * signs
    undetermined = np.zeros(W.shape)
    undetermined[0, 0], W[0, 0] = -1.0, 0.0
    readout = read_out(answers, net.layers(1), W, b, net.rng, undetermined=undetermined)
    assert readout.features_share > 0.99 and readout.network_share > 0.99 and readout.linear.shape[1] == 0
    X = 2.0 * net.rng.standard_normal((500, 4))
    F = answers.query(X)[0]
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
