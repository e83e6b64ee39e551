"""What certificates call proven against exact rational arithmetic, on data that double precision cannot tell apart."""

from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skident.landscape import CertificateOptions, LossTerms, landscape_certificate
from skident.landscape.bounded_sums import BoundedSums, normalized, precisions
from skident.landscape.convex_solver import solve_convex
from skident.landscape.descent import descend
from skident.landscape.dual_bounds import dual_bound, least_squares_bound, one_sign_bound, unpenalized_columns
from skident.landscape.exact_arithmetic import exact_least_loss, exact_order, independent_inputs, repeated_inputs_bound
from skident.landscape.lower_bounds import lower_bound
from skident.landscape.point_loss import point_loss
from skident.landscape.problem import QuadraticProblem
from skident.landscape.quadratic_form import BOTH_SIGNS, OutputSigns, factorize, quadratic_form

BOTH = {"fit_intercept": True, "fit_linear": True}
SIDES = [{}, {"fit_intercept": True}, {"fit_linear": True}, BOTH]


def mixed(d):
    return np.repeat([1.0, -1.0], d)


def data(seed, n=60, d=5):
    rng = np.random.RandomState(seed)
    return rng.standard_normal((n, d)), rng.standard_normal(n), rng


# -- exact arithmetic, the slow and obvious way ------------------------------------------------------------------------


def dot(a, b):
    return sum((x * y for x, y in zip(a, b)), Fraction(0))


def least_squares(columns, y, costs):
    """Minimum of ``||C t - y||^2 + sum_k costs_k t_k^2``; pivots of the Gram matrix that are zero change nothing."""
    G = [[dot(a, b) for b in [*columns, y]] for a in columns]
    for k, cost in enumerate(costs):
        G[k][k] += cost
    least = dot(y, y)
    for k in range(len(columns)):
        if G[k][k] != 0:
            least -= G[k][-1] ** 2 / G[k][k]
            rows = [[a - G[i][k] / G[k][k] * b for a, b in zip(G[i], G[k])] for i in range(k + 1, len(columns))]
            G[k + 1 :] = rows
    return least


def exact(X, y, terms, forms=True, outputs=None):
    """Least loss over all M, or the loss of given outputs of the form (without the ridge of M)."""
    rows, n, d = [[Fraction(a) for a in row] for row in X.tolist()], *X.shape
    targets = [Fraction(t) - o for t, o in zip(y.tolist(), outputs or [Fraction(0)] * n)]
    pairs = [(i, j) for i in range(d) for j in range(i, d)] if forms else []
    columns = [[row[i] * row[j] for row in rows] for i, j in pairs]
    costs = [n * Fraction(terms.alpha) / (1 if i == j else 2) for i, j in pairs]
    if terms.fit_linear:
        columns += [[row[j] for row in rows] for j in range(d)]
        costs += [n * Fraction(terms.alpha) / Fraction(terms.linear_weight)] * d
    if terms.fit_intercept:
        columns, costs = [*columns, [Fraction(1)] * n], [*costs, Fraction(0)]
    return least_squares(columns, targets, costs) / (2 * n)


def exact_loss(X, y, W, v, terms):
    W, v = [[Fraction(a) for a in w] for w in W.tolist()], [Fraction(a) for a in v.tolist()]
    outputs = [dot(v, [dot(w, [Fraction(a) for a in row]) ** 2 for w in W]) for row in X.tolist()]
    d = X.shape[1]
    M = [dot(v, [w[i] * w[j] for w in W]) for i in range(d) for j in range(d)]
    return exact(X, y, terms, False, outputs) + Fraction(terms.alpha) / 2 * dot(M, M)


# -- certificates ------------------------------------------------------------------------------------------------------


