"""Patches, Taylor coefficients, powers and curves against slow references."""

import itertools
import math

import numpy as np
import pytest
import torch

from skident.identification.second_layer.kernel.charts import ErfChart, TanhChart, exponents
from skident.identification.second_layer.kernel.curves import fit_curve, fit_curves_in_regions, taylor_term
from skident.identification.second_layer.kernel.patch import n_sign_patterns, rays_of_one_unit, reach_patch
from skident.identification.second_layer.kernel.powers import OutputPowers, find_output_powers, fit_output_powers
from skident.identification.second_layer.kernel.taylor import (
    TaylorRule,
    choose_reach,
    probing_directions,
    taylor_coefficients,
)
from skident.linalg import pack_symmetric, symmetric_power
from skident.network import get_activation


def layer(D, m, seed=0):
    rng = np.random.RandomState(seed)
    return rng.standard_normal((D, m)), 0.5 * rng.standard_normal(m)


def patterns_of_rays(D, m, free, rng, n=200_000):
    """Slow reference: the signs of the saturated units along random rays that leave the free ones alone."""
    W, _ = layer(D, m)
    along = np.linalg.qr(W[:, free], mode="complete")[0][:, len(free) :]
    others = np.setdiff1d(np.arange(m), free)
    return len(np.unique(np.sign(rng.standard_normal((n, along.shape[1])) @ along.T @ W[:, others]), axis=0))


@pytest.mark.parametrize(("D", "m", "k"), [(4, 7, 2), (4, 7, 3), (5, 6, 2), (3, 9, 1)])
def test_number_of_patterns(D, m, k):
    assert n_sign_patterns(D, m, k) == patterns_of_rays(D, m, np.arange(k), np.random.RandomState(0))


def test_number_of_patterns_if_every_level_can_be_chosen():
    assert n_sign_patterns(5, 4, 2) == np.inf and n_sign_patterns(5, 4, 4) == 1.0


@pytest.mark.parametrize(("D", "m", "k"), [(6, 9, 3), (4, 12, 2), (8, 20, 5)])
def test_free_units_are_free_and_all_others_saturated(D, m, k):
    W, b = layer(D, m)
    free = np.arange(1, k + 1)
    patch = reach_patch(W, b, free, 12, np.random.RandomState(0))
    T = np.random.RandomState(1).uniform(-1, 1, (5, k))
    Z = patch.at(T) @ W + b
    assert 4 <= len(patch.points) <= 12
    np.testing.assert_allclose(Z[..., free], np.broadcast_to(T, (len(patch.points), 5, k)), atol=1e-10)
    assert np.abs(patch.levels).min() > 20.99
    assert len(np.unique(np.sign(patch.levels), axis=0)) == len(patch.points)
    H = patch.outputs(get_activation("tanh"), np.full(m, 0.3))
    np.testing.assert_array_equal(H[:, patch.others], np.sign(patch.levels))
    np.testing.assert_allclose(H[:, free], np.tanh(0.3))


def test_levels_are_constant_if_all_of_them_can_be_chosen():
    W, b = layer(6, 5)
    patch = reach_patch(W, b, [0, 2], 7, np.random.RandomState(0))
    T = np.array([[0.5, -0.2], [0.0, 1.0]])
    Z = patch.at(T) @ W + b
    np.testing.assert_allclose(Z[..., [0, 2]], np.broadcast_to(T, (7, 2, 2)), atol=1e-12)
    np.testing.assert_allclose(Z[..., [1, 3, 4]], np.repeat(patch.levels[:, None], 2, axis=1), atol=1e-12)


def test_no_points_without_a_direction_or_within_reach():
    W, b = layer(3, 8)
    assert len(reach_patch(W, b, [0, 1, 2], 4, np.random.RandomState(0)).points) == 0
    far = reach_patch(W, b, [0, 1], 4, np.random.RandomState(0), farthest=1.0)
    assert len(far.points) == 0 and far.distance == np.inf


def test_two_parallel_units_leave_no_point():
    W, b = layer(4, 8)
    W[:, 1] = 2.0 * W[:, 0]
    assert len(reach_patch(W, b, [0, 2], 4, np.random.RandomState(0)).points) == 0


def test_rays_lie_in_the_hyperplane_and_begin_where_others_saturate():
    W, b = layer(4, 9)
    base, rays, starts = rays_of_one_unit(W, b, 3, 6, np.random.RandomState(0))
    others = np.setdiff1d(np.arange(9), 3)
    for ray, start in zip(rays, starts):
        for R, margin in itertools.product((start, 10.0 * start), (20.99,)):
            z = (base + R * ray) @ W + b
            assert abs(z[3]) < 1e-9 and np.abs(z[others]).min() > margin
    assert len(rays) == 6


