import itertools

import pytest

from skident.identification.second_layer.by_powers.design import power_designs
from skident.identification.second_layer.kernel.patch import n_sign_patterns


@pytest.mark.parametrize(
    ("D", "widths", "order", "n_free"),
    [(10, (16, 16, 1), 2, 7), (10, (32, 32, 1), 3, 6), (17, (64, 64, 6), 2, 13), (11, (64, 64, 3), 3, 7)],
)
def test_plans_of_usual_networks(D, widths, order, n_free):
    plan = power_designs(D, widths)[0]
    assert (plan.rule.order, plan.n_free) == (order, n_free)


@pytest.mark.parametrize(("D", "widths"), [(4, (16, 16, 1)), (3, (8, 8, 1)), (6, (32, 32, 1)), (8, (3, 10, 1))])
def test_no_plan_where_powers_or_patterns_are_too_few(D, widths):
    assert power_designs(D, widths) == []


def test_more_outputs_need_fewer_rows():
    assert power_designs(10, (16, 16, 4))[0].n_queries < 0.5 * power_designs(10, (16, 16, 1))[0].n_queries


def test_alternatives_have_fewer_free_units_and_cost_more():
    plans = power_designs(10, (16, 16, 1))
    assert len(plans) > 1
    for plan, other in itertools.pairwise(plans):
        assert other.n_free < plan.n_free and other.n_queries >= plan.n_queries


def test_few_signs_are_no_obstacle_where_units_can_be_held_at_levels():
    plan = power_designs(6, (7, 12, 1))[0]
    assert plan.n_free <= 4 and plan.n_first > n_sign_patterns(6, 7, plan.n_free)
