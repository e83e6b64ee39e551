"""The convex and the descending solver of quadratic networks, the choice of ridge, and batches of shallow networks."""

from dataclasses import replace

import numpy as np
import pytest

from skident.landscape.convex_solver import solve_convex
from skident.landscape.descent import block_escape, descend
from skident.landscape.loss_lines import loss_quartic
from skident.landscape.phase_transitions import TRAINING, train_shallow_batch
from skident.landscape.problem import LossTerms, QuadraticProblem
from skident.landscape.quadratic_form import factorize
from skident.landscape.ridge_selection import leave_one_out_ridge
from skident.linalg import svec_outer
from skident.network import get_activation

SIDES = [{}, {"fit_intercept": True}, {"fit_linear": True}, {"fit_intercept": True, "fit_linear": True}]


def data(seed, n, d):
    rng = np.random.RandomState(seed)
    return rng.standard_normal((n, d)), rng.standard_normal(n), rng


def mixed(d):
    return np.repeat([1.0, -1.0], d)


def reference_ridge(X, y, alpha=0.0, fit_intercept=False, fit_linear=False, linear_weight=1.0):
    """Smallest loss, by stacking all columns and their penalties into one least squares problem."""
    n, columns, penalties = len(X), [svec_outer(X)], [np.full(X.shape[1] * (X.shape[1] + 1) // 2, alpha)]
    if fit_linear:
        columns, penalties = [*columns, X], [*penalties, np.full(X.shape[1], alpha / linear_weight)]
    if fit_intercept:
        columns, penalties = [*columns, np.ones((n, 1))], [*penalties, [0.0]]
    A = np.vstack([np.hstack(columns) / np.sqrt(n), np.diag(np.sqrt(np.concatenate(penalties)))])
    b = np.concatenate([y / np.sqrt(n), np.zeros(A.shape[1])])
    return 0.5 * np.sum((A @ np.linalg.lstsq(A, b, rcond=None)[0] - b) ** 2)


@pytest.mark.parametrize("options", SIDES)
@pytest.mark.parametrize("alpha", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("n", [12, 100])  # fewer rows than the 15 unknowns, by enough to be well conditioned
def test_convex_solver_against_stacked_least_squares(options, alpha, n):
    X, y, _ = data(1, n, 5)
    X = X + 0.5  # an intercept is not the mean then
    problem = QuadraticProblem(X, y, LossTerms(alpha=alpha, linear_weight=7.0, **options))
    solution = solve_convex(problem)
    assert solution.method == ("kernel" if n == 12 else "gram")
    reference = reference_ridge(X, y, alpha, linear_weight=7.0, **options)
    assert solution.value == pytest.approx(reference, rel=1e-10, abs=1e-24)
    assert np.linalg.norm(problem.value_and_gradient(solution.M)[1]) < 1e-11


def test_single_precision_factors_cost_no_digits():
    # 1600 rows, 1830 unknowns: the kernel is factorized in single precision.
    X, y, _ = data(1, 1600, 60)
    problem = QuadraticProblem(X, y)
    solution = solve_convex(problem)
    assert solution.value <= 1e-20 and solution.rank_is_certain


def test_linearly_dependent_features_go_to_the_svd():
    X, y, _ = data(2, 60, 4)
    X = np.column_stack([X, X[:, 0] + X[:, 1]])
    solution = solve_convex(QuadraticProblem(X, y))
    assert solution.method == "svd"
    assert solution.value == pytest.approx(solve_convex(QuadraticProblem(X[:, :4], y)).value, rel=1e-12)


@pytest.mark.parametrize("signs", [(3, 3), (5, 0), (0, 5), (1, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_factors_keep_what_their_signs_allow(seed, signs):
    rng = np.random.RandomState(seed)
    M = rng.standard_normal((5, 5))
    M = M + M.T
    v = np.concatenate([rng.uniform(0.1, 3, signs[0]), [0.0], -rng.uniform(0.1, 3, signs[1])])
    W, lost = factorize(M, v)
    values = np.linalg.eigvalsh(M)
    left = np.concatenate([values[values > 0][::-1][signs[0] :], values[values < 0][signs[1] :]])
    assert lost == pytest.approx(np.linalg.norm(left), abs=1e-12)
    assert np.linalg.norm(M - W.T @ (v[:, None] * W)) == pytest.approx(lost, abs=1e-12)
    assert not W[v == 0].any()


# -- descent -----------------------------------------------------------------------------------------------------------


def saddle_of_rank(problem, rank, rng):
    """A stationary point at which all but `rank` positive and `rank` negative units are zero."""
    d, W = problem.d, np.zeros((2 * problem.d, problem.d))
    few = np.repeat([1.0, -1.0], rank)
    found = descend(problem, rng.standard_normal((2 * rank, d)) / np.sqrt(d), few, max_escapes=0).W
    W[:rank], W[d : d + rank] = found[:rank], found[rank:]
    return W


@pytest.mark.parametrize("n", [30, 100])
def test_descent_leaves_zero_and_rank_deficient_saddles(n):
    for seed in range(5):
        X, y, rng = data(9200 + seed, n, 8)
        problem = QuadraticProblem(X, y)
        best = solve_convex(problem).value
        for W in (np.zeros((16, 8)), saddle_of_rank(problem, 2, rng), 1e-8 * rng.standard_normal((16, 8))):
            found = descend(problem, W, mixed(8))
            assert found.status == "converged" and found.value - best <= 1e-13
            assert found.history[-1] == found.value and found.history[0] == problem.value(W.T @ (mixed(8)[:, None] * W))


def test_histories_do_not_rise():
    X, y, rng = data(4, 100, 8)
    found = descend(QuadraticProblem(X, y, LossTerms(alpha=0.01)), rng.standard_normal((16, 8)), mixed(8))
    assert np.all(np.diff(found.history) <= 1e-12 * np.array(found.history[:-1]))
    assert found.n_iter + 1 >= len(found.history)


def test_ill_conditioned_data_are_finished_in_the_convex_space():
    # 3 rows fewer than unknowns: L-BFGS alone does not get there in any time.
    X, y, _ = data(5, 207, 20)
    found = descend(QuadraticProblem(X, y), np.zeros((40, 20)), mixed(20))
    assert found.status == "converged" and found.value <= 1e-20


def test_one_line_is_a_quartic():
    X, y, rng = data(6, 30, 4)
    problem = QuadraticProblem(X, y, LossTerms(alpha=0.2, fit_linear=True))
    W, U, v = rng.standard_normal((5, 4)), rng.standard_normal((5, 4)), rng.uniform(-1, 1, 5)
    c = loss_quartic(problem, W, v, U)
    for t in (-1.3, 0.2, 2.0):
        W_t = W + t * U
        assert np.polyval(c[::-1], t) == pytest.approx(problem.value(W_t.T @ (v[:, None] * W_t)), rel=1e-12)


def test_a_block_escape_has_no_slope_and_negative_curvature():
    X, y, _ = data(7, 60, 5)
    problem = QuadraticProblem(X, y)
    W, v = np.zeros((10, 5)), mixed(5)
    W[0, 0] = 1.0
    gradient = problem.value_and_gradient(W.T @ (v[:, None] * W))[1]
    direction = block_escape(W, v, gradient)
    assert np.abs(W.T @ (v[:, None] * direction)).max() < 1e-12
    assert loss_quartic(problem, W, v, direction)[2] < 0
    assert block_escape(np.vstack([np.eye(5), np.eye(5)]), v, gradient) is None  # no unit is free


def test_bounds_on_steps_are_kept():
    X, y, rng = data(8, 100, 8)
    found = descend(QuadraticProblem(X, y), rng.standard_normal((16, 8)), mixed(8), max_iter=3)
    assert found.status == "max_iter" and found.n_iter <= 3


# -- ridge -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [12, 60])
def test_leave_one_out_errors_are_those_of_leaving_one_out(n):
    X, y, _ = data(9, n, 3)
    y = y + 2.0 * X[:, 0] * X[:, 1] * (n == 60)
    alphas = [1e-4, 1e-2, 1.0, 100.0]
    options = {"fit_intercept": True, "fit_linear": True, "linear_weight": 10.0}
    choice = leave_one_out_ridge(
        QuadraticProblem(X, y, LossTerms(**options)), np.random.RandomState(0), alphas=alphas, linear_weights=(10.0,)
    )
    X = X / choice.scales
    errors = []
    for alpha in alphas:
        left_out = []
        for i in range(n):
            rest = np.arange(n) != i
            # The formula keeps the sums' normalization by n.
            problem = QuadraticProblem(X[rest], y[rest], LossTerms(alpha=alpha * n / (n - 1), **options))
            M = solve_convex(problem).M
            b, c = problem.side_terms(M)
            left_out.append((X[i] @ M @ X[i] + b @ X[i] + c - y[i]) ** 2)
        errors.append(np.mean(left_out))
    assert choice.linear_weight == 10.0 and choice.alpha == pytest.approx(alphas[int(np.argmin(errors))])
    # On a dozen rows of noise it is the constant, of which the largest ridge leaves a little.
    np.testing.assert_allclose(choice.squares.mean(), min(errors), rtol=1e-6 if n == 60 else 0.1)


def test_no_ridge_for_data_without_noise():
    X, _, rng = data(10, 60, 4)
    exact = (X[:, 0] - X[:, 1]) ** 2 + X[:, 2]
    options = {"fit_intercept": True, "fit_linear": True}
    assert leave_one_out_ridge(QuadraticProblem(X, exact, LossTerms(**options)), rng).alpha == 0.0
    noisy = exact + 0.1 * rng.standard_normal(60)
    assert leave_one_out_ridge(QuadraticProblem(X, noisy, LossTerms(**options)), rng).alpha > 0.0


def test_inputs_that_do_not_matter_are_penalised_more():
    X, _, rng = data(11, 100, 10)
    y = X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(100)
    terms = LossTerms(fit_intercept=True, fit_linear=True)
    choice = leave_one_out_ridge(QuadraticProblem(X, y, terms), rng)
    assert choice.scales[:2].max() < 1.5 and choice.scales[2:].min() > 2.0
    assert choice.squares.mean() < 0.5 * choice.linear_squares.mean()


def test_noise_has_no_model():
    X, _, rng = data(12, 60, 3)
    choice = leave_one_out_ridge(
        QuadraticProblem(X, rng.standard_normal(60), LossTerms(fit_intercept=True, fit_linear=True)), rng
    )
    assert choice.alpha == 1000.0 and np.all(choice.scales == 1.0)


# -- batches -----------------------------------------------------------------------------------------------------------


def test_a_batch_is_its_networks_one_by_one():
    rng = np.random.RandomState(11)
    X, y = rng.standard_normal((2, 30, 4)), rng.standard_normal((2, 30))
    W, v = rng.standard_normal((4, 3, 4)), rng.standard_normal((4, 3))
    jet = get_activation("softplus").jet
    together = train_shallow_batch(X, y, W, v, jet, data=[0, 0, 1, 1], ending=replace(TRAINING, max_iter=15))
    for i in range(4):
        alone = train_shallow_batch(
            X[[i // 2]], y[[i // 2]], W[[i]], v[[i]], jet, ending=replace(TRAINING, max_iter=15)
        )
        assert np.allclose(alone.x[0], together.x[i], rtol=1e-8)
        assert alone.cost[0] == pytest.approx(together.cost[i])
    network = jet(np.einsum("bnd,bkd->bnk", X[[0, 0, 1, 1]], together.x[..., :-1]), 0)[0]
    residual = np.einsum("bnk,bk->bn", network, together.x[..., -1]) - y[[0, 0, 1, 1]]
    assert together.cost == pytest.approx(0.5 * np.mean(residual**2, axis=1))
    assert np.all(np.diff(together.history, axis=0) <= 0)


def test_a_batch_reaches_zero_and_can_leave_outputs_alone():
    rng = np.random.RandomState(12)
    X, v = rng.standard_normal((1, 20, 8)), np.tile([1.0, -1.0], (5, 4))
    W, y = rng.standard_normal((5, 8, 8)), rng.standard_normal((1, 20))
    jet = get_activation("quadratic").jet
    options = {"train_output": False, "ending": replace(TRAINING, target=1e-20)}
    batch = train_shallow_batch(X, y, W, v, jet, data=np.zeros(5, dtype=int), **options)
    assert np.all(batch.cost <= 1e-20) and np.array_equal(batch.x[..., -1], v) and batch.n_iter.max() < 50
