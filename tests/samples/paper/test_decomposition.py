import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtr

import skident
from skident.budget import MemoryLimitError
from skident.linalg import n_symmetric_entries, symmetric_power
from skident.samples.paper.decomposition import (
    decomposition_bytes,
    order_for,
    recover_up_to_signs,
    units_from_tensors,
)
from skident.samples.paper.scalars import fix_signs, population_tensors, recover_scalars, term_coefficients


def random_units(seed, D, m, spread=1.0):
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(D, m))
    return W / np.linalg.norm(W, axis=0), rng.uniform(-spread, spread, m), rng.choice([-1, 1], m) * rng.uniform(1, 2, m)


def errors(found, true, signed=False):
    """Largest errors of directions, biases and output weights after the best pairing, up to common signs of (w, b)."""
    W, b, a = true
    assert found.W.shape == W.shape
    cosines = found.W.T @ W
    i, j = linear_sum_assignment(-np.abs(cosines))
    signs = np.ones(len(i)) if signed else np.sign(cosines[i, j])
    weights = np.linalg.norm(found.W[:, i] * signs - W[:, j], axis=0)
    return [float(np.max(x)) for x in (weights, np.abs(found.b[i] * signs - b[j]), np.abs(found.a[i] - a[j]))]


# -- exact tensors -----------------------------------------------------------------------------------------------------


# Bars of the project: weights within 1e-8 (order 1) and 1e-6 (order 2). Largest of 40 other seeds: 2e-9 and 1e-12.
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("D", "m", "spread"), [(1, 1, 1), (5, 5, 1), (10, 4, 1), (30, 30, 1), (30, 30, 4)])
def test_full_rank_exact(D, m, spread, seed):
    true = random_units(seed, D, m, spread)
    found = units_from_tensors(population_tensors(*true, 4))
    assert max(errors(found, true, signed=True)) < 1e-8
    np.testing.assert_allclose(found.margins, 1, atol=1e-6)
    assert found.residual < 1e-10


@pytest.mark.parametrize(("D", "m"), [(2, 2), (3, 5), (5, 14), (10, 54)])
def test_order_two_exact(D, m):
    true = random_units(0, D, m)
    found = recover_up_to_signs(population_tensors(*true, 6), 2)
    assert max(errors(found, true)) < 1e-6 and found.margins is None


# 0.9 of C(D + l - 1, l), beyond D (D + 1) / 2; largest of five seeds: 5e-16 and 1e-11.
@pytest.mark.parametrize(("order", "D", "m"), [(3, 2, 4), (3, 3, 9), (3, 4, 18), (4, 2, 5), (4, 3, 13), (4, 4, 31)])
@pytest.mark.parametrize("method", ["joint", "literal"])
def test_higher_orders_exact(order, D, m, method):
    true = random_units(0, D, m)
    found = recover_up_to_signs(population_tensors(*true, 2 * order + 2), order, n_units=m, method=method)
    assert order_for(D, m) == order and m <= n_symmetric_entries(D, order)
    cosines = np.abs(found.W.T @ true[0])
    assert cosines[linear_sum_assignment(-cosines)].min() > 1 - 1e-10
    assert max(errors(found, true)) < 1e-8


@pytest.mark.parametrize("n_units", [None, 5])
def test_the_order_follows_from_the_tensors_or_the_units(n_units):
    true = random_units(0, 3, 5)
    found = units_from_tensors(population_tensors(*true, 6), n_units=n_units)
    assert max(errors(found, true)) < 1e-6 and found.margins is None
    tensors = population_tensors(*random_units(0, 3, 2), 4)
    assert units_from_tensors(tensors).margins.min() > 0.9
    assert units_from_tensors({k: tensors[k] for k in (2, 3, 4)}).margins is None


def test_orders_that_memory_does_not_allow_are_refused_before_allocation():
    tensors = population_tensors(*random_units(0, 6, 7), 8)
    with skident.config_context(max_memory="2MB"), pytest.raises(MemoryLimitError, match="tensors of order 8 over 6"):
        recover_up_to_signs(tensors, 3)
    assert decomposition_bytes(6, 3) > 8 * n_symmetric_entries(6, 3) ** 2 * n_symmetric_entries(6, 2)


