"""Saturation regions, fits of known units, and extension from one patch to all units."""

from dataclasses import replace

import numpy as np
import pytest

from skident.identification.second_layer.by_patch_and_extension import extension as module
from skident.identification.second_layer.by_patch_and_extension.extension import (
    extend_to_all_units,
    n_queries_of_extension,
)
from skident.identification.second_layer.by_patch_and_extension.known_units import (
    TAILS,
    KnownPatch,
    KnownUnits,
    fit_new_unit,
    refit_newest,
    weights_from_tail,
)
from skident.identification.second_layer.by_patch_and_extension.patch_from_powers import known_patch_from_powers
from skident.identification.second_layer.by_patch_and_extension.recover import extension_design, recover_by_extension
from skident.identification.second_layer.by_patch_and_extension.saturation_regions import (
    SaturationRegion,
    Wall,
    spread_points,
)
from skident.identification.second_layer.by_powers.first_patch import powers_on_first_patch
from skident.identification.second_layer.by_powers.recover import power_designs
from skident.identification.second_layer.downstream import Downstream, preactivations_of
from skident.network import get_activation
from skident.oracle import NotIdentified


@pytest.fixture
def region():
    """Nine units of four inputs, the first three of them known, and a ray along the hyperplanes of these."""
    rng = np.random.RandomState(0)
    W, b = rng.standard_normal((4, 9)), rng.standard_normal(9)
    ray = np.linalg.qr(W[:, :3], mode="complete")[0][:, 3]
    return SaturationRegion(Downstream(None, W, b, "tanh", None, 1, rng), np.sign(ray @ W)), 200.0 * ray


@pytest.fixture
def three_known(region):
    nothing = np.zeros((3, 2)), np.zeros(2), np.zeros((2, 1)), np.zeros(1)
    return KnownUnits(get_activation("tanh"), np.arange(3), region[0].downstream.rng.standard_normal(3), *nothing)


def test_points_lie_in_the_region_wherever_known_units_are(region, three_known):
    region, base = region
    X = spread_points(region, three_known, np.arange(3, 9), base[None], 100)
    levels = region.downstream.preactivations(X)
    assert len(X) > 30
    assert (region.signs[3:] * levels[:, 3:]).min() > 21.0
    moving = np.abs(levels[:, :3] + three_known.corrections) < 3.0
    assert set(moving.sum(axis=1)) == {0, 1, 2, 3}


def wall_of(region, three_known, base):
    """The first unit whose hyperplane bounds the region, with points there."""
    for unit in range(3, 9):
        others = np.setdiff1d(np.arange(3, 9), [unit])
        wall = Wall(unit, 2.0, 2.0, 8.0)
        X = spread_points(region, three_known, others, base[None], 200, wall)
        if len(X) > 20:
            return wall, others, X
    raise AssertionError


def test_only_one_unit_changes_across_a_wall(region, three_known):
    region, base = region
    wall, others, X = wall_of(region, three_known, base)
    np.testing.assert_allclose((region.downstream.preactivations(X))[:, wall.unit], 2.0, atol=1e-8)
    X, moves = region.crossings(X, wall, three_known.units, others)
    assert len(X) > 5
    H = np.array([np.tanh(region.downstream.preactivations(X + t * moves)) for t in (-8.0, 0.0, 8.0)])
    rest = np.setdiff1d(np.arange(9), [wall.unit])
    assert np.ptp(H[:, :, rest], axis=0).max() < 1e-12
    np.testing.assert_allclose((moves @ region.downstream.weights)[:, wall.unit], 1.0)


@pytest.fixture
def true(rng):
    """Five known units of seven."""
    W, c, V, v = (rng.standard_normal(size) for size in ((5, 4), 4, (4, 2), 2))
    return KnownUnits(get_activation("tanh"), np.arange(5), 0.3 * rng.standard_normal(5), W, c, V, v)


@pytest.fixture
def data(true, rng):
    Z = 2.0 * rng.standard_normal((60, 7))
    return Z, np.tanh(np.tanh(Z[:, :5] + true.corrections) @ true.W2 + true.biases) @ true.output_weights + true.offset


def moved(known, rng, size=1e-5):
    """The same with errors."""
    names = "corrections", "W2", "biases", "output_weights", "offset"
    parts = [getattr(known, name) + size * rng.standard_normal(getattr(known, name).shape) for name in names]
    return KnownUnits(known.activation, known.units, *parts)


def test_all_parameters_are_fitted(true, data, rng):
    found, factors_found = moved(true, rng).refined(*data)
    Z, Y = data
    assert found.relative_residual(Z[:, :5] * factors_found, Y) < 1e-8
    np.testing.assert_allclose(factors_found, 1.0, atol=1e-7)
    for name in ("corrections", "W2", "biases", "output_weights", "offset"):
        np.testing.assert_allclose(getattr(found, name), getattr(true, name), atol=1e-7)