def test_units_are_held_at_levels_if_sign_patterns_are_too_few():
    W, b = layer(6, 7)
    free, rng = np.array([0, 2, 3, 6]), np.random.RandomState(0)
    patch = reach_patch(W, b, free, 24, rng)
    assert len(patch.points) == 24 > n_sign_patterns(6, 7, 4) and patch.moves.shape == (24, 4, 6)
    T = np.random.RandomState(1).uniform(-1, 1, (5, 4))
    Z = patch.at(T) @ W + b
    np.testing.assert_allclose(Z[..., free], np.broadcast_to(T, (24, 5, 4)), atol=1e-9)
    held = np.abs(patch.levels) < 20.0
    assert held.any(axis=1).sum() >= 18
    still = np.repeat(patch.levels[:, None], 5, axis=1)
    np.testing.assert_allclose(Z[..., patch.others].transpose(0, 2, 1)[held], still.transpose(0, 2, 1)[held], atol=1e-9)
    assert np.abs(Z[..., patch.others].transpose(0, 2, 1)[~held]).min() > 20.9
    some = patch.subset(np.array([3, 20]))
    np.testing.assert_array_equal(some.at(T), patch.at(T)[[3, 20]])


def tensor_by_autograd(network, x, free, moves, order, coordinate):
    """Slow reference: the full tensor of derivatives over p! by the hidden coordinates of free units, at one point."""
    weights = [torch.from_numpy(np.array(W)) for W in network.weights]
    biases = [torch.from_numpy(np.array(b)) for b in network.biases]

    def f(h):
        y = torch.from_numpy(x) + coordinate(h) @ torch.from_numpy(moves)
        for W, b in zip(weights[:-1], biases[:-1]):
            g = torch.erf if network.activation == "erf" else torch.tanh
            y = g(y @ W + b)
        return (y @ weights[-1] + biases[-1])[0]

    h = torch.zeros(len(free), dtype=torch.float64, requires_grad=True)
    tensor = f(h)
    for _ in range(order):
        entries = [torch.autograd.grad(entry, h, create_graph=True)[0] for entry in tensor.reshape(-1)]
        tensor = torch.stack(entries).reshape(*tensor.shape, len(free))
    return tensor.detach().numpy() / math.factorial(order)


def true_coordinate(g, inverse, moved):
    """t as a function of ``h - center_outputs``, the shifts being known."""
    shift = torch.from_numpy(moved)
    return lambda h: inverse(h + g(shift)) - shift


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_coefficients_against_automatic_differentiation(order, make_planted, make_downstream):
    network = make_planted((5, 9, 6, 1), seed=1)
    problem, _ = make_downstream(network)
    free = np.array([1, 4, 6])[: 3 if order < 4 else 2]
    patch = problem.patch(free, 3)
    tensors = taylor_coefficients(problem.query, patch, TanhChart(), TaylorRule(4, 0.5, 10))
    for point, told in list(zip(patch.points, tensors[order]))[: 3 if order < 4 else 1]:
        true = tensor_by_autograd(network, point, free, patch.moves, order, torch.arctanh)
        np.testing.assert_allclose(told[0], pack_symmetric(true), rtol=1e-4, atol=1e-7 * np.abs(true).max() + 1e-10)


def test_change_to_true_coordinates_against_automatic_differentiation(make_planted, make_downstream):
    network = make_planted((5, 9, 6, 1), seed=2)
    problem, moved = make_downstream(network)
    free = np.array([0, 3])
    patch = problem.patch(free, 2)
    center_outputs, coordinate = np.tanh(moved[free]), true_coordinate(torch.tanh, torch.arctanh, moved[free])
    tensors = taylor_coefficients(problem.query, patch, TanhChart(), TaylorRule(3, 0.4, 8))
    for order in (1, 2, 3):
        told = TanhChart().coefficients(tensors, center_outputs, order)
        true = tensor_by_autograd(network, patch.points[0], free, patch.moves, order, coordinate)
        np.testing.assert_allclose(told[0, 0], pack_symmetric(true), rtol=1e-5, atol=1e-6 * np.abs(true).max())


def test_coordinates_of_erf_units(make_planted, make_downstream):
    network = make_planted((5, 9, 6, 1), seed=3, activation="erf")
    problem, moved = make_downstream(network, known_corrections=True)
    free = np.array([2, 5])
    patch, chart = problem.patch(free, 2), problem.chart(free)
    assert isinstance(chart, ErfChart)
    tensors = taylor_coefficients(problem.query, patch, chart, TaylorRule(3, 0.4, 8))
    coordinate = true_coordinate(torch.erf, torch.erfinv, moved[free])
    for order in (1, 2, 3):
        told = chart.coefficients(tensors, chart.center_outputs, order)
        true = tensor_by_autograd(network, patch.points[0], free, patch.moves, order, coordinate)
        np.testing.assert_allclose(told[0, 0], pack_symmetric(true), rtol=1e-5, atol=1e-6 * np.abs(true).max())


