"""The first layer, known layers, and units of the next layer: facets, predictions, merging."""

import numpy as np
import pytest

from skident.identification.piecewise.deep.facet_unit import FacetUnit, intersection
from skident.identification.piecewise.deep.first_layer import HyperplaneSearch, refined_hyperplane
from skident.identification.piecewise.deep.follow_facets import extend_unit, extend_units, find_crossings
from skident.identification.piecewise.deep.known_layers import KnownLayers
from skident.identification.piecewise.deep.layer_units import LayerUnits
from skident.identification.piecewise.deep.predictions import (
    crossing_support,
    ends_at_others,
    hit_rate,
    probe_predictions,
    refine,
)
from skident.identification.piecewise.deep.signs import features_with_signs
from skident.identification.piecewise.kernel.gradient import critical_points_on
from skident.identification.piecewise.kernel.lines import CriticalPoints, random_segments


def true_planes(net):
    W, b = net.network.weights[0], net.network.biases[0]
    return np.column_stack([W.T, b]) / np.linalg.norm(W, axis=0)[:, None]


def test_a_rough_hyperplane_is_refined(planted):
    net = planted((5, 6, 4, 1), 0)
    probe, truth = net.probe(), true_planes(net)[2]
    rough = truth[:-1] + 1e-6 * net.rng.standard_normal(5)
    rough /= np.linalg.norm(rough)
    point = -truth[-1] * truth[:-1]
    plane, share = refined_hyperplane(probe, point, rough, 1e-6, net.rng)
    assert share > 0.4 and np.abs(plane - truth * np.sign(plane @ truth)).max() < 1e-12


def test_a_facet_is_no_hyperplane(planted):
    net = planted((5, 6, 4, 1), 0)
    x, g = net.critical_point(2, 1)
    fit = refined_hyperplane(net.probe(), x, g / np.linalg.norm(g), 1e-8, net.rng)
    search = HyperplaneSearch(net.probe(), net.rng)
    search.scan_lines(3)
    assert fit is None or not any(np.allclose(np.abs(p @ fit[0]), 1.0 + fit[0][-1] ** 2) for p in search.planes)


def test_lines_show_the_first_layer(planted):
    net = planted((6, 7, 5, 1), 4)
    search = HyperplaneSearch(net.probe(), net.rng)
    for _ in range(6):
        search.scan_lines(1)
    truth = true_planes(net)
    gaps = np.array([min(np.abs(p - s * q).max() for q in truth for s in (1, -1)) for p in search.planes])
    assert len(search.planes) == 7 and gaps.max() < 1e-11
    on = search.planes[0, :-1] * -search.planes[0, -1]
    np.testing.assert_array_equal(search.contains(np.vstack([on, on + 0.1])), [True, False])
    assert not search.add_plane(search.planes[3]) and not search.add_plane(-search.planes[3])


@pytest.fixture(params=[((4, 6, 5, 1), 1), ((4, 6, 5, 1), 2), ((5, 6, 4, 3, 1), 3)], ids=str)
def setting(request, planted):
    widths, n = request.param
    net = planted(widths, 0)
    known, factors = net.known(n)
    return net, known, factors, net.rng.standard_normal((7, widths[0]))


def test_features_are_those_of_the_definition(setting):
    net, known, factors, X = setting
    Z, phi = known.evaluate(X)
    every = net.pre_activations(X)[: len(known.layers) + 1]
    before = X if len(every) == 1 else np.maximum(every[-2], 0.0)
    np.testing.assert_allclose(Z, np.hstack([*every[:-1], every[-1] * factors]), atol=1e-14)
    np.testing.assert_allclose(phi, np.hstack([np.abs(every[-1] * factors), before, np.ones((7, 1))]), atol=1e-14)