def test_order_two_at_the_limit():
    # 0.99 of D (D + 1) / 2.
    true = random_units(0, 15, 118)
    found = recover_up_to_signs(population_tensors(*true, 6), 2, n_draws=3)
    assert max(errors(found, true)) < 1e-6


def test_zeros_of_the_hermite_polynomials_do_not_matter():
    # T_3 lacks units with b = 0, T_4 those with |b| = 1, T_5 those with b = 0 or b^2 = 3, T_6 the zeros of He_4.
    for D, m, order in ((6, 5, 1), (4, 7, 2)):
        W, _, a = random_units(3, D, m)
        b = np.array([0.0, 1.0, -1.0, np.sqrt(3), -np.sqrt(3 + 6**0.5), np.sqrt(3 - 6**0.5), 0.5])[:m]
        T = population_tensors(W, b, a, 2 * order + 2)
        assert max(errors(recover_up_to_signs(T, order), (W, b, a))) < 1e-8


@pytest.mark.parametrize(("D", "m", "order"), [(6, 6, 1), (6, 3, 1), (4, 8, 2)])
def test_literal_algorithm_exact(D, m, order):
    W, b, a = random_units(5, D, m)
    b[0] = 0.0  # only the second decomposition sees this unit
    T = population_tensors(W, b, a, 2 * order + 2)
    for n_units in (None, m):
        found = recover_up_to_signs(T, order, n_units=n_units, method="literal")
        assert max(errors(found, (W, b, a))) < 1e-7


def test_literal_signs_are_right_without_noise():
    true = random_units(6, 7, 7, spread=2.0)
    found = units_from_tensors(population_tensors(*true, 4), method="literal")
    assert max(errors(found, true, signed=True)) < 1e-7


# -- noise -------------------------------------------------------------------------------------------------------------


def noisy(T, level, seed):
    rng = np.random.default_rng(seed)
    factorials = np.cumprod([1, 1, 2, 3, 4, 5, 6])
    return {k: t + level * np.sqrt(factorials[k]) * rng.normal(size=t.shape) for k, t in T.items()}


def test_joint_pencil_bears_more_noise_than_separate_ones():
    found = {"joint": [], "literal": []}
    for seed in range(8):
        true = random_units(seed, 5, 5)
        T = noisy(population_tensors(*true, 4), 2e-4, seed)
        for method, out in found.items():
            result = recover_up_to_signs(T, 1, n_units=5, method=method)
            out.append(errors(result, true)[0] if result.W.shape[1] == 5 else 1.0)
    assert 3 * np.median(found["joint"]) < np.median(found["literal"])
    assert np.median(found["joint"]) < 0.05


@pytest.mark.parametrize("method", ["joint", "literal"])
def test_units_are_counted_above_the_rank_tolerance(method):
    T = noisy(population_tensors(*random_units(1, 5, 2), 4), 1e-6, 0)
    counted = units_from_tensors(T, method=method, tolerances=(1e-3, 1e-3, 0.1))
    assert counted.W.shape == (5, 2)
    assert recover_up_to_signs(T, method=method).W.shape[1] > 2  # noise looks like units


def test_signs_are_decided_in_the_middle():
    # A unit that is nearly always on and one that is nearly always off, flipped both.
    W, b, a = np.eye(4), np.array([2.0, -2.0, 0.3, -0.3]), np.array([1.0, 1.5, -2.0, 1.0])
    T1 = population_tensors(W, b, a, 1)[1] + np.array([-0.2, -0.2, 0.1, 0.1])
    flips = np.array([-1.0, -1.0, 1.0, -1.0])
    signs, margins = fix_signs(T1, W * flips, b * flips, a)
    np.testing.assert_array_equal(signs, flips)
    assert np.all((0 < margins) & (margins <= 1))
    literal, _ = fix_signs(T1, W * flips, b * flips, a, literal=True)
    assert not np.array_equal(literal, flips)


def test_margins_vanish_where_both_signs_fit_alike():
    b = np.array([0.7])
    for share in (0.0, 0.25, 0.5, 1.0, 1.5):
        z = ndtr(b) - 0.5 + 0.5 * share
        _, margins = fix_signs(z, np.eye(1), b, np.ones(1))
        assert margins[0] == pytest.approx(min(share, 1.0), abs=1e-12)


