"""The second layer by powers on patches: designs, bias corrections, the first patch, whole networks."""

import itertools

import numpy as np
import pytest

from skident.identification.second_layer.by_patch_and_extension.extension import extend_to_all_units
from skident.identification.second_layer.by_patch_and_extension.patch_from_powers import known_patch_from_powers
from skident.identification.second_layer.by_powers.first_patch import biases_from_taylor, powers_on_first_patch
from skident.identification.second_layer.by_powers.recover import power_designs, recover_by_powers
from skident.identification.second_layer.kernel.charts import TanhChart
from skident.identification.second_layer.kernel.patch import n_sign_patterns
from skident.identification.second_layer.kernel.taylor import TaylorRule, taylor_coefficients
from skident.metrics import relative_max_error
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified


@pytest.mark.parametrize(
    ("D", "widths", "order", "n_free"),
    [(10, (16, 16, 1), 2, 7), (10, (32, 32, 1), 3, 6), (17, (64, 64, 6), 2, 13), (11, (64, 64, 3), 3, 7)],
)
def test_designs_of_usual_networks(D, widths, order, n_free):
    plan = power_designs(D, widths)[0]
    assert (plan.rule.order, plan.n_free) == (order, n_free)


@pytest.mark.parametrize(("D", "widths"), [(4, (16, 16, 1)), (3, (8, 8, 1)), (6, (32, 32, 1)), (8, (3, 10, 1))])
def test_no_design_if_powers_or_sign_patterns_are_too_few(D, widths):
    assert power_designs(D, widths) == []


def test_more_outputs_need_fewer_queries():
    assert power_designs(10, (16, 16, 4))[0].n_queries < 0.5 * power_designs(10, (16, 16, 1))[0].n_queries


def test_alternatives_have_fewer_free_units_and_cost_more():
    plans = power_designs(10, (16, 16, 1))
    assert len(plans) > 1
    for plan, other in itertools.pairwise(plans):
        assert other.n_free < plan.n_free and other.n_queries >= plan.n_queries


def test_units_are_held_at_levels_if_sign_patterns_are_too_few():
    plan = power_designs(6, (7, 12, 1))[0]
    assert plan.n_free <= 4 and plan.n_first > n_sign_patterns(6, 7, plan.n_free)


RULES = {2: TaylorRule(2, 0.15, 3), 3: TaylorRule(3, 0.4, 7), 4: TaylorRule(4, 0.5, 9)}


def tensors_of(problem, k, p, n):
    free = np.arange(k)
    return taylor_coefficients(problem.query, problem.patch(free, n), TanhChart(), RULES[p])


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(("sizes", "p", "k", "n"), [((10, 14, 12, 1), 2, 6, 34), ((8, 12, 9, 1), 3, 4, 45)])
def test_center_outputs_and_width(sizes, p, k, n, told, make_planted, make_downstream):
    network = make_planted(sizes, seed=p)
    problem, moved = make_downstream(network)
    found = biases_from_taylor(tensors_of(problem, k, p, n), sizes[2] if told else None)
    assert found.n_powers == sizes[2] and found.gap < 1e-3
    np.testing.assert_allclose(found.center_outputs, np.tanh(moved[:k]), atol=5e-6)


def test_a_wider_first_layer_than_input_and_more_units_than_inputs(make_planted, make_downstream):
    network = make_planted((8, 20, 16, 2), seed=1)
    problem, moved = make_downstream(network)
    found = biases_from_taylor(tensors_of(problem, 5, 3, 34))
    assert found.n_powers == 16
    np.testing.assert_allclose(found.center_outputs, np.tanh(moved[:5]), atol=1e-5)


def test_the_gap_reveals_a_wrong_width(make_planted, make_downstream):
    problem, _ = make_downstream(make_planted((10, 14, 12, 1), seed=2))
    assert biases_from_taylor(tensors_of(problem, 6, 2, 34), 10).gap > 0.02


def test_too_few_rows_are_reported(make_planted, make_downstream):
    problem, _ = make_downstream(make_planted((10, 14, 12, 1), seed=2))
    tensors = tensors_of(problem, 6, 2, 10)
    for width in (12, 21):
        with pytest.raises(ValueError, match=f"10 rows of 21 coefficients are too few to determine {width} units"):
            biases_from_taylor(tensors, width)