def test_derivatives_are_numerical_differences(setting):
    net, known, _, X = setting
    D, h = known.n_inputs, 1e-6
    Z, _ = known.evaluate(X)
    active, coef = Z > 0, net.rng.standard_normal(known.n_features)
    differences = []
    for e in np.eye(D):
        (up, phi_up), (down, phi_down) = known.evaluate(X + h * e), known.evaluate(X - h * e)
        differences.append(((up - down) / (2 * h), (phi_up - phi_down) / (2 * h)))
    dZ, dphi = (np.stack(part, axis=2) for part in zip(*differences, strict=True))
    np.testing.assert_allclose(known.gradient_norms(active), np.linalg.norm(dZ, axis=2), atol=1e-7)
    np.testing.assert_allclose(known.feature_gradients(active), dphi, atol=1e-7)
    np.testing.assert_allclose(known.gradients(active, coef), np.einsum("ntd,t->nd", dphi, coef), atol=1e-6)
    U = net.rng.standard_normal(X.shape)
    along, along_phi = known.tangents(active, U)
    np.testing.assert_allclose(along, np.einsum("nmd,nd->nm", dZ, U), atol=1e-6)
    np.testing.assert_allclose(along_phi, np.einsum("ntd,nd->nt", dphi, U), atol=1e-6)
    for k in range(Z.shape[1]):
        np.testing.assert_allclose(known.boundary_gradients(active, np.full(len(X), k)), dZ[:, k], atol=1e-7)


def test_a_unit_of_the_next_layer_is_linear_in_the_features(setting):
    net, known, factors, _ = setting
    n = len(known.layers) + 1
    if n == len(net.network.weights) - 1:
        return
    X = net.rng.standard_normal((200, known.n_inputs))
    phi, z = known.evaluate(X)[1], net.pre_activations(X)[n]
    coef = np.linalg.lstsq(phi, z, rcond=None)[0]
    np.testing.assert_allclose(phi @ coef, z, atol=1e-12)
    np.testing.assert_allclose(
        2.0 * coef[: known.n_units] * np.abs(factors)[:, None], net.network.weights[n], atol=1e-10
    )


def test_points_on_boundaries(setting):
    net, known, _, X = setting
    x = net.critical_point(1, 2)[0]
    np.testing.assert_array_equal(known.on_boundaries(np.vstack([x, X])), [True, *[False] * 7])
    assert known.on_boundaries(X[:0]).shape == (0,)


def test_combinations_of_the_features(setting):
    net, known, _, X = setting
    phi, coefs = known.evaluate(X)[1], net.rng.standard_normal((known.n_features, 3))
    values, norms = known.combinations(X, coefs)
    np.testing.assert_allclose(values, phi @ coefs, atol=1e-13)
    np.testing.assert_allclose(norms, np.linalg.norm(phi, axis=1), rtol=1e-14)


def coef_of(net, known, factors, layer, k):
    """What a unit of the layer behind is in the features, from their definition."""
    w, b = net.network.weights[layer][:, k], net.network.biases[layer][k]
    v = w / np.abs(factors)
    alpha, s = 0.5 * v, np.sign(factors)
    return np.concatenate([alpha, known.weights @ (s * alpha), [s * alpha @ known.biases + b]])


@pytest.fixture(params=[1, 2])
def setting_facets(request, planted):
    net = planted((6, 7, 6, 4, 1), 3)
    n = request.param
    known, factors = net.known(n)
    x, g = net.critical_point(n + 1, 1)
    return net, known, factors, FacetUnit(known, x, g / np.linalg.norm(g)), coef_of(net, known, factors, n, 1)


def test_a_boundary_tells_the_unit_in_its_cell(setting_facets):
    net, known, _, unit, truth = setting_facets
    X = unit.point + 1e-4 * net.rng.standard_normal((5, 6))
    phi = known.evaluate(X)[1]
    z = phi @ truth
    scale = (phi @ unit.coef) @ z / (z @ z)
    np.testing.assert_allclose(phi @ unit.coef, scale * z, atol=1e-10)
    assert unit.is_determined(phi).all() and unit.residual < 1e-8 and unit.nullity > 0
    assert unit.contains(unit.point[None])[0] and not unit.contains(X).any()


def test_predicted_points_are_boundaries(setting_facets):
    net, known, _, unit, truth = setting_facets
    points, normals = unit.predicted_points(30, net.rng)
    phi = known.evaluate(points)[1]
    assert np.abs(phi @ truth).max(initial=0.0) < 1e-6 * np.linalg.norm(truth)
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1.0)