def test_a_direction_that_rounding_nearly_hides_is_not_dropped():
    x = np.array([-1.928954305712845, 0.4248095922518571, -0.34203385444827644])
    X = np.c_[x, [-1.9289543057128509, 0.4248095922518932, -0.34203385444823997]]
    y = np.array([0.1790112383296586, -0.6381895244812728, 0.4927857638298919])
    W = np.zeros((4, 2))
    W[0, 0] = np.sqrt((x**2 @ y) / (x**4).sum())
    v = np.array([1.0, 1, -1, -1])
    certificate = landscape_certificate(W, v, X, y)
    least = exact(X, y, LossTerms())
    assert certificate.loss == pytest.approx(0.109, abs=1e-3) and float(least) < 0.00056
    assert not certificate.is_global and Fraction(certificate.lower_bound) <= least


entries = st.floats(-3.0, 3.0, width=32, allow_subnormal=False)


@st.composite
def small_cases(draw):
    """Few rows, inputs nearly or exactly dependent, in any units, with any terms, output weights and hidden weights."""
    n, d = draw(st.integers(1, 5)), draw(st.integers(1, 2))
    rng = np.random.RandomState(draw(st.integers(0, 1000)))
    X = np.array(draw(st.lists(entries, min_size=n * d, max_size=n * d))).reshape(n, d)
    y = np.array(draw(st.lists(entries, min_size=n, max_size=n)))
    if d > 1:
        near = draw(st.sampled_from([0.0, 1e-15, 1e-12, 1e-9, 1e-6, 1.0]))
        X[:, -1] = X[:, 0] + near * rng.standard_normal(n)
    X, y = X * 10.0 ** draw(st.integers(-8, 8)), y * 10.0 ** draw(st.integers(-8, 8))
    alpha = draw(st.sampled_from([0.0, 1e-12, 0.1])) * float(np.abs(X).max()) ** 4
    terms = LossTerms(alpha, draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([1.0, 0.3])))
    v = np.repeat(draw(st.sampled_from([(1.0, -1.0), (1.0,), (-1.0,), (0.0,)])), d)
    W = factorize(solve_convex(QuadraticProblem(X, y, terms)).M, v)[0]
    return X, y, terms, v, W * draw(st.sampled_from([1.0, 0.0, 1.5]))


@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(small_cases())
def test_certificates_are_true_in_exact_arithmetic(case):
    X, y, terms, v, W = case
    certificate, problem = landscape_certificate(W, v, X, y, terms=terms), QuadraticProblem(X, y, terms)
    loss, bound = exact_loss(X, y, W, v, terms), Fraction(certificate.lower_bound)
    assert bound <= loss <= bound + Fraction(certificate.gap)
    if {1.0, -1.0} <= set(v):
        assert bound <= exact(X, y, terms)
    if not v.any():
        assert bound <= exact(X, y, terms, forms=False)
    if certificate.is_global:
        none = 1e-10 * problem.target_value + problem.rounding
        assert loss - bound <= Fraction(none) and certificate.gap <= none


@pytest.mark.parametrize("near", [1e-5, 1e-8, 1e-11, 1e-14])
@pytest.mark.parametrize("side", SIDES)
def test_large_units_that_cancel_are_judged_by_their_exact_loss(side, near):
    """Points of |M| up to 1e14 on collinear inputs, fitted in double precision."""
    X, y, rng = data(30, n=14, d=3)
    X[:, 2] = X[:, 0] + near * rng.standard_normal(14)
    terms, v = LossTerms(**side), mixed(3)
    W = factorize(solve_convex(QuadraticProblem(X, y, terms)).M, v)[0]
    certificate, least = landscape_certificate(W, v, X, y, terms=terms), exact(X, y, terms)
    loss = exact_loss(X, y, W, v, terms)
    assert certificate.loss == pytest.approx(float(loss), rel=1e-9)
    assert 0 <= least - Fraction(certificate.lower_bound) <= Fraction(1e-12)
    assert certificate.is_global == (loss - least <= Fraction(1e-10) * Fraction(np.var(y) / 2 if side else y @ y / 28))