@pytest.mark.parametrize(("k", "p"), [(3, 2), (7, 2), (5, 3), (4, 4), (2, 5)])
def test_directions_determine_tensors(k, p):
    V = probing_directions(k, p)
    assert V.shape == (math.comb(k + p - 1, p), k)
    np.testing.assert_allclose(np.linalg.norm(V, axis=1), 1.0)
    assert np.linalg.cond(symmetric_power(V, p)) < 300.0


def test_exponents_are_those_of_packed_powers():
    x = np.array([2.0, 3.0, 5.0])
    for p in (1, 2, 3):
        sets = itertools.combinations_with_replacement(range(3), p)
        assert [tuple(np.bincount(s, minlength=3)) for s in sets] == [tuple(e) for e in exponents(3, p)]
        monomials = np.prod(x ** exponents(3, p), axis=1)
        counts = [math.factorial(p) / np.prod([math.factorial(i) for i in e]) for e in exponents(3, p)]
        np.testing.assert_allclose(symmetric_power(x, p), monomials * np.sqrt(counts))


def test_number_of_queries(make_planted, make_downstream):
    problem, _ = make_downstream(make_planted((5, 9, 6, 2)))
    rows = []
    patch, rule = problem.patch(np.array([0, 1]), 3), TaylorRule(2, 0.3, 3)

    def query(U):
        rows.append(len(U))
        return problem.query(U)

    taylor_coefficients(query, patch, TanhChart(), rule)
    assert sum(rows) == 3 * rule.n_queries(2)


def test_steep_networks_get_a_shorter_reach(make_planted, make_downstream):
    reaches, rule = [], TaylorRule(3, 0.8, 6)
    for scale in (0.5, 8.0):
        network = make_planted((6, 10, 8, 1), seed=4)
        network = network.with_parameters(
            [network.weights[0], scale * network.weights[1], network.weights[2]], network.biases
        )
        problem, _ = make_downstream(network)
        patch = problem.patch(np.arange(3), 8)
        chosen = choose_reach(problem.query, patch, TanhChart(), rule, problem.rng)
        rules = chosen, chosen.with_reach(0.7 * chosen.reach)
        ours, nearer = (taylor_coefficients(problem.query, patch, TanhChart(), rule)[-1] for rule in rules)
        reaches.append(chosen.reach)
        assert np.linalg.norm(ours - nearer) < 1e-3 * np.linalg.norm(nearer)
    assert reaches[1] < 0.6 * reaches[0]


def test_coefficients_are_the_same_with_the_reach_of_a_cube(make_planted, make_downstream):
    problem, _ = make_downstream(make_planted((5, 9, 6, 2), seed=3))
    patch = problem.patch(np.array([1, 4, 6]), 3)
    rules = [TaylorRule(3, reach, 10, in_cube=in_cube) for reach, in_cube in ((0.5, False), (0.35, True))]
    ball, cube = (taylor_coefficients(problem.query, patch, TanhChart(), rule) for rule in rules)
    for one, other in zip(ball, cube):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * np.abs(one).max())
    reached = rules[1].scaled(probing_directions(3, 3))
    assert np.allclose(np.abs(reached).max(axis=1), 1.0)


def planted_powers(m, m_L, k, order, seed):
    """Random units, and a random generator."""
    rng = np.random.RandomState(seed)
    X, V = rng.standard_normal((m, k)), rng.standard_normal((m, m_L))
    units = [A / np.linalg.norm(A, axis=1, keepdims=True) for A in (X, V)]
    return OutputPowers(*units, order), rng


def direction_errors(found, true):
    """Distance of every true direction w from the nearest one found."""
    cosines = np.abs(true.directions @ found.directions.T).max(axis=1)
    return np.sqrt(np.maximum(1.0 - cosines**2, 0.0))


@pytest.mark.parametrize(("m", "m_L", "k", "order"), [(22, 3, 4, 2), (30, 2, 4, 3)])
def test_more_units_than_one_output_determines(m, m_L, k, order):
    true, rng = planted_powers(m, m_L, k, order, 1)
    basis = np.linalg.qr(true.flat.T)[0]
    found = find_output_powers(basis, m_L, k, order, rng, max_distance=1e-6)
    assert len(found.directions) == m > true.flat.shape[1] // m_L
    assert direction_errors(found, true).max() < 1e-7
    assert found.distances(basis).max() < 1e-12


