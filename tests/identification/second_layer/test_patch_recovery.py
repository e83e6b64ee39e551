"""One patch with D - 1 free units: everything there to rounding error."""

import dataclasses

import numpy as np
import pytest

from skident.identification.second_layer.by_patch_and_extension.patch_fit import PatchFit, PatchNetwork
from skident.identification.second_layer.by_patch_and_extension.powers_at_centers import powers_at_centers
from skident.identification.second_layer.by_patch_and_extension.recover import patch_design, recover_patch
from skident.identification.second_layer.by_patch_and_extension.saturation_regions import opposite_regions
from skident.identification.second_layer.downstream import Downstream
from skident.identification.second_layer.kernel.charts import (
    TanhChart,
    change_coordinates,
    powers_of_series,
    series_in_outputs,
)
from skident.oracle import NotIdentified


def network(D, m_1, m_2, m_L, seed):
    """A tanh network, and what is downstream its first layer, known up to shifts and to 1e-7 in lengths."""
    rng = np.random.RandomState(seed)
    A, W = 1.5 * rng.standard_normal((D, m_1)) / np.sqrt(D), 1.5 * rng.standard_normal((m_1, m_2)) / np.sqrt(m_1)
    b, c = 0.3 * rng.standard_normal(m_1), 0.3 * rng.standard_normal(m_2)
    V, v_0 = rng.standard_normal((m_2, m_L)) / np.sqrt(m_2), rng.standard_normal(m_L)
    shifts, lengths = 0.2 * rng.standard_normal(m_1), 1.0 + 1e-7 * rng.standard_normal(m_1)

    def query(X):
        return np.tanh(np.tanh(X @ A + b) @ W + c) @ V + v_0

    return (A, b, W, c, V, v_0), Downstream(query, A / lengths, (b - shifts) / lengths, "tanh", None, m_L, rng)


@pytest.mark.parametrize("seed", [2, 3])
def test_everything_is_recovered_to_rounding_error(seed):
    (A, b, W, c, V, v_0), downstream = network(5, 12, 10, 2, seed)
    found = recover_patch(downstream, patch_design(5, (12, 10, 2)), 10)
    for patch in (found.patch, found.opposite):
        known, free = patch.known, patch.known.units
        t = patch.point @ found.downstream.weights + found.downstream.biases
        assert np.abs(t[free]).max() < 1e-9 and np.abs(np.delete(t, free)).min() > 20
        assert np.array_equal(patch.signs, np.where(np.isin(np.arange(12), free), 0.0, np.sign(t)))
        true = W[free] / np.linalg.norm(W[free], axis=0)
        cosines = true.T @ (known.W2 / np.linalg.norm(known.W2, axis=0))
        order = np.abs(cosines).argmax(axis=1)
        signs = np.sign(cosines[np.arange(10), order])
        assert sorted(order) == list(range(10))
        assert np.abs(known.W2[:, order] * signs - W[free]).max() < 1e-8
        assert np.abs(known.biases[order] * signs - c - patch.signs @ W).max() < 1e-7
        assert np.abs(known.output_weights[order] * signs[:, None] - V).max() < 1e-7
        assert np.abs(known.offset - v_0).max() < 1e-7
        assert np.abs(known.corrections - (patch.point @ A + b)[free]).max() < 1e-8
    assert (
        np.abs(found.downstream.weights[:, found.patch.known.units] / A[:, found.patch.known.units] - 1.0).max() < 1e-11
    )
    assert found.residual < 1e-13


