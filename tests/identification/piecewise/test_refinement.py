import numpy as np
import pytest

from skident.identification.piecewise.deep.facet_unit import FacetUnit
from skident.identification.piecewise.deep.follow_facets import extend_unit, extend_units
from skident.identification.piecewise.deep.predictions import refine
from skident.identification.piecewise.deep.signs import features_with_signs

_FAR_OFF = -80.0  # bias of a unit that is active in few places


def weights_of(unit):
    """Weights and bias of a unit, of norm 1."""
    w = np.linalg.lstsq(unit.basis, unit.coef, rcond=None)[0]
    return w / np.linalg.norm(w)


def planted_weights(net, factors, layer, k):
    w = np.append(net.network.weights[layer][:, k] / np.abs(factors), net.network.biases[layer][k])
    return w / np.linalg.norm(w)


def tell(unit, w):
    """Tell a unit its weights and bias, as long as its gradient's length asks for."""
    theta = unit.basis @ w
    slope = unit.known.gradients(unit.known.evaluate(unit.point[None])[0] > 0, theta)[0] @ unit.normal
    unit.add_equations(np.eye(len(theta)), theta / slope, unit.point[None])


@pytest.fixture
def setting(planted):
    net = planted((8, 30, 4, 1), 1)
    known, factors = net.known(1)
    x, g = net.kink_of(2, 0)
    n = g / np.linalg.norm(g)
    unit = FacetUnit(known, x, n, features_with_signs(known, np.sign(factors)), 1e-9)
    return net, net.answers(), unit, planted_weights(net, factors, 1, 0)


def test_errors_do_not_grow_along_a_unit_of_a_wide_layer(setting):
    net, answers, unit, truth = setting
    assert extend_unit(answers, unit, net.rng) and unit.nullity == 0
    assert unit.residual < 1e-8 and len(unit.located) > 2 * len(truth)
    w = weights_of(unit)
    assert min(np.abs(w - truth).max(), np.abs(w + truth).max()) < 1e-8
    z = [net.pre_activations(unit.located)[1][:, 0]]
    assert np.abs(z).max() < 1e-9


def test_a_rough_unit_becomes_exact(setting):
    net, answers, unit, truth = setting
    tell(unit, truth + 1e-5 * net.rng.standard_normal(len(truth)))
    refine(answers, unit, net.rng)
    w = weights_of(unit)
    assert min(np.abs(w - truth).max(), np.abs(w + truth).max()) < 1e-12


def test_kinks_that_random_lines_hardly_meet_are_predicted(planted):
    net = planted((10, 12, 4, 1), 2)
    weights, biases = ([v.copy() for v in part] for part in (net.network.weights, net.network.biases))
    weights[1][:, 0], biases[1][0] = np.abs(weights[1][:, 0]), _FAR_OFF
    net.set(weights, biases)
    known, factors = net.known(1)
    truth = planted_weights(net, factors, 1, 0)
    basis = features_with_signs(known, np.sign(factors))
    low, high = 0.0, 400.0
    direction = weights[0].sum(axis=1) / np.linalg.norm(weights[0].sum(axis=1))
    for _ in range(80):
        middle = 0.5 * (low + high)
        if net.pre_activations(middle * direction[None])[1][0, 0] < 0:
            low = middle
        else:
            high = middle
    active = known.evaluate(low * direction[None])[0] > 0
    gradient = known.gradients(active, basis @ truth)[0]
    unit = FacetUnit(known, low * direction, gradient / np.linalg.norm(gradient), basis)
    tell(unit, truth)
    points, normals = unit.predicted_points(12, net.rng)
    assert len(points) >= 8 and np.abs(net.pre_activations(points)[1][:, 0]).max() < 1e-9
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1.0)


def test_units_that_were_left_are_followed_again(setting):
    net, answers, unit, truth = setting
    extend_unit(answers, unit, net.rng, n_rounds=1)
    left = unit.nullity
    assert left > 0 and extend_units(answers, [unit], net.rng) == left - unit.nullity > 0
    assert extend_units(answers, [unit], net.rng) >= 0
    w = weights_of(unit)
    assert unit.nullity == 0 and min(np.abs(w - truth).max(), np.abs(w + truth).max()) < 1e-8
    assert extend_units(answers, [unit], net.rng) == 0
