"""The last layer from outputs: signs, output weights, linear parts and undetermined weights."""

import numpy as np
import pytest

from skident.identification.units.open_parts import close_open_parts
from skident.identification.units.readout import read_out, spread_points
from skident.identification.units.unit import Unit


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


def units_of(W, b):
    return [Unit(np.append(w, c), np.zeros((len(w) + 1, 0)), np.zeros(4)) for w, c in zip(W.T, b, strict=True)]


def test_weights_that_no_boundary_tells_follow_from_outputs(setting):
    net, side = setting
    probe, signs = net.probe(), np.array([1.0, -1.0, 1.0])
    units = units_of(net.network.weights[1] * signs, net.network.biases[1] * signs)
    units[0].coef[0], units[0].V = 0.0, np.eye(7)[:, :1]
    W, b = np.array([unit.coef[:-1] for unit in units]).T, np.array([unit.coef[-1] for unit in units])
    readout = read_out(probe, net.layers(1), W, b, net.rng)
    assert readout.linear.shape[1] == (side > 0)
    if side > 0:
        assert close_open_parts(probe, readout.cut(), [units_of(*net.layers(1)[0]), units], net.rng)
    W = np.array([unit.coef[:-1] for unit in units]).T
    readout = read_out(probe, net.layers(1), W, b, net.rng)
    assert readout.linear.shape[1] == 0 and readout.network_share > 0.99
    if side > 0:
        assert abs(units[0].coef[0] - net.network.weights[1][0, 0]) < 1e-9


def test_open_weights_of_lower_layers_follow_from_outputs(planted):
    net = planted((4, 6, 5, 4, 2), 3)
    probe, levels = net.probe(), [units_of(*layer) for layer in net.layers(3)]
    levels[1][2].V, levels[1][4].V = np.eye(7)[:, :1], np.eye(7)[:, 2:4]
    truth = [levels[1][2].coef.copy(), levels[1][4].coef.copy()]
    W, b = net.layers(3)[2]
    network = read_out(probe, net.layers(2), W, b, net.rng).network
    weights = [W.copy() for W in network.weights]
    weights[1][0, 2] = weights[1][2:4, 4] = 0.0
    network = network.with_parameters(weights, network.biases)
    levels[1][2].coef[0] = levels[1][4].coef[2:4] = 0.0
    assert close_open_parts(probe, network, levels, net.rng)
    for unit, coef in zip((levels[1][2], levels[1][4]), truth, strict=True):
        assert unit.nullity == 0
        np.testing.assert_allclose(unit.coef, coef, atol=1e-6)


def test_open_weights_stay_open_if_they_explain_nothing(planted):
    net = planted((4, 6, 3, 2), 3)
    probe, levels = net.probe(), [units_of(*layer) for layer in net.layers(2)]
    network = read_out(probe, net.layers(1), *net.layers(2)[1], net.rng).network
    network = network.with_parameters([-network.weights[0], *network.weights[1:]], network.biases)
    levels[1][0].V = np.eye(7)[:, :1]
    assert not close_open_parts(probe, network, levels, net.rng)
    assert levels[1][0].nullity == 1