@pytest.mark.parametrize("mix", [[[1.0, -2.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]])
def test_dependent_outputs_do_no_harm(mix):
    _, downstream = network(5, 12, 10, 2, 2)
    dependent = dataclasses.replace(downstream, query=lambda U: downstream.query(U) @ mix)
    plan = patch_design(5, (12, 10, 2))
    assert plan.rule.order < patch_design(5, (12, 10, 1)).rule.order
    assert recover_patch(dependent, plan, 10).residual < 1e-13


def test_too_few_independent_outputs_are_reported():
    _, downstream = network(4, 12, 40, 3, 2)
    plan = patch_design(4, (12, 40, 3))
    dependent = dataclasses.replace(downstream, query=lambda U: downstream.query(U)[:, [0, 0, 0]])
    with pytest.raises(NotIdentified, match="with 1 independent outputs, powers do not determine 40 units"):
        recover_patch(dependent, plan, 40)


def test_several_outputs_determine_more_units_than_entries():
    (_, _, W, *_), downstream = network(5, 14, 13, 3, 5)  # 10 entries of order 2
    plan = patch_design(5, (14, 13, 3))
    assert plan.rule.order == 2
    found = recover_patch(downstream, plan, 13)
    true = W[found.patch.known.units]
    nearest = [np.abs(np.abs(true.T @ row) / (row @ row) - 1.0).min() for row in found.patch.known.W2.T]
    assert max(nearest) < 1e-8
    assert found.residual < 1e-13


def test_the_end_of_the_time_is_reported():
    downstream = dataclasses.replace(network(5, 12, 10, 2, 2)[1], deadline=0.0)
    with pytest.raises(NotIdentified, match="its share of max_seconds is over"):
        recover_patch(downstream, patch_design(5, (12, 10, 2)), 10)


def test_time_is_checked_before_bias_corrections_are_fitted():
    downstream = dataclasses.replace(network(5, 12, 10, 2, 2)[1], deadline=0.0)
    plan = patch_design(5, (12, 10, 2))
    with pytest.raises(NotIdentified, match="its share of max_seconds is over"):
        powers_at_centers(downstream, opposite_regions(downstream), plan.rule, plan.n_centers, 10)


def test_a_wrong_width_is_detected():
    _, downstream = network(5, 12, 10, 2, 2)
    with pytest.raises(NotIdentified, match="of held-out outputs unexplained|powers were recovered"):
        recover_patch(downstream, patch_design(5, (12, 8, 2)), 8)


def test_no_design_if_powers_do_not_determine_the_patch():
    assert patch_design(2, (16, 16, 1)) is None
    assert patch_design(8, (8, 4, 1)) is None
    assert patch_design(3, (64, 64, 1)) is None
    assert patch_design(8, (64, 64, 1)).rule.order == 3
    assert patch_design(4, (64, 64, 2)) is None


def test_several_outputs_lower_the_order():
    assert patch_design(8, (64, 64, 4)).rule.order == 2
    assert patch_design(6, (64, 64, 3)).rule.order == 3
    assert patch_design(6, (64, 64, 1)).rule.order == 4


def test_other_units_are_saturated_in_both_regions_with_opposite_signs():
    _, downstream = network(6, 20, 4, 1, 4)
    cells = opposite_regions(downstream)
    T = np.random.RandomState(5).uniform(-1.5, 1.5, (50, 5))
    for which in (0, 1):
        Z = cells.at(T, np.full(50, which)) @ downstream.weights + downstream.biases
        assert np.allclose(Z[:, cells.free], T, atol=1e-10)
        assert np.abs(Z[:, cells.others]).min() > 21
    first, second = np.sign(cells.points @ downstream.weights + downstream.biases)[:, cells.others]
    assert np.array_equal(first, -second)


def test_regions_out_of_reach_are_reported():
    _, downstream = network(6, 20, 4, 1, 4)
    near = Downstream(
        downstream.query, downstream.weights, downstream.biases, "tanh", None, 1, downstream.rng, farthest=1.0
    )
    with pytest.raises(NotIdentified, match="no two saturation regions with 5 free units are in reach"):
        opposite_regions(near)


def test_series_between_outputs_and_chart_is_that_of_the_functions():
    h, factor, correction, eta = 0.4, 1.1, 0.3, 1e-2
    t = (np.arctanh(h) - correction) / factor
    moved = (np.arctanh(h + eta) - correction) / factor
    series = series_in_outputs(np.array(h), 5, np.array(factor))
    assert abs(np.polyval(series[::-1], eta) - np.tanh(moved - t)) < 1e-11


def test_without_norm_factors_series_are_moebius_maps():
    rng = np.random.RandomState(6)
    tensors = [rng.standard_normal((1, 2, n)) for n in (1, 3, 6, 10)]
    centers = np.array([0.3, -0.2, 0.5])
    expected = TanhChart().coefficients(tensors, centers, 3)
    found = change_coordinates(tensors, powers_of_series(series_in_outputs(centers[None], 3, np.ones(3))))
    assert np.allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("one_offset", [True, False])
def test_jacobian_is_the_derivative_of_the_residual(one_offset):
    rng = np.random.RandomState(7)
    network = PatchNetwork(
        rng.standard_normal((3, 4)), rng.standard_normal((2, 4)), 0.1 * rng.standard_normal((2, 3)), np.ones(3)
    )
    T, regions = rng.standard_normal((60, 3)), np.repeat([0, 1], 30)
    _, A = PatchFit(T, regions, rng.standard_normal((60, 2))).hidden_outputs(network)
    # Kaufman's form is exact if the residual is zero.
    fit = PatchFit(T, regions, A @ rng.standard_normal((4, 2)), one_offset)
    J, residual = fit.jacobian(network)
    assert np.abs(residual).max() < 1e-13
    step = 1e-6 * rng.standard_normal(J.shape[1])
    ends = [fit.eliminated(network.like(network.vector + s * step))[2].residual.T.ravel() for s in (1, -1)]
    assert np.allclose(J @ step, 0.5 * (ends[0] - ends[1]), atol=1e-10)