def test_a_nearly_dead_unit_is_recovered(make_planted, make_downstream):
    planted = make_planted((8, 14, 10, 1), seed=6, scale=1.0, bias_scale=0.3)
    readout = planted.weights[2].copy()
    readout[0] *= 1e-3 / np.abs(readout[0])
    network = FeedforwardNetwork([*planted.weights[:2], readout], planted.biases, "tanh")
    problem, _ = make_downstream(network)
    first = powers_on_first_patch(problem, power_designs(8, (14, 10, 1))[0], 10)
    rows = network.weights[1][first.free]
    cosines = np.abs(first.W2.T @ (rows / np.linalg.norm(rows, axis=0)))
    assert cosines.max(axis=0).min() > 1.0 - 1e-4
    X = np.random.RandomState(1).standard_normal((100, 8))
    found = extend_to_all_units(problem, known_patch_from_powers(problem, first)).network
    np.testing.assert_allclose(found(X), network(X), atol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "scale"),
    [((10, 16, 16, 1), 1.5), ((10, 16, 16, 1), 3.0), ((6, 9, 7, 2), 1.5), ((10, 8, 9, 1), 2.0), ((7, 10, 10, 3), 1.0)],
)
def test_networks_are_recovered(sizes, scale, make_planted, make_downstream, rng):
    network = make_planted(sizes, seed=5, scale=scale)
    problem, _ = make_downstream(network)
    found = recover_by_powers(problem, power_designs(sizes[0], sizes[1:])[0], sizes[2])
    X = rng.standard_normal((500, sizes[0]))
    assert found.residual < 1e-3
    assert relative_max_error(network(X), found.network(X)) < 5e-3


def test_erf_networks_with_known_bias_corrections(make_planted, make_downstream, rng):
    network = make_planted((8, 11, 10, 1), seed=6, activation="erf")
    problem, _ = make_downstream(network, known_corrections=True)
    found = recover_by_powers(problem, power_designs(8, (11, 10, 1))[0], 10)
    X = rng.standard_normal((500, 8))
    assert relative_max_error(network(X), found.network(X)) < 1e-3


def test_an_unknown_width_is_detected(make_planted, make_downstream):
    network = make_planted((10, 14, 11, 1), seed=7)
    problem, _ = make_downstream(network)
    assert recover_by_powers(problem, power_designs(10, (14, 16, 1))[0]).network.layer_widths == (14, 11, 1)


def without_unit(network, k, output):
    weights = [W.copy() for W in network.weights]
    weights[2][k] = output
    return FeedforwardNetwork(weights, network.biases)


def test_a_dead_unit_is_reported(make_planted, make_downstream):
    network = make_planted((10, 14, 11, 1), seed=7)
    problem, _ = make_downstream(without_unit(network, 3, 0.0))
    with pytest.raises(NotIdentified, match="no sum of 11 powers, but of 10") as failure:
        recover_by_powers(problem, power_designs(10, (14, 11, 1))[0], 11)
    assert failure.value.n_seen == 10


def with_parallel_units(network):
    weights = [W.copy() for W in network.weights]
    weights[1][:, 4] = weights[1][:, 2]
    return FeedforwardNetwork(weights, network.biases)


def test_parallel_units_are_reported(make_planted, make_downstream):
    problem, _ = make_downstream(with_parallel_units(make_planted((10, 14, 11, 1), seed=7)))
    with pytest.raises(NotIdentified, match="no sum of 11 powers, but of 10") as failure:
        recover_by_powers(problem, power_designs(10, (14, 11, 1))[0], 11)
    assert failure.value.n_seen == 10


def test_networks_with_units_held_at_levels(make_planted, make_downstream, rng):
    network = make_planted((6, 7, 12, 1), seed=5)
    problem, _ = make_downstream(network)
    found = recover_by_powers(problem, power_designs(6, (7, 12, 1))[0], 12)
    X = rng.standard_normal((500, 6))
    assert relative_max_error(network(X), found.network(X)) < 5e-3


def test_wrong_weight_norms_are_detected(make_planted, make_downstream):
    network = make_planted((10, 16, 16, 1), seed=8)
    problem, _ = make_downstream(network)
    weights, biases = problem.weights.copy(), problem.biases.copy()
    weights[:, :4] *= 1.7
    biases[:4] *= 1.7
    wrong = type(problem)(problem.query, weights, biases, "tanh", None, 1, problem.rng)
    with pytest.raises(NotIdentified, match="no sum of|powers were recovered|were not recovered|relative residual"):
        recover_by_powers(wrong, power_designs(10, (16, 16, 1))[0], 16)


def test_patches_out_of_reach_are_reported(make_planted, make_downstream):
    network = make_planted((10, 16, 16, 1), seed=8)
    problem, _ = make_downstream(network)
    near = type(problem)(problem.query, problem.weights, problem.biases, "tanh", None, 1, problem.rng, farthest=5.0)
    with pytest.raises(NotIdentified, match="7 free units has 0 points in reach"):
        recover_by_powers(near, power_designs(10, (16, 16, 1))[0], 16)


def test_a_unit_far_from_its_center_is_tried_again(make_planted, make_downstream, rng):
    network = make_planted((8, 12, 10, 1), seed=9)
    problem, _ = make_downstream(network)
    biases = problem.biases.copy()
    biases[5] -= 1.8
    far = type(problem)(problem.query, problem.weights, biases, "tanh", None, 1, problem.rng)
    found = recover_by_powers(far, power_designs(8, (12, 10, 1))[0], 10)
    X = rng.standard_normal((500, 8))
    assert relative_max_error(network(X), found.network(X)) < 5e-3
