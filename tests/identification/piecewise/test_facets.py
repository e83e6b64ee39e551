import numpy as np
import pytest

from skident.identification.piecewise.deep.facet_unit import FacetUnit
from skident.identification.piecewise.deep.follow_facets import find_crossings
from skident.identification.piecewise.deep.signs import features_with_signs


def coef_of(net, known, factors, layer, k):
    """What a unit of the layer behind is in the features, from their definition."""
    w, b = net.network.weights[layer][:, k], net.network.biases[layer][k]
    v = w / np.abs(factors)
    alpha, s = 0.5 * v, np.sign(factors)
    return np.concatenate([alpha, known.weights @ (s * alpha), [s * alpha @ known.biases + b]])


@pytest.fixture(params=[1, 2])
def setting(request, planted):
    net = planted((6, 7, 6, 4, 1), 3)
    n = request.param
    known, factors = net.known(n)
    x, g = net.kink_of(n + 1, 1)
    return net, known, factors, FacetUnit(known, x, g / np.linalg.norm(g)), coef_of(net, known, factors, n, 1)


def test_a_kink_tells_the_unit_in_its_cell(setting):
    net, known, _, unit, truth = setting
    X = unit.point + 1e-4 * net.rng.standard_normal((5, 6))
    phi = known.evaluate(X)[1]
    z = phi @ truth
    scale = (phi @ unit.coef) @ z / (z @ z)
    np.testing.assert_allclose(phi @ unit.coef, scale * z, atol=1e-10)
    assert unit.is_determined(phi).all() and unit.residual < 1e-8 and unit.nullity > 0
    assert unit.contains(unit.point[None])[0] and not unit.contains(X).any()


def test_predicted_points_are_kinks(setting):
    net, known, _, unit, truth = setting
    points, normals = unit.predicted_points(30, net.rng)
    phi = known.evaluate(points)[1]
    assert np.abs(phi @ truth).max(initial=0.0) < 1e-6 * np.linalg.norm(truth)
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1.0)


def test_walks_end_at_boundaries_behind_which_the_unit_is_not_known(setting):
    net, known, _, unit, truth = setting
    unit.start_near_boundaries(net.rng)
    met = find_crossings(unit, net.rng)
    Z, phi = known.evaluate(met.points)
    assert len(met) > 0 and np.abs(phi @ truth).max() < 1e-6
    assert np.abs(Z[np.arange(len(met)), met.boundary]).max() < 1e-8
    np.testing.assert_allclose(np.linalg.norm(met.outward, axis=1), 1.0)
    # The change of the gradient, as the planted unit has it on both sides.
    h = 1e-7
    before, behind = (
        known.gradients(known.evaluate(met.points + s * h * met.outward)[0] > 0, truth) for s in (-1.0, 1.0)
    )
    np.testing.assert_allclose(behind - before, (met.feature_jumps @ truth)[:, None] * met.outward, atol=1e-7)
    scale = np.sum(met.slopes * before, axis=1) / np.sum(before**2, axis=1)
    np.testing.assert_allclose(met.slopes, scale[:, None] * before, atol=1e-7)
    taken = met.take(np.arange(1))
    assert len(taken) == 1 and taken.boundary[0] == met.boundary[0]


def test_a_kink_elsewhere_is_adopted_by_its_unit_alone(planted):
    net = planted((12, 5, 6, 4, 1), 5)
    known, factors = net.known(2)
    basis = features_with_signs(known, np.sign(factors))
    told, refused = 0, 0
    for _ in range(20):
        (x, g), (y, h), (v, k) = net.kink_of(3, 0), net.kink_of(3, 0), net.kink_of(3, 1)
        unit = FacetUnit(known, x, g / np.linalg.norm(g), basis)
        open_before = unit.nullity
        refused += not unit.assign(v, k / np.linalg.norm(k), 1e-8)
        assert unit.nullity == open_before
        if unit.nullity and unit.assign(y, h / np.linalg.norm(h), 1e-8):
            told += 1
            assert unit.nullity < open_before and unit.residual < 1e-5
    assert told > 0 and refused == 20