def test_dependent_inputs_are_decided_where_integers_can():
    """One-hot columns, sums of others, repeated rows: ranks are proven, not guessed."""
    rng = np.random.RandomState(31)
    kinds = np.eye(4)[rng.randint(0, 4, 40)]
    X = np.column_stack([kinds, kinds @ [1, 2, 3, 4.0], rng.randint(-3, 4, 40)])
    y = rng.standard_normal(40)
    for side in SIDES:
        problem, v = QuadraticProblem(X, y, LossTerms(**side)), mixed(6)
        W = factorize(solve_convex(problem).M, v)[0]
        certificate = landscape_certificate(W, v, X, y, terms=LossTerms(**side))
        assert certificate.is_global, certificate.reason
        assert Fraction(certificate.lower_bound) <= exact(X, y, LossTerms(**side))
    assert len(independent_inputs(QuadraticProblem(X, y, LossTerms(**BOTH)))) == 4


@pytest.mark.parametrize("signs", [(1.0, -1.0), (1.0,), (-1.0,)])
def test_large_means_do_not_keep_a_point_from_its_proof(signs):
    X, y, _ = data(32)
    v, terms = np.repeat(signs, 5), LossTerms(**BOTH)
    W = descend(QuadraticProblem(X, y, terms), np.zeros((len(v), 5)), v).W
    found = landscape_certificate(W, v, X + 1e5, y + 1e6, terms=terms)
    assert found.is_global, found.reason


def test_beyond_the_reach_of_exact_arithmetic_the_reason_is_said():
    X, y, rng = data(33, n=400, d=23)
    X[:, 1] = X[:, 0] + 1e-12 * rng.standard_normal(400)
    problem = QuadraticProblem(X, y)
    W = factorize(solve_convex(problem).M, mixed(23))[0]
    found = lower_bound(
        problem, quadratic_form(W, mixed(23)), BOTH_SIGNS, loss=problem.value(quadratic_form(W, mixed(23)))
    )
    assert exact_order(problem) == (276, False) and found.value <= 1e-12
    assert "collinear to" in found.missing and "order 276 is too large" in found.missing
    X, y, rng = data(34, n=30, d=2)
    X[:, 1] = X[:, 0] + 1e-12 * rng.standard_normal(30)
    W = np.sqrt(np.maximum(np.linalg.lstsq(X[:, :1] ** 2, np.abs(y))[0], 0)) * np.eye(2)[:1]
    certificate = landscape_certificate(np.vstack([W, W * 0]), np.ones(2), X, np.abs(y))
    assert certificate.status != "global"
    few = landscape_certificate(W, np.ones(1), X, np.abs(y), options=CertificateOptions(max_dense=0))
    assert not few.is_global and few.lower_bound <= few.loss


def test_nothing_of_the_process_is_changed():
    X, y, _ = data(35, n=6, d=2)
    before = flint.ctx.prec
    landscape_certificate(1e6 * np.ones((4, 2)), mixed(2), X, y)
    exact_least_loss(QuadraticProblem(X, y))
    assert flint.ctx.prec == before


# -- the parts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("alpha", [0.0, 0.03])
def test_every_way_to_a_bound_stays_below_the_exact_minimum_and_comes_close(side, alpha):
    X, y, _ = data(36, n=25, d=3)
    terms = LossTerms(alpha, linear_weight=3.0, **side)
    problem, least = QuadraticProblem(X, y, terms), exact(X, y, terms)
    u = problem.residual(solve_convex(problem).M)
    bounds = [exact_least_loss(problem)]
    bounds += [dual_bound(problem, u, dtype=dtype) for dtype in (np.float64, np.longdouble)]
    bounds += [least_squares_bound(problem).bound] if alpha == 0 else []
    for bound in bounds:
        assert 0 <= least - Fraction(bound) <= Fraction(1e-11)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_bounds_of_one_sign_are_below_every_form_of_that_sign(side, sign):
    X, y, rng = data(37, n=25, d=3)
    terms, signs = LossTerms(**side), OutputSigns.of(np.array([sign]))
    problem = QuadraticProblem(X, y, terms)
    least = exact(X, y, terms)
    for _ in range(20):
        W = rng.standard_normal((3, 3)) * rng.choice([0.1, 0.5])
        bound = one_sign_bound(problem, quadratic_form(W, np.full(3, sign)), signs)
        assert Fraction(bound) <= exact_loss(X, y, W, np.full(3, sign), terms)
        assert Fraction(dual_bound(problem, problem.residual(quadratic_form(W, np.full(3, sign))), signs)) <= least + 1


