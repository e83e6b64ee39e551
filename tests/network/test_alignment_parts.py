import itertools

import numpy as np
import pytest
import torch

from skident.network.alignment.blocks import extents
from skident.network.alignment.graph import symmetry_of, traced
from skident.network.alignment.signs import best_signs, signs_of
from skident.network.alignment.symmetry import fitted_factors, moved_arrays, standard_factors
from skident.network.alignment.units import Segment
from tests.network.module_cases import random_module

CHARACTERS = {
    "no sign": [()],
    "one": [(), (0,)],
    "one in front of another": [(0,), (0, 1), (1,)],
    "several in front of one": [(0,), (0, 1), (1,), (0, 2), (2,), (0, 3), ()],
    "a chain": [(0,), (0, 1), (1, 2), (2, 3), (3,)],
    "a triangle": [(0, 1), (1, 2), (0, 2), (1,)],
    "two alone": [(0,), (1,)],
}


@pytest.mark.parametrize("name", CHARACTERS)
def test_signs_are_the_best_of_all(name, rng):
    similarities = {frozenset(s): rng.normal(size=(4, 3)) for s in CHARACTERS[name]}
    flips = sorted(set().union(*similarities))
    score, signs = best_signs(similarities, flips)
    trials = [dict(zip(flips, s)) for s in itertools.product((1.0, -1.0), repeat=len(flips))]
    expected = np.max([sum(G * signs_of(s, trial) for s, G in similarities.items()) for trial in trials], axis=0)
    np.testing.assert_allclose(score, expected, atol=1e-12)
    np.testing.assert_allclose(sum(G * signs_of(s, signs) for s, G in similarities.items()), expected, atol=1e-12)
    assert all(np.isin(signs[f], (1.0, -1.0)).all() for f in flips)


def test_many_signs_that_hang_together_are_improved_in_turn(rng):
    pairs = itertools.combinations(range(7), 2)
    similarities = {frozenset(pair): rng.normal(size=(2, 2)) for pair in pairs}
    score, signs = best_signs(similarities, list(range(7)))
    np.testing.assert_allclose(score, sum(G * signs_of(s, signs) for s, G in similarities.items()))
    assert (score > sum(similarities.values())).all()


def arrays_of(module):
    return {name: tensor.numpy() for name, tensor in module.state_dict().items() if tensor.is_floating_point()}


@pytest.mark.parametrize("case", ["residual relu", "separable tanh", "concatenation", "views"])
def test_standard_form_does_not_depend_on_scales_and_order(case, rng):
    module = random_module(case, 30)
    symmetry, arrays = symmetry_of(traced(module, "module")), arrays_of(module)
    orders = [rng.permutation(m) for m in symmetry.sizes]
    scales = [
        np.exp(rng.normal(size=symmetry.sizes[f.space])) if f.scale else np.ones(symmetry.sizes[f.space])
        for f in symmetry.factors
    ]
    moved = moved_arrays(symmetry, arrays, orders, scales)
    plain, other = standard_factors(symmetry, arrays), standard_factors(symmetry, moved)
    for factor, one, two, scale in zip(symmetry.factors, plain, other, scales):
        np.testing.assert_allclose(two * scale, one[orders[factor.space]], rtol=1e-10)
        assert (one > 0.0).all()
    standard = moved_arrays(symmetry, arrays, [None] * len(orders), plain)
    again = moved_arrays(symmetry, moved, [np.argsort(order) for order in orders], [
        two[np.argsort(orders[f.space])] for f, two in zip(symmetry.factors, other)
    ])  # fmt: skip
    assert all(np.allclose(standard[name], again[name], rtol=1e-9, atol=1e-12) for name in standard)


def test_fitted_scales_are_where_the_distance_is_least(rng):
    a, b = random_module("mlp ReLU", 31), random_module("mlp ReLU", 32)
    symmetry = symmetry_of(traced(a, "a"))
    A, B = arrays_of(a), arrays_of(b)
    orders = [np.arange(m) for m in symmetry.sizes]

    def distance(factors):
        moved = moved_arrays(symmetry, B, orders, factors)
        return sum(((A[name] - moved[name]) ** 2).sum() for name in A)

    ones = [np.ones(m) for m in symmetry.sizes]
    fitted = fitted_factors(symmetry, A, B, orders, ones)
    assert distance(fitted) < distance(ones)
    for _ in range(20):
        near = [c * np.exp(0.02 * rng.normal(size=c.shape)) for c in fitted]
        assert distance(near) > distance(fitted) - 1e-6


def test_blocks_are_read_and_written_in_place():
    module = random_module("views", 33)
    symmetry, arrays = symmetry_of(traced(module, "module")), arrays_of(module)
    for block in symmetry.blocks:
        array = arrays[block.tensor].copy()
        values = block.read(array)
        assert values.shape[: len(block.spaces)] == tuple(symmetry.sizes[space] for space in block.spaces)
        block.write(array, 2.0 * values)
        block.write(array, 0.5 * block.read(array))
        np.testing.assert_array_equal(array, arrays[block.tensor])


def test_extents_of_segments():
    two, three, unknown, flat = Segment(0, 0, 2), Segment(1, 1, 3), Segment(), Segment(0, 0, 2, flattened=True)
    assert extents([two, three], 5) == [(0, 2, 1), (2, 3, 1)]
    assert extents([two, unknown, three], 9) == [(0, 2, 1), (2, 4, 1), (6, 3, 1)]
    assert extents([flat], 8) == [(0, 2, 4)]
    assert extents([three, flat], 11) == [(0, 3, 1), (3, 2, 4)]
    for segments, total in (([two], 3), ([flat], 7), ([unknown, unknown], 4), ([flat, unknown], 9)):
        with pytest.raises(ValueError, match="inputs cannot be divided among units"):
            extents(segments, total)


def test_tracing_leaves_the_module_alone():
    module = random_module("residual relu", 34).train()
    copy = traced(module, "module")
    assert module.training and not copy.training
    assert copy.conv.weight is not module.conv.weight and torch.equal(copy.conv.weight, module.conv.weight)