def test_walks_end_at_boundaries_behind_which_the_unit_is_not_known(setting_facets):
    net, known, _, unit, truth = setting_facets
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


def test_a_boundary_elsewhere_is_adopted_by_its_unit_alone(planted):
    net = planted((12, 5, 6, 4, 1), 5)
    known, factors = net.known(2)
    basis = features_with_signs(known, np.sign(factors))
    assigned, refused = 0, 0
    for _ in range(20):
        (x, g), (y, h), (v, k) = net.critical_point(3, 0), net.critical_point(3, 0), net.critical_point(3, 1)
        unit = FacetUnit(known, x, g / np.linalg.norm(g), basis)
        nullity_before = unit.nullity
        refused += not unit.assign(v, k / np.linalg.norm(k), 1e-8)
        assert unit.nullity == nullity_before
        if unit.nullity and unit.assign(y, h / np.linalg.norm(h), 1e-8):
            assigned += 1
            assert unit.nullity < nullity_before and unit.residual < 1e-5
    assert assigned > 0 and refused == 20


def test_boundaries_of_deeper_units_bend_where_those_of_the_layer_do_not(planted):
    net = planted((10, 6, 8, 6, 1), 0)
    known, factors = net.known(1)
    probe, W, b = net.probe(), net.network.weights[1], net.network.biases[1]
    units = []
    for k in range(8):
        x, g = net.critical_point(2, k)
        # relu(z) = (|z| + z) / 2, in terms of |z| for z up to sign and scale.
        c, h = 0.5 * W[:, k], net.network.weights[0] @ (0.5 * W[:, k])
        coef = np.concatenate([c / np.abs(factors), h, [0.5 * net.network.biases[0] @ W[:, k] + b[k]]])
        unit = FacetUnit(known, x, g / np.linalg.norm(g))
        unit.add_equations(np.eye(len(coef)), coef / np.linalg.norm(g), x[None])
        units.append(unit)
    bent = {2: 0, 3: 0}
    for layer, n_units in ((2, 8), (3, 6)):
        for k in range(n_units):
            x, g = net.critical_point(layer, k)
            others = [unit for j, unit in enumerate(units) if layer == 3 or j != k]
            bent[layer] += ends_at_others(
                probe, FacetUnit(known, x, g / np.linalg.norm(g), normal_error=1e-9), others, net.rng
            )
    assert bent[2] == 0 and bent[3] >= 4
    assert not ends_at_others(probe, units[0], [], net.rng)


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
    coef = unit.basis @ w
    slope = unit.known.gradients(unit.known.evaluate(unit.point[None])[0] > 0, coef)[0] @ unit.normal
    unit.add_equations(np.eye(len(coef)), coef / slope, unit.point[None])


@pytest.fixture
def setting_refinement(planted):
    net = planted((8, 30, 4, 1), 1)
    known, factors = net.known(1)
    x, g = net.critical_point(2, 0)
    n = g / np.linalg.norm(g)
    unit = FacetUnit(known, x, n, features_with_signs(known, np.sign(factors)), 1e-9)
    return net, net.probe(), unit, planted_weights(net, factors, 1, 0)


def test_errors_do_not_grow_along_a_unit_of_a_wide_layer(setting_refinement):
    net, probe, unit, truth = setting_refinement
    assert extend_unit(probe, unit, net.rng) and unit.nullity == 0
    assert unit.residual < 1e-8 and len(unit.located) > 2 * len(truth)
    w = weights_of(unit)
    assert min(np.abs(w - truth).max(), np.abs(w + truth).max()) < 1e-8
    z = [net.pre_activations(unit.located)[1][:, 0]]
    assert np.abs(z).max() < 1e-9


def test_a_rough_unit_becomes_exact(setting_refinement):
    net, probe, unit, truth = setting_refinement
    tell(unit, truth + 1e-5 * net.rng.standard_normal(len(truth)))
    refine(probe, unit, net.rng)
    w = weights_of(unit)
    assert min(np.abs(w - truth).max(), np.abs(w + truth).max()) < 1e-12


def test_boundaries_that_random_lines_hardly_meet_are_predicted(planted):
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


