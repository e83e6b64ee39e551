"""Offsets in y and X: certificates refer to how much y varies, not to how large it is."""

from fractions import Fraction

import numpy as np
import pytest

from skident import QuadraticNetRegressor
from skident.landscape import LossTerms, landscape_certificate
from skident.landscape.convex_solver import solve_convex
from skident.landscape.problem import QuadraticProblem, exact_offsets
from skident.landscape.quadratic_form import factorize, quadratic_form

INTERCEPT = LossTerms(fit_intercept=True)
BOTH = LossTerms(fit_intercept=True, fit_linear=True)
MIXED = np.array([1.0, -1.0])


def fractions(a):
    return [Fraction(value) for value in np.ravel(a).tolist()]


def centered(values):
    mean = sum(values, Fraction(0)) / len(values)
    return [value - mean for value in values]


def dot(a, b):
    return sum((x * y for x, y in zip(a, b)), Fraction(0))


def excess(x, y, W):
    """Exact loss of one input's units 1 and -1 above the least one, over the exact variance of y / 2."""
    targets, squares = centered(fractions(y)), centered([value**2 for value in fractions(x)])
    m = sum(sign * w**2 for sign, w in zip((1, -1), fractions(W)))
    above = (m * dot(squares, squares) - dot(squares, targets)) ** 2 / dot(squares, squares)
    return above / max(dot(targets, targets), Fraction(1, 10**300))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("off", [0.0, 1e-6, 1e-2])
def test_no_offset_makes_a_point_global(seed, off):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((16, 1)), rng.standard_normal(16) + 10.0 ** rng.uniform(9, 15)
    W = factorize(solve_convex(QuadraticProblem(x, y, INTERCEPT)).M, MIXED)[0] * (1.0 + off)
    certificate = landscape_certificate(W, MIXED, x, y, terms=INTERCEPT)
    assert certificate.is_global == (excess(x, y, W) <= Fraction(1e-10))
    assert certificate.is_global or off


@pytest.mark.parametrize("off", [0.0, 1e-7, 1e-2])
def test_targets_that_are_constant_plus_rounding(off):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal((12, 1)), 1e13 + np.spacing(1e13) * rng.integers(-2, 3, 12)
        W = factorize(solve_convex(QuadraticProblem(x, y, INTERCEPT)).M, MIXED)[0] + off
        certificate = landscape_certificate(W, MIXED, x, y, terms=INTERCEPT)
        assert certificate.is_global == (excess(x, y, W) <= Fraction(1e-10))


def test_constant_targets_leave_no_room():
    x, y = np.random.default_rng(0).standard_normal((12, 1)), np.full(12, 1e13)
    assert landscape_certificate(np.zeros((2, 1)), MIXED, x, y, terms=INTERCEPT).is_global
    assert not landscape_certificate([[1e-2], [0.0]], MIXED, x, y, terms=INTERCEPT).is_global


@pytest.mark.parametrize("terms", [BOTH, LossTerms(1e-3, True, True)])
def test_the_loss_does_not_depend_on_the_offset(terms):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((20, 2)), np.round(rng.standard_normal(20) * 2**10) / 2**10
    W, v = rng.standard_normal((4, 2)), np.repeat(MIXED, 2)
    far, near = QuadraticProblem(X, y + 2.0**42, terms), QuadraticProblem(X, y, terms)
    M = quadratic_form(W, v)
    assert far.value(M) == pytest.approx(near.value(M), rel=1e-12)
    assert far.side_terms(M)[1] == pytest.approx(near.side_terms(M)[1] + 2.0**42, rel=1e-15)
    assert far.rounding < 10 * near.rounding


def test_offsets_are_subtracted_exactly_or_not_at_all():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 4)) * 10.0 ** rng.uniform(-3, 3, 4) + [0.0, 1e5, -1e12, 7.0]
    X[:, 3] = 7.0
    offsets = exact_offsets(X)
    for column, offset in zip(X.T, offsets):
        assert fractions(column - offset) == [value - Fraction(offset) for value in fractions(column)]
    assert offsets[0] == 0.0 and offsets[3] == 7.0 and np.all(np.abs(offsets[1:3]) > 1e4)
    outlier = np.append(1e13 + rng.standard_normal(30), 1e-7)[:, None]
    assert exact_offsets(outlier)[0] == 0.0


def test_a_regressor_says_that_targets_are_rounding():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 2))
    y = 1e13 + np.spacing(1e13) * rng.integers(-2, 3, 40)
    with pytest.warns(UserWarning, match="y is constant up to rounding"):
        reg = QuadraticNetRegressor(alpha=0.1).fit(X, y)
    assert np.abs(reg.predict(X) - y).max() <= 4 * np.spacing(1e13)


def test_a_regressor_fits_behind_an_offset():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((60, 2))
    y = X[:, 0] * X[:, 1]
    reg = QuadraticNetRegressor().fit(X, y + 1e9)
    assert reg.certificate_.is_global
    np.testing.assert_allclose(reg.predict(X) - 1e9, y, atol=1e-6)