def test_weight_norms_are_fitted(true, data, rng):
    Z, Y = data
    factors = 1.0 + 1e-6 * rng.standard_normal(5)
    found, factors_found = true.refined(Z[:, :5] / factors, Y, max_iter=4)
    np.testing.assert_allclose(factors_found, factors, rtol=1e-9)
    np.testing.assert_allclose(found.W2, true.W2, atol=1e-8)


def test_weight_norms_do_not_absorb_other_errors(true, data, rng):
    Z, Y = data
    Y = Y + 1e-2 * rng.standard_normal(Y.shape)
    _, factors_found = true.refined(Z[:, :5], Y, max_iter=10)
    assert np.abs(factors_found - 1.0).max() < 3e-6


def test_only_the_newest_units_are_refitted(true, data, rng):
    signs = np.array([1.0, -1.0])
    wrong, base = moved(true, rng), true.biases + signs @ true.W2[3:]
    start = KnownUnits(
        true.activation,
        true.units,
        np.append(true.corrections[:3], wrong.corrections[3:]),
        np.vstack([true.W2[:3], wrong.W2[3:]]),
        base - signs @ wrong.W2[3:],
        true.output_weights,
        true.offset,
    )
    found = refit_newest(start, *data, signs)
    assert start.relative_residual(*data) > 1e-6
    assert found.relative_residual(*data) < 1e-9
    np.testing.assert_array_equal(found.W2[:3], true.W2[:3])
    np.testing.assert_allclose(found.W2, true.W2, atol=1e-8)


def test_inputs_do_not_change_when_a_saturated_unit_joins(true, data):
    Z, _ = data
    Z[:, 5] = 30.0
    weights = np.array([0.5, -1.0, 2.0, 0.1])
    np.testing.assert_allclose(true.joined_by(5, 1.0, weights, 0.2).inputs(Z), true.inputs(Z), atol=1e-12)


@pytest.fixture(params=[("tanh", 0.3), ("tanh", 3.0), ("erf", 0.5)])
def new_unit(request, rng):
    """Three known units, a fourth with its weights and bias correction."""
    name, size = request.param
    shapes = (3,), (3, 5), (5,), (5, 2), (2,)
    known = KnownUnits(get_activation(name), np.arange(3), *(rng.standard_normal(shape) for shape in shapes))
    return known, size * rng.standard_normal(5), 0.6


def outputs_with(known, weights, correction, Z):
    """Outputs with the unit, which is saturated at -1 in the region."""
    moved = known.activation(Z[:, 3] + correction) + 1.0
    return known.activation(known.inputs(Z) + np.outer(moved, weights)) @ known.output_weights + known.offset


def test_a_new_unit_from_its_tail_and_outputs_across(new_unit, rng):
    known, weights, correction = new_unit
    erf = known.activation.name == "erf"
    levels = -TAILS[known.activation.name] - (correction if erf else 1.0)
    Z = np.column_stack([2.0 * rng.standard_normal((12, 3)), np.full(12, levels[0])])
    Y = np.array(
        [outputs_with(known, weights, correction, np.column_stack([Z[:, :3], np.full(12, level)])) for level in levels]
    )
    start = weights_from_tail(known, Z, np.swapaxes(Y, 0, 1), levels + correction * erf, -1.0)
    factor = 1.0 if erf else np.exp(2.0 * correction)
    np.testing.assert_allclose(start, factor * weights, rtol=1e-3, atol=1e-3 * np.abs(weights).max())
    Z = np.column_stack([2.0 * rng.standard_normal((15, 3)), rng.uniform(-3.5, 3.5, 15)])
    found = fit_new_unit(
        known, 3, Z, outputs_with(known, weights, correction, Z), start, -1.0, correction if erf else None
    )
    assert found.residual < 1e-7
    np.testing.assert_allclose(found.weights, weights, atol=1e-6)
    np.testing.assert_allclose(found.correction, correction, atol=1e-6)


@pytest.fixture(params=["tanh", "erf"])
def first_patch(request, make_planted, make_downstream):
    network = make_planted((7, 11, 9, 2), seed=4, scale=1.0, bias_scale=0.3, activation=request.param)
    problem, _ = make_downstream(network, known_corrections=request.param == "erf")
    first = powers_on_first_patch(problem, power_designs(7, (11, 9, 2))[0], 9)
    return network, problem, first


def test_patch_from_powers_and_its_extension(first_patch):
    network, problem, first = first_patch
    patch = known_patch_from_powers(problem, first)
    known, free = patch.known, patch.known.units
    moves = np.linalg.pinv(problem.weights[:, free])
    X = patch.point + 0.5 * np.random.RandomState(0).standard_normal((40, len(free))) @ moves
    assert known.relative_residual(problem.preactivations(X), network(X).reshape(40, -1)) < 1e-3
    norms = np.sort(np.linalg.norm(network.weights[1][free], axis=0))
    np.testing.assert_allclose(np.sort(np.linalg.norm(known.W2, axis=0)), norms, rtol=1e-2)
    X = np.random.RandomState(1).standard_normal((100, 7))
    np.testing.assert_allclose(extend_to_all_units(problem, patch).network(X), network(X), atol=1e-6)


