import numpy as np
import pytest

from skident.identification.piecewise.deep.readout import Readout
from skident.identification.piecewise.deep.validation import validate_readout
from skident.network import FeedforwardNetwork


@pytest.fixture
def right(planted):
    net = planted((6, 7, 5, 1), 1)
    answers, shift = net.answers(), net.network(np.zeros((1, 6)))[0] / net.oracle.output_scale
    unit = answers.output_error * net.oracle.output_scale
    shift = answers.query(np.zeros((1, 6)))[0][0] - shift / answers.output_error
    W, b = net.network.weights, net.network.biases
    return net, answers, FeedforwardNetwork([*W[:2], W[2] / unit], [*b[:2], b[2] / unit + shift], "relu")


def perturbed(network, size, rng):
    weights = [w * (1.0 + size * rng.standard_normal(w.shape)) for w in network.weights]
    return FeedforwardNetwork(weights, network.biases, "relu")


def with_pair(network, v, size):
    """A linear part in the last hidden layer."""
    W, b = network.weights, network.biases
    out = size * np.abs(W[2]).max()
    weights = [W[0], np.hstack([W[1], v, -v]), np.vstack([W[2], [[out]], [[-out]]])]
    return FeedforwardNetwork(weights, [b[0], np.append(b[1], [0.0, 0.0]), b[2]], "relu")


def test_a_linear_part_that_makes_up_for_weights_is_left_out(right):
    net, answers, network = right
    rough, v = perturbed(network, 1e-7, net.rng), net.rng.standard_normal((7, 1))
    readout = Readout(with_pair(rough, v, 1e-7), 1.0, 1.0, np.zeros(5), v, rough)
    judged = validate_readout(answers, readout, None, 400, net.rng)
    assert judged.wrong_share == 0.0 and len(judged.X) >= 400 and judged.linear.shape == (7, 0)
    assert judged.network.layer_widths == (7, 5, 1)


def test_what_no_polish_repairs_stays_wrong(right):
    net, answers, network = right
    lacking = FeedforwardNetwork(
        [network.weights[0], network.weights[1][:, 1:], network.weights[2][1:]],
        [network.biases[0], network.biases[1][1:], network.biases[2]],
        "relu",
    )
    readout = Readout(lacking, 0.7, 0.7, np.zeros(4), np.zeros((7, 0)))
    judged = validate_readout(answers, readout, None, 400, net.rng)
    assert judged.wrong_share > 0.1 and judged.network.layer_widths == (7, 4, 1)
