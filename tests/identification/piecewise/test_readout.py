import numpy as np
import pytest

from skident.identification.piecewise.deep.readout import hidden_outputs, read_out, spread_points


@pytest.mark.parametrize("widths", [(5, 6, 1), (5, 7, 6, 1), (5, 7, 6, 3)], ids=str)
def test_the_output_is_read(widths, planted):
    net = planted(widths, 0)
    L = len(widths) - 2
    known, _ = net.known(L)
    answers = net.answers()
    found = read_out(answers, net.layers(L - 1), known.weights, known.biases, net.rng)
    assert found.features_share == found.network_share == 1.0 and found.linear.shape == (widths[-3], 0)
    if widths[-1] * widths[-3] >= widths[-2]:
        assert found.deviation.max() < 1e-6
    X = net.rng.standard_normal((100, 5))
    np.testing.assert_allclose(found.network(X), answers.query(X)[0], atol=1e-9 * np.abs(answers.query(X)[0]).max())


def test_a_unit_that_is_always_on_is_read_as_a_pair(planted):
    net = planted((5, 6, 6, 1), 1)
    biases = [b.copy() for b in net.network.biases]
    biases[1][2] = 1e3
    net.set(net.network.weights, biases)
    known, _ = net.known(2)
    others = np.arange(6) != 2
    answers = net.answers()
    found = read_out(answers, net.layers(1), known.weights[:, others], known.biases[others], net.rng)
    assert found.network_share == 1.0 and found.linear.shape == (6, 1) and found.network.layer_widths == (6, 7, 1)
    X = net.rng.standard_normal((100, 5))
    F = answers.query(X)[0]
    np.testing.assert_allclose(found.network(X), F, atol=1e-8 * np.abs(F).max())


def test_weights_that_are_open_are_read_from_the_linear_part(planted):
    net = planted((5, 6, 4, 1), 4)
    W, b = [w.copy() for w in net.network.weights], [v.copy() for v in net.network.biases]
    # The second unit is on wherever the first input is.
    b[0][0], W[1][0, 1] = -4.0 * np.linalg.norm(W[0][:, 0]) / 2.0, 30.0
    net.set(W, b)
    undetermined = np.zeros((6, 4))
    undetermined[0, 1] = -1.0
    unknown = np.where(undetermined != 0, 0.0, W[1])
    found = read_out(net.answers(), net.layers(1), unknown, b[1], net.rng, undetermined=undetermined)
    X = hidden_outputs(net.layers(1), 2.0 * net.rng.standard_normal((2000, 5)))
    if np.all((X @ unknown[:, 1] + b[1][1])[X[:, 0] > 0] > 0):
        assert abs(found.network.weights[1][0, 1] - 30.0) < 1e-4
    assert found.features_share > 0.9


def test_rare_sides_are_among_the_points(planted):
    net = planted((5, 6, 4, 1), 0)
    net.set(net.network.weights, [net.network.biases[0], net.network.biases[1] - [0, 0, 0, 6.0], net.network.biases[2]])
    answers = net.answers()
    X = spread_points(answers, net.layers(2), 50, net.rng)
    on = net.pre_activations(X)[1] > 0
    pool = net.pre_activations(3.0 * net.rng.standard_normal((20_000, 5)))[1] > 0
    reached = (pool.mean(axis=0) > 1e-3) & (pool.mean(axis=0) < 0.999)
    assert np.all(on.sum(axis=0)[reached] >= 4) and np.all((~on).sum(axis=0)[reached] >= 4)