def test_patches_without_saturated_units_are_reported(make_planted, make_downstream):
    network = make_planted((10, 8, 9, 1), seed=4)
    problem, _ = make_downstream(network)
    first = powers_on_first_patch(problem, power_designs(10, (8, 9, 1))[0], 9)
    with pytest.raises(NotIdentified, match="nowhere on the patch"):
        known_patch_from_powers(problem, first)


def known_patch(network, downstream, moved, k, error, rng):
    """The true one with errors, its free units drawn."""
    free = np.sort(rng.permutation(network.layer_widths[0])[:k])
    patch = downstream.patch(free, 1)
    signs = np.sign(patch.points[0] @ downstream.weights + downstream.biases)
    signs[free] = 0.0
    (_, W, V), (_, c, v) = network.weights, network.biases
    parts = W[free], c + signs @ W, V, v
    center_outputs = network.activations[0](moved[free])
    parts = [part + error * rng.standard_normal(part.shape) for part in parts]
    corrections = preactivations_of(network.activation, center_outputs + error * rng.standard_normal(k))
    known = KnownUnits(network.activations[0], free, corrections, *parts)
    return KnownPatch(known, patch.points[0], signs)


CASES = [
    ((5, 10, 9, 2), 4, 0.7, "tanh"),
    ((6, 12, 10, 1), 5, 1.0, "tanh"),
    ((5, 9, 8, 3), 4, 3.0, "tanh"),
    ((5, 10, 9, 3), 4, 0.7, "erf"),
]


@pytest.mark.parametrize(("sizes", "k", "scale", "activation"), CASES)
def test_all_units_from_one_patch(sizes, k, scale, activation, make_planted, make_downstream, rng):
    network = make_planted(sizes, seed=3, scale=scale, bias_scale=0.3, activation=activation)
    problem, moved = make_downstream(network, known_corrections=activation == "erf")
    n_queried = []

    def query(X):
        n_queried.append(len(X))
        return network(X).reshape(len(X), -1)

    problem = replace(problem, query=query)
    found = extend_to_all_units(problem, known_patch(network, problem, moved, k, 1e-8, rng))
    assert found.residual < 1e-7
    for one, other in zip(
        [*found.network.weights, *found.network.biases], [*network.weights, *network.biases], strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert sum(n_queried) < 1.3 * n_queries_of_extension(sizes[1:], k)


def test_a_wrong_patch_is_reported(make_planted, make_downstream, rng):
    network = make_planted((5, 9, 8, 2), seed=3)
    problem, moved = make_downstream(network)
    patch = known_patch(network, problem, moved, 4, 0.3, rng)
    with pytest.raises(NotIdentified, match="does not explain outputs of its saturation region"):
        extend_to_all_units(problem, patch)


def test_errors_are_fitted_away_at_the_end(make_planted, make_downstream, rng, monkeypatch):
    network = make_planted((5, 10, 9, 2), seed=3, scale=0.7, bias_scale=0.3)
    problem, moved = make_downstream(network)

    class Spoiled(module._Extension):
        def refine(self):
            if not self.unknown:
                self.known = replace(self.known, W2=self.known.W2 + 1e-3 * rng.standard_normal(self.known.W2.shape))
                assert self.known.relative_residual(*self.data()) > 1e-4

    monkeypatch.setattr(module, "_Extension", Spoiled)
    assert extend_to_all_units(problem, known_patch(network, problem, moved, 4, 1e-8, rng)).residual < 1e-5


def test_few_inputs_and_a_wide_second_layer(make_planted, make_downstream):
    network = make_planted((5, 10, 10, 2), seed=1)
    downstream, moved = make_downstream(network, seed=1)
    found = recover_by_extension(downstream, extension_design(5, (10, 10, 2)), 10).network
    X = np.random.RandomState(2).standard_normal((200, 5))
    assert np.abs(found(X) - network(X)).max() < 1e-8
    assert np.abs(found.biases[0] - downstream.biases - moved).max() < 1e-8


def test_a_width_that_is_too_small_is_detected(make_planted, make_downstream):
    downstream, _ = make_downstream(make_planted((5, 10, 10, 2), seed=1), seed=1)
    with pytest.raises(NotIdentified, match="of held-out outputs unexplained|powers were recovered"):
        recover_by_extension(downstream, extension_design(5, (10, 6, 2)), 6)


def test_designs_are_for_few_inputs_only():
    assert extension_design(11, (64, 64, 4)) is None
    assert extension_design(3, (64, 64, 1)) is None
    eight = extension_design(8, (64, 64, 4))
    assert eight.n_queries < 0.5 * power_designs(8, (64, 64, 4))[0].n_queries
