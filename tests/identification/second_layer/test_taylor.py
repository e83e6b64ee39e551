import itertools
import math

import numpy as np
import pytest
import torch

from skident.identification.second_layer.kernel.charts import ErfChart, TanhChart, exponents
from skident.identification.second_layer.kernel.taylor import (
    TaylorRule,
    choose_reach,
    probing_directions,
    taylor_coefficients,
)
from skident.linalg import pack_symmetric, symmetric_power


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
    """t as a function of ``h - theta``, the shifts being known."""
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
    theta, coordinate = np.tanh(moved[free]), true_coordinate(torch.tanh, torch.arctanh, moved[free])
    tensors = taylor_coefficients(problem.query, patch, TanhChart(), TaylorRule(3, 0.4, 8))
    for order in (1, 2, 3):
        told = TanhChart().coefficients(tensors, theta, order)
        true = tensor_by_autograd(network, patch.points[0], free, patch.moves, order, coordinate)
        np.testing.assert_allclose(told[0, 0], pack_symmetric(true), rtol=1e-5, atol=1e-6 * np.abs(true).max())


def test_coordinates_of_erf_units(make_planted, make_downstream):
    network = make_planted((5, 9, 6, 1), seed=3, activation="erf")
    problem, moved = make_downstream(network, known_shifts=True)
    free = np.array([2, 5])
    patch, chart = problem.patch(free, 2), problem.chart(free)
    assert isinstance(chart, ErfChart)
    tensors = taylor_coefficients(problem.query, patch, chart, TaylorRule(3, 0.4, 8))
    coordinate = true_coordinate(torch.erf, torch.erfinv, moved[free])
    for order in (1, 2, 3):
        told = chart.coefficients(tensors, chart.theta, order)
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


def test_queries_are_as_many_as_said(make_planted, make_downstream):
    problem, _ = make_downstream(make_planted((5, 9, 6, 2)))
    rows = []
    patch, rule = problem.patch(np.array([0, 1]), 3), TaylorRule(2, 0.3, 3)

    def ask(U):
        rows.append(len(U))
        return problem.query(U)

    taylor_coefficients(ask, patch, TanhChart(), rule)
    assert sum(rows) == 3 * rule.n_queries(2)


def test_steep_networks_get_a_shorter_reach(make_planted, make_downstream):
    reaches, rule = [], TaylorRule(3, 0.8, 6)
    for scale in (0.5, 8.0):
        network = make_planted((6, 10, 8, 1), seed=4)
        network = network.with_parameters(
            [network.weights[0], scale * network.weights[1], network.weights[2]], network.biases
        )
        problem, _ = make_downstream(network)
        chosen, error = choose_reach(problem.query, problem.patch(np.arange(3), 8), TanhChart(), rule, problem.rng)
        reaches.append(chosen.reach)
        assert error < 1e-3
    assert reaches[1] < 0.6 * reaches[0]


def test_coefficients_are_the_same_with_the_reach_of_a_cube(make_planted, make_downstream):
    problem, _ = make_downstream(make_planted((5, 9, 6, 2), seed=3))
    patch = problem.patch(np.array([1, 4, 6]), 3)
    rules = [TaylorRule(3, reach, 10, cubic=cubic) for reach, cubic in ((0.5, False), (0.35, True))]
    ball, cube = (taylor_coefficients(problem.query, patch, TanhChart(), rule) for rule in rules)
    for one, other in zip(ball, cube):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * np.abs(one).max())
    reached = rules[1].scaled(probing_directions(3, 3))
    assert np.allclose(np.abs(reached).max(axis=1), 1.0)