@pytest.mark.parametrize("forms", [True, False])
def test_the_smallest_singular_value_is_bounded_from_below(forms):
    X, y, _ = data(38, n=80, d=4)
    for tilt in (1.0, 1e-2, 1e-3):
        X[:, 1] = X[:, 0] + tilt * X[:, 1]
        rows = BoundedSums(normalized(QuadraticProblem(X, y, LossTerms(**BOTH)))[0])
        free, Z = unpenalized_columns(rows, forms), rows.problem.X
        i, j = np.triu_indices(4)
        columns = [Z[:, i] * Z[:, j] * np.where(i == j, 1.0, np.sqrt(2.0))] * forms + [Z, np.ones((80, 1))]
        smallest = np.linalg.svd(np.hstack(columns), compute_uv=False)[-1]
        if free is not None:
            assert 0.1 * smallest <= free.smallest <= smallest
            assert free.remainder(free.without(rows.y)) <= 1e-10
    assert free is None or not forms


@pytest.mark.parametrize("size", [1.0, 1e5, 1e7])
def test_the_loss_at_a_point_is_bounded_from_above(size):
    """Two large units that nearly cancel."""
    X, y, rng = data(39, n=20, d=3)
    W = np.vstack([rng.standard_normal(3) * size] * 2)
    W[1] *= 1.0 + 1e-13
    v, terms = np.array([1.0, -1.0]), LossTerms(fit_intercept=True, fit_linear=True)
    loss = exact_loss(X, y, W, v, terms)
    for accuracy in (0.0, np.inf):
        found = point_loss(QuadraticProblem(X, y, terms), W, v, accuracy)
        assert loss <= Fraction(found.above)
    assert found.value == pytest.approx(float(loss), rel=1e-2)
    assert point_loss(QuadraticProblem(X, y, terms), W, v, 0.0).above == pytest.approx(float(loss), rel=1e-12)


def test_units_are_powers_of_two_and_large_means_are_taken_away_exactly():
    X, y, _ = data(40, n=30, d=3)
    X = X * [1e-7, 1.0, 1e6] + [0.0, 1e4, 0.0]
    problem, exponents, y_exponent = normalized(QuadraticProblem(X, 1e-9 * y, LossTerms(**BOTH)))
    back = np.ldexp(problem.X, exponents)
    assert np.array_equal(back[:, [0, 2]], X[:, [0, 2]]) and np.array_equal(np.ldexp(problem.y, y_exponent), 1e-9 * y)
    shifts = {Fraction(a) - Fraction(b) for a, b in zip(X[:, 1].tolist(), back[:, 1].tolist())}
    assert len(shifts) == 1 and abs(back[:, 1].mean()) < 10
    assert normalized(QuadraticProblem(np.array([[1e-320], [1e300]]), y[:2]))[0] is None
    assert np.float64 in precisions(QuadraticProblem(np.zeros((10**5, 20)), np.zeros(10**5)))


def test_repeated_rows_bound_the_loss_by_the_spread_of_their_targets():
    X, y, _ = data(41, n=4, d=3)
    problem = QuadraticProblem(np.vstack([X, -0.0 * X, 0.0 * X]), np.concatenate([y, y, y + 1]))
    bound, n_distinct = repeated_inputs_bound(problem)
    spread = Fraction(0)
    targets = [Fraction(t) for t in problem.y.tolist()[4:]]
    spread = dot(targets, targets) - sum(targets) ** 2 / 8
    assert n_distinct == 5 and 0 <= spread / 24 - Fraction(bound) < Fraction(1e-15)