def test_tangents_are_derivatives():
    true, rng = planted_powers(5, 2, 3, 3, 2)
    steps = rng.standard_normal((5, 5))
    ends = [
        OutputPowers(true.directions + s * steps[:, :3], true.output_directions + s * steps[:, 3:], 3).flat
        for s in (1e-6, -1e-6)
    ]
    assert np.allclose((ends[0] - ends[1]) / 2e-6, np.einsum("nab,nb->na", true.tangents, steps), atol=1e-8)


def test_the_joint_fit_is_better_than_a_noisy_subspace():
    true, rng = planted_powers(20, 3, 4, 2, 3)
    sizes, mixed = np.geomspace(1.0, 1e-6, 20), np.linalg.qr(rng.standard_normal((20, 20)))[0]
    rows = rng.standard_normal((60, 20)) * sizes @ mixed @ true.flat + 1e-8 * rng.standard_normal((60, 30))
    basis = np.linalg.svd(rows)[2][:20].T
    found = find_output_powers(basis, 3, 4, 2, rng, max_distance=0.05)
    fitted = fit_output_powers(found, rows)
    before, after = direction_errors(found, true), direction_errors(fitted, true)
    assert len(found.directions) == 20
    assert after.max() < 1e-3
    assert np.median(after) < 0.3 * np.median(before)


def test_the_joint_fit_keeps_an_exact_start():
    true, rng = planted_powers(6, 2, 3, 2, 4)
    fitted = fit_output_powers(true, rng.standard_normal((20, 6)) @ true.flat)
    assert direction_errors(fitted, true).max() < 1e-7


def test_a_random_subspace_has_no_powers():
    rng = np.random.RandomState(5)
    basis = np.linalg.qr(rng.standard_normal((30, 8)))[0]
    assert len(find_output_powers(basis, 3, 4, 2, rng, max_distance=1e-3).directions) == 0


@pytest.mark.parametrize("activation", ["tanh", "erf"])
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_terms_against_automatic_differentiation(activation, order):
    g = getattr(torch, activation)
    y = torch.linspace(-3, 3, 13, dtype=torch.float64, requires_grad=True)
    value = g(y)
    for _ in range(order):
        value = torch.autograd.grad(value.sum(), y, create_graph=True)[0]
    slope = torch.autograd.grad(value.sum(), y)[0]
    term = taylor_term(activation, order)(y.detach().numpy())
    for told, true in zip(term, (value, slope)):
        np.testing.assert_allclose(told, true.detach().numpy() / math.factorial(order), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("activation", ["tanh", "erf"])
@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize(("length", "shift"), [(0.4, 0.1), (1.0, -0.8), (3.0, 1.5)])
def test_curves_from_their_points(activation, order, length, shift, rng):
    x = rng.standard_normal(80)
    term, readout = taylor_term(activation, order), np.array([0.7, -1.3])
    C = np.outer(length**order * term(length * x + shift)[0], readout)
    C += 1e-9 * np.abs(C).max() * rng.standard_normal(C.shape)
    found = fit_curve(x, C, order, term)
    assert found.residual < 1e-7
    # For even orders of these odd functions, (r, gamma, v) and (r, -gamma, ...) differ, since x is not symmetric.
    np.testing.assert_allclose([found.norm, found.bias], [length, shift], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.output_weights, readout, rtol=1e-4)


def test_points_on_no_curve_leave_a_residual(rng):
    x = rng.standard_normal(80)
    assert fit_curve(x, rng.standard_normal((80, 1)), 3, taylor_term("tanh", 3)).residual > 0.3


@pytest.mark.parametrize("order", [3, 4])
def test_units_of_small_norms_and_biases(order, rng):
    k, n, units = 5, 30, 12
    H = np.tanh(np.concatenate([np.arctanh(rng.uniform(-0.45, 0.45, (n, k)))] * 2))
    rows, lengths = rng.standard_normal((k, units)), np.geomspace(0.2, 1.0, units)
    rows /= np.linalg.norm(rows, axis=0)
    shifts, readout = rng.uniform(-0.6, 0.6, (2, units)), rng.standard_normal(units)
    terms = taylor_term("tanh", order)(H @ rows * lengths + np.repeat(shifts, n, axis=0))[0]
    coefficients = terms * lengths**order * readout
    coefficients *= 1.0 + 1e-5 * rng.standard_normal(coefficients.shape)
    W2, found_biases, residuals = fit_curves_in_regions(rows, H, coefficients, order)
    assert residuals.max() < 1e-4
    np.testing.assert_allclose(np.linalg.norm(W2, axis=0), lengths, rtol=1e-2)
    np.testing.assert_allclose(found_biases, shifts, atol=1e-2)