def test_units_that_were_left_are_followed_again(setting_refinement):
    net, probe, unit, truth = setting_refinement
    extend_unit(probe, unit, net.rng, n_rounds=1)
    left = unit.nullity
    assert left > 0 and extend_units(probe, [unit], net.rng) == left - unit.nullity > 0
    assert extend_units(probe, [unit], net.rng) >= 0
    w = weights_of(unit)
    assert unit.nullity == 0 and min(np.abs(w - truth).max(), np.abs(w + truth).max()) < 1e-8
    assert extend_units(probe, [unit], net.rng) == 0


def owners(net, unit, rng):
    """The planted unit (layer, index) on whose boundary most predicted points of a unit are, and their share."""
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
    probe, layer = net.probe(), LayerUnits(known)
    lines = random_segments(probe, 8, net.rng, reach=4.0)
    critical = critical_points_on(probe, lines, known.on_boundaries, 24, net.rng)
    layer.add(probe, critical, net.rng)
    return net, probe, layer, factors


def test_the_units_of_the_second_layer(second_layer):
    net, probe, layer, factors = second_layer
    rng = np.random.RandomState(0)
    found = [owners(net, unit, rng) for unit in layer.units]
    assert all(name[0] == 2 and share == 1.0 for name, share in found)
    assert len(set(found)) == len(found) >= 4
    np.testing.assert_array_equal(layer.signs, np.sign(factors))
    W, b, undetermined = layer.weights()
    for (_, k), w, c, unknown in zip([name for name, _ in found], W.T, b, undetermined.T, strict=True):
        truth = np.append(net.network.weights[1][:, k] / np.abs(factors), net.network.biases[1][k])
        determined = np.append(unknown == 0, True)
        scale = np.append(w, c)[determined] @ truth[determined] / (truth[determined] @ truth[determined])
        np.testing.assert_allclose(np.append(w, c)[determined], scale * truth[determined], atol=1e-7)


def test_units_are_of_their_layer(second_layer):
    net, probe, layer, _ = second_layer
    rng, unit = np.random.RandomState(1), layer.units[0]
    assert len(layer.points_of_previous_layer()) == 0 and layer.drop_deeper_facets(probe, rng) == 0
    assert hit_rate(probe, unit, rng)[0] > 0.5 and crossing_support(probe, unit, layer.units, rng) > 0.5
    seen = probe_predictions(probe, unit, layer.units, rng)
    coef, start = unit.coef.copy(), unit.coef / np.linalg.norm(unit.coef)
    refine(probe, unit, rng)
    assert np.abs(unit.coef - coef).max() < 1e-9 and seen.hit.mean() > 0.5 and np.isfinite(start).all()


def test_two_parts_of_a_unit_meet(second_layer):
    net, probe, layer, _ = second_layer
    rng, whole = np.random.RandomState(2), layer.units[0]
    points, normals = whole.predicted_points(12, rng)
    parts = [FacetUnit(layer.known, x, n, layer.basis) for x, n in zip(points, normals, strict=True)]
    joint = intersection(whole, parts[0])
    assert joint is not None and joint.nullity <= whole.nullity
    other = FacetUnit(layer.known, layer.units[1].point, layer.units[1].normal, layer.basis)
    assert intersection(whole, other) is None
    assert extend_unit(probe, parts[1], rng) and parts[1].residual < 1e-5


def test_a_unit_of_the_layer_before_is_determined(planted):
    net = planted((8, 8, 6, 1), 1)
    W, b = net.network.weights[0], net.network.biases[0]
    layer = LayerUnits(KnownLayers([], W[:, 1:], b[1:]))
    x, g = net.critical_point(1, 0)
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
    (x, g), (y, h) = net.critical_point(2, 3), net.critical_point(2, 4)
    linear = net.network.weights[1][:, [3]] / np.abs(factors)[:, None]
    critical = CriticalPoints(
        np.array([y, x]), np.array([h / np.linalg.norm(h), g / np.linalg.norm(g)]), np.array([1e-9, 1e-9])
    )
    assert layer.add_from_linear_part(linear, critical) == 1
    assert owners(net, layer.units[0], np.random.RandomState(0)) == ((2, 3), 1.0)
