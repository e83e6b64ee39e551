import numpy as np
import pytest

from skident.identification.piecewise.deep.facet_unit import FacetUnit
from skident.identification.piecewise.deep.follow_facets import extend_unit
from skident.identification.piecewise.deep.known_layers import KnownLayers
from skident.identification.piecewise.deep.layer_units import LayerUnits, intersection
from skident.identification.piecewise.deep.predictions import crossing_support, hit_rate, probe_predictions, refine
from skident.identification.piecewise.kernel.gradient import critical_points_on
from skident.identification.piecewise.kernel.lines import CriticalPoints, random_segments


def owners(net, unit, rng):
    """The planted units (layer, index) whose kinks a unit's predicted ones are, and how many are of the most usual."""
    points = unit.predicted_points(40, rng)[0]
    found = []
    for x in points:
        z = [(abs(v), i + 1, k) for i, Z in enumerate(net.pre_activations(x[None])) for k, v in enumerate(Z[0])]
        found.append(min(z)[1:])
    usual = max(set(found), key=found.count)
    return usual, found.count(usual) / len(found)


@pytest.fixture(scope="module")
def second_layer(request):
    from .conftest import Planted

    net = Planted((8, 8, 6, 1), 0)
    known, factors = net.known(1)
    answers, layer = net.answers(), LayerUnits(known)
    lines = random_segments(answers, 8, net.rng, reach=4.0)
    kinks = critical_points_on(answers, lines, known.on_boundaries, 24, net.rng)
    layer.add(answers, kinks, net.rng)
    return net, answers, layer, factors


def test_the_units_of_the_second_layer(second_layer):
    net, answers, layer, factors = second_layer
    rng = np.random.RandomState(0)
    found = [owners(net, unit, rng) for unit in layer.units]
    assert all(name[0] == 2 and share == 1.0 for name, share in found)
    assert len(set(found)) == len(found) >= 4
    np.testing.assert_array_equal(layer.signs, np.sign(factors))
    W, b, open_entries = layer.weights()
    for (_, k), w, c, unknown in zip([name for name, _ in found], W.T, b, open_entries.T, strict=True):
        truth = np.append(net.network.weights[1][:, k] / np.abs(factors), net.network.biases[1][k])
        told = np.append(unknown == 0, True)
        scale = np.append(w, c)[told] @ truth[told] / (truth[told] @ truth[told])
        np.testing.assert_allclose(np.append(w, c)[told], scale * truth[told], atol=1e-7)


def test_units_are_of_their_layer(second_layer):
    net, answers, layer, _ = second_layer
    rng, unit = np.random.RandomState(1), layer.units[0]
    assert len(layer.points_of_previous_layer()) == 0 and layer.drop_deeper_facets(answers, rng) == 0
    assert hit_rate(answers, unit, rng)[0] > 0.5 and crossing_support(answers, unit, layer.units, rng) > 0.5
    seen = probe_predictions(answers, unit, layer.units, rng)
    theta, start = unit.coef.copy(), unit.coef / np.linalg.norm(unit.coef)
    refine(answers, unit, rng)
    assert np.abs(unit.coef - theta).max() < 1e-9 and seen.hit.mean() > 0.5 and np.isfinite(start).all()


def test_two_parts_of_a_unit_meet(second_layer):
    net, answers, layer, _ = second_layer
    rng, whole = np.random.RandomState(2), layer.units[0]
    points, normals = whole.predicted_points(12, rng)
    parts = [FacetUnit(layer.known, x, n, layer.basis) for x, n in zip(points, normals, strict=True)]
    joint = intersection(whole, parts[0])
    assert joint is not None and joint.nullity <= whole.nullity
    other = FacetUnit(layer.known, layer.units[1].point, layer.units[1].normal, layer.basis)
    assert intersection(whole, other) is None
    assert extend_unit(answers, parts[1], rng) and parts[1].residual < 1e-5


def test_a_unit_of_the_layer_before_is_told(planted):
    net = planted((8, 8, 6, 1), 1)
    W, b = net.network.weights[0], net.network.biases[0]
    layer = LayerUnits(KnownLayers([], W[:, 1:], b[1:]))
    x, g = net.kink_of(1, 0)
    unit = FacetUnit(layer.known, x, g / np.linalg.norm(g))
    truth = np.concatenate([np.zeros(7), W[:, 0], b[:1]])
    unit.add_equations(np.eye(len(truth)), truth / np.linalg.norm(W[:, 0]), x[None])
    layer.units.append(unit)
    assert len(layer.points_of_previous_layer()) == 1
    plane = layer.planes_of_previous_layer()[0]
    np.testing.assert_allclose(plane, np.append(W[:, 0], b[0]) / np.linalg.norm(W[:, 0]), atol=1e-9)


def test_a_bias_completes_what_was_a_linear_part(planted):
    net = planted((8, 8, 6, 1), 2)
    known, factors = net.known(1)
    layer = LayerUnits(known, signs=np.sign(factors))
    (x, g), (y, h) = net.kink_of(2, 3), net.kink_of(2, 4)
    linear = net.network.weights[1][:, [3]] / np.abs(factors)[:, None]
    kinks = CriticalPoints(
        np.array([y, x]), np.array([h / np.linalg.norm(h), g / np.linalg.norm(g)]), np.array([1e-9, 1e-9])
    )
    assert layer.add_from_linear_part(linear, kinks) == 1
    assert owners(net, layer.units[0], np.random.RandomState(0)) == ((2, 3), 1.0)