# -- scalars -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize("order", [1, 2])
def test_scalars_from_exact_tensors(order, literal):
    W, _, a = random_units(7, 5, 4)
    for b in ([0.0, 1.0, -1.0, 0.2], [np.sqrt(3), -3.0, 2.5, -0.7]):
        signs = np.array([1, -1, -1, 1])
        found = recover_scalars(population_tensors(W, np.array(b), a, 5), W * signs, order, literal=literal)
        np.testing.assert_allclose(found, (signs * b, a), atol=1e-9)


def test_coefficients_are_least_squares(rng):
    W = rng.normal(size=(4, 6))
    W /= np.linalg.norm(W, axis=0)
    near = W.copy()
    near[:, 1] = near[:, 0] + 1e-3 * near[:, 2]  # an ill-conditioned Gram matrix
    for V in (W, near / np.linalg.norm(near, axis=0)):
        T = rng.normal(size=n_symmetric_entries(4, 3))
        expected = np.linalg.lstsq(symmetric_power(V.T, 3).T, T, rcond=None)[0]
        np.testing.assert_allclose(term_coefficients(T, V, 3), expected, rtol=1e-8)


def test_scalars_use_the_least_disturbed_orders():
    # At b = 2.5 the coefficient of T_2 is small, and b from it alone is off by more than b from T_3 and T_4.
    W, b, a = np.eye(3), np.full(3, 2.5), np.ones(3)
    best, literal = [], []
    for seed in range(20):
        T = noisy(population_tensors(W, b, a, 5), 1e-3, seed)
        best.append(recover_scalars(T, W, 1)[0] - b)
        literal.append(recover_scalars(T, W, 1, literal=True)[0] - b)
    assert np.std(best) < 0.9 * np.std(literal)


# -- errors ------------------------------------------------------------------------------------------------------------


T = population_tensors(np.eye(3), np.array([0.1, 0.2, -0.3]), np.ones(3), 6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: recover_up_to_signs(T, 0), "order must be an integer >= 1, got 0"),
        (lambda: recover_up_to_signs(T, 3), r"order 3 needs the tensors of orders \[2, .*, 8\], got \[0, .*, 6\]"),
        (lambda: recover_up_to_signs({2: T[2], 3: T[3]}), r"needs the tensors of orders \[2, 3, 4\], got \[2, 3\]"),
        (lambda: units_from_tensors({}), r"needs the tensors of orders \[2\], got \[\]"),
        (lambda: recover_up_to_signs({**T, 3: T[4]}), r"tensors\[3\] must be packed, of shape \(10,\) over R\^3"),
        (lambda: recover_up_to_signs({**T, 4: T[4] * np.nan}), r"tensors\[4\] must be finite"),
        (
            lambda: recover_up_to_signs(T, n_units=4),
            r"order 1 separates at most 3 .* n_units=4: take order=2",
        ),
        (
            lambda: recover_up_to_signs(T, 2, n_units=7),
            r"order 2 separates at most 6 .* n_units=7: take order=3",
        ),
        (lambda: recover_up_to_signs({k: 0 * t for k, t in T.items()}), "tensors vanish"),
        (lambda: order_for(1, 2), "one input separate 1 unit, got n_units=2"),
        (lambda: recover_up_to_signs(T, method="other"), "method must be 'joint' or 'literal'"),
        (lambda: fix_signs(np.ones(2), np.ones((2, 3)), np.zeros(3), np.ones(3)), "signs of 3 units.*in 2 dimensions"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("literal", [True, False])
def test_units_that_leave_no_trace_get_no_output_weight(literal):
    """A coefficient of order 2 that all but vanishes puts b at 1e200, where a cannot be told; nothing warns."""
    T = population_tensors(np.eye(2), np.array([0.3, 0.0]), np.array([1.0, 1.0]), 4)
    second = T[2].copy()
    second[-1] = 1e-200
    third = T[3].copy()
    third[-1] = 1.0
    b, a = recover_scalars({**T, 2: second, 3: third}, np.eye(2), literal=literal)
    assert np.isfinite(b).all() and np.isfinite(a).all() and np.abs(a[0] - 1.0) < 1e-9
    signs, margins = fix_signs(T[1], np.eye(2), b, a, literal=literal)
    # The other unit's margin is not spoilt.
    assert signs[0] == 1 and abs(margins[0] - 1.0) < 1e-9
