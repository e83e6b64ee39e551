"""Landscape certificates of quadratic networks: derivatives, saddles, lower bounds, and points meant to fool them."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from skident.landscape import CertificateOptions, LossTerms, landscape_certificate
from skident.landscape.convex_solver import solve_convex
from skident.landscape.curvature import form_hessian_product, loss_derivatives, shallow_hessian_product
from skident.landscape.descent import descend
from skident.landscape.dual_bounds import dual_bound
from skident.landscape.loss_lines import loss_line, loss_quartic, quartic_minimum
from skident.landscape.problem import QuadraticProblem
from skident.landscape.quadratic_form import OutputSigns, factorize
from skident.linalg.lanczos import lanczos
from skident.network import FeedforwardNetwork, get_activation

SIDES = [{}, {"fit_intercept": True}, {"fit_linear": True}, {"fit_intercept": True, "fit_linear": True}]


def mixed(d):
    return np.repeat([1.0, -1.0], d)


def data(seed, n=80, d=6):
    rng = np.random.RandomState(seed)
    return rng.standard_normal((n, d)), rng.standard_normal(n), rng


def loss_of(problem, W, v):
    return problem.value(W.T @ (v[:, None] * W))


def hessian(product, shape):
    """The matrix, column by column."""
    eye = np.eye(int(np.prod(shape)))
    return np.stack([product(e.reshape(shape)).ravel() for e in eye], axis=1)


# -- derivatives -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("options", SIDES)
def test_quadratic_derivatives_are_those_of_finite_differences(alpha, options):
    X, y, rng = data(1, n=30, d=4)
    problem = QuadraticProblem(X, y, LossTerms(alpha=alpha, linear_weight=3.0, **options))
    W, v, U = rng.standard_normal((5, 4)), rng.uniform(-2, 2, 5), rng.standard_normal((5, 4))
    gradient = problem.value_and_gradient(W.T @ (v[:, None] * W))[1]
    slope = 2.0 * v[:, None] * (W @ gradient)

    def slope_at(t):
        W_t = W + t * U
        return 2.0 * v[:, None] * (W_t @ problem.value_and_gradient(W_t.T @ (v[:, None] * W_t))[1])

    h = 1e-5
    difference = (loss_of(problem, W + h * U, v) - loss_of(problem, W - h * U, v)) / (2 * h)
    assert np.sum(slope * U) == pytest.approx(difference, rel=1e-6)
    product = form_hessian_product(problem, W, v, gradient, U)
    differences = (slope_at(h) - slope_at(-h)) / (2 * h)
    assert np.linalg.norm(product - differences) <= 1e-6 * np.linalg.norm(differences)


def test_the_second_coefficient_of_equation_6_4_is_four_over_n():
    X, y, rng = data(2, n=40, d=3)
    W, v, U = rng.standard_normal((4, 3)), np.array([1.0, 1, -1, 2]), rng.standard_normal((4, 3))
    problem = QuadraticProblem(X, y)
    M = W.T @ (v[:, None] * W)
    r = problem.residual(M)
    bent = 2 / 40 * np.sum(r * problem.forms(U.T @ (v[:, None] * U)))
    along = np.sum(np.einsum("ij,ij->i", X @ (W.T @ (v[:, None] * U)), X) ** 2) / 40
    second = 2 * loss_quartic(problem, W, v, U)[2]
    assert second == pytest.approx(bent + 4 * along, rel=1e-10)
    assert abs(second - (bent + 2 * along)) > 0.1 * abs(second)  # as printed


@pytest.mark.parametrize("name", ["softplus", "tanh", "quadratic"])
def test_general_derivatives_are_those_of_finite_differences(name):
    X, y, rng = data(3, n=30, d=4)
    g = get_activation(name)
    W, v, U = rng.standard_normal((5, 4)), rng.uniform(-2, 2, 5), rng.standard_normal((5, 4))
    _, slope, slopes, bends = loss_derivatives(W, v, X, y, g.jet)
    h = 1e-5
    up, down = (loss_derivatives(W + t * U, v, X, y, g.jet) for t in (h, -h))
    assert np.sum(slope * U) == pytest.approx((up[0] - down[0]) / (2 * h), rel=1e-6)
    product = shallow_hessian_product(X, slopes, bends, U)
    assert np.linalg.norm(product - (up[1] - down[1]) / (2 * h)) <= 1e-6 * np.linalg.norm(product)


def test_lanczos_finds_the_smallest_eigenvalue_or_says_that_it_did_not():
    rng = np.random.RandomState(4)
    A = rng.standard_normal((300, 300))
    A = A + A.T
    smallest = np.linalg.eigvalsh(A)[0]
    value, vector, n_products, converged = lanczos(lambda u: A @ u, (300,), [np.ones(300)], 200)
    assert converged and n_products < 200 and value == pytest.approx(smallest, rel=1e-8)
    assert vector @ A @ vector == pytest.approx(value, rel=1e-10)
    value, _, n_products, converged = lanczos(lambda u: A @ u, (300,), [np.ones(300)], 5)
    assert not converged and n_products == 5 and value > smallest


# -- saddles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rank", [0, 2])
def test_at_rank_deficient_saddles_the_explicit_curvature_is_the_smallest_eigenvalue(seed, rank):
    X, y, rng = data(seed, d=4)
    v, W = mixed(4), np.zeros((8, 4))
    problem = QuadraticProblem(X, y)
    # A stationary point of the network with `rank` positive units only.
    W[:rank] = descend(problem, rng.standard_normal((rank, 4)), np.ones(rank), max_escapes=0).W if rank else 0.0
    certificate = landscape_certificate(W, v, X, y)
    assert certificate.status == "saddle" and not certificate.is_global
    gradient = problem.value_and_gradient(W.T @ (v[:, None] * W))[1]

    def product(U):
        return form_hessian_product(problem, W, v, gradient, U)

    smallest = np.linalg.eigvalsh(hessian(product, (8, 4)))[0]
    # Output weights 1 and -1: curvature, bound and eigenvalue are one number.
    assert certificate.curvature == pytest.approx(smallest, rel=1e-6)
    assert certificate.curvature_bound == pytest.approx(smallest, rel=1e-6)
    U = certificate.escape_direction
    assert np.linalg.norm(U) == pytest.approx(1.0)
    assert loss_of(problem, W + 1e-3 * U, v) < loss_of(problem, W, v)


def test_curvature_with_unequal_output_weights_is_the_smallest_eigenvalue_too():
    X, y, rng = data(10, d=4)
    W, v = 0.3 * rng.standard_normal((6, 4)), np.array([3.0, 0.5, 1, -1, -0.2, 0])
    problem = QuadraticProblem(X, y, LossTerms(alpha=0.1))
    certificate = landscape_certificate(W, v, X, y, terms=LossTerms(alpha=0.1))
    gradient = problem.value_and_gradient(W.T @ (v[:, None] * W))[1]
    smallest = np.linalg.eigvalsh(hessian(lambda U: form_hessian_product(problem, W, v, gradient, U), (6, 4)))[0]
    assert certificate.curvature_converged
    assert certificate.curvature == pytest.approx(smallest, rel=1e-6)
    assert certificate.curvature_bound <= smallest * (1 - 1e-12)


def test_a_tiny_gradient_does_not_make_an_optimum():
    X, y, rng = data(5)
    for size in (1e-12, 1e-9, 1e-6):
        certificate = landscape_certificate(size * rng.standard_normal((12, 6)), mixed(6), X, y)
        assert not certificate.is_global and certificate.status in ("saddle", "not stationary")
        assert certificate.curvature < -0.1 and certificate.gap > 0.05


# -- global optima and what looks like them ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", SIDES)
@pytest.mark.parametrize("alpha", [0.0, 1e-8, 0.1])
@pytest.mark.parametrize("signs", [(1, -1), (1,), (-1,)])
def test_descent_ends_at_certified_optima(options, alpha, signs):
    X, y, _ = data(6, n=60, d=5)
    v = np.repeat(np.array(signs, dtype=float), 5)
    problem = QuadraticProblem(X, y, LossTerms(alpha=alpha, linear_weight=10.0, **options))
    found = descend(problem, np.zeros((len(v), 5)), v)
    certificate = landscape_certificate(found.W, v, X, y, terms=LossTerms(alpha=alpha, linear_weight=10.0, **options))
    assert found.status == "converged"
    assert certificate.status == "global", certificate.reason
    # A bound is a bound: no M of these signs, here factors drawn at random and shrunk to fit, is below it.
    rng = np.random.RandomState(0)
    for scale in (0.03, 0.1, 0.3):
        W = found.W + scale * rng.standard_normal(found.W.shape)
        assert loss_of(problem, W, v) >= certificate.lower_bound


@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_dual_bounds_hold_for_any_vector(alpha):
    X, y, rng = data(7, n=12, d=3)
    problem = QuadraticProblem(X, y, LossTerms(alpha=alpha))
    lowest = descend(problem, np.zeros((3, 3)), np.ones(3)).value
    for _ in range(50):
        u = rng.standard_normal(12) - 0.5 * y
        if alpha == 0:  # feasible only if R_u is positive semidefinite
            u += max(0.0, -np.linalg.eigvalsh(np.linalg.solve(X.T @ X / 12, problem.adjoint(u)).T)[0]) * 3.0
            if np.linalg.eigvalsh(problem.adjoint(u))[0] < 0:
                continue
        assert dual_bound(problem, u, OutputSigns(minus=False)) <= lowest + 1e-12


def test_one_input_against_nonnegative_least_squares():
    # d = 1 and one sign: y ~ m x^2 with m >= 0, which nnls solves.
    rng = np.random.RandomState(8)
    x = rng.standard_normal(20)
    for sign in (1.0, -1.0):
        y = 0.5 * x**2 + rng.standard_normal(20)
        m, rnorm = nnls((sign * x**2)[:, None], y)
        certificate = landscape_certificate([[np.sqrt(m[0])]], [sign], x[:, None], y)
        assert certificate.is_global
        assert certificate.lower_bound == pytest.approx(rnorm**2 / 40, rel=1e-9)


def worse_than_best(W, v, X, y, best, **options):
    certificate = landscape_certificate(W, v, X, y, terms=LossTerms(**options))
    assert not certificate.is_global
    # Differences of 1e-9 are known to 1e-7: that is how well the data determine the best loss.
    assert certificate.lower_bound <= best * (1 + 1e-6)
    return certificate


def test_an_input_in_tiny_units_is_not_overlooked():
    X, y, _ = data(10)
    X = X * np.array([1, 1e-7, 1e5, 1, 1e-3, 1])
    rest = [0, 2, 3, 4, 5]
    M = np.zeros((6, 6))
    M[np.ix_(rest, rest)] = solve_convex(QuadraticProblem(X[:, rest], y)).M
    best = solve_convex(QuadraticProblem(X / X.std(axis=0), y)).value
    worse_than_best(factorize(M, mixed(6))[0], mixed(6), X, y, best)


def test_a_nearly_dependent_input_is_not_taken_for_rounding():
    X, y, rng = data(11)
    z = rng.standard_normal(80)
    wide, y = np.column_stack([X, X[:, 0] + 1e-9 * z]), y + 3.0 * X[:, 1] * z
    M = np.zeros((7, 7))
    M[:6, :6] = solve_convex(QuadraticProblem(X, y)).M  # blind to z
    best = solve_convex(QuadraticProblem(np.column_stack([X, z]), y)).value
    worse_than_best(factorize(M, mixed(7))[0], mixed(7), wide, y, best)


def test_nearly_binary_inputs_are_not_taken_for_binary():
    # Of binary inputs all squares are 1; differences of 1e-9 make them regressors of their own.
    X, y, rng = data(12)
    M = solve_convex(QuadraticProblem(np.sign(X), y)).M
    W = factorize(M, mixed(6))[0]
    assert landscape_certificate(W, mixed(6), np.sign(X), y).is_global
    Z = rng.standard_normal(X.shape)
    products = [np.sign(X[:, i] * X[:, j]) for i in range(6) for j in range(i)]
    # Six squares 1 + 2e-9 s_i z_i span 1 and five differences, to 1e-9.
    tilts = np.sign(X) * Z
    P = np.column_stack([np.ones(80), tilts[:, 1:] - tilts[:, :1], *products])
    best = np.sum((y - P @ np.linalg.lstsq(P, y, rcond=None)[0]) ** 2) / 160
    worse_than_best(W, mixed(6), np.sign(X) + 1e-9 * Z, y, best)


def test_ridge_optima_are_not_optima_without_ridge():
    X, y, _ = data(13)
    W = factorize(solve_convex(QuadraticProblem(X, y, LossTerms(alpha=0.1))).M, mixed(6))[0]
    assert landscape_certificate(W, mixed(6), X, y, terms=LossTerms(alpha=0.1)).is_global
    best = solve_convex(QuadraticProblem(X, y)).value
    assert worse_than_best(W, mixed(6), X, y, best).status == "not stationary"
    worse_than_best(W, mixed(6), X, y, 1.0, alpha=0.05)


@pytest.mark.parametrize("repeats", [2, 5])
def test_repeated_rows_change_nothing(repeats):
    X, y, _ = data(14, n=12, d=4)
    once, often = (QuadraticProblem(np.tile(X, (r, 1)), np.tile(y, r), LossTerms(alpha=0.1)) for r in (1, repeats))
    assert solve_convex(often).value == pytest.approx(solve_convex(once).value, rel=1e-12)
    # The same inputs with other labels: no form fits both, and the kernel is singular.
    X, y = np.tile(X[:4], (2, 1)), np.concatenate([y[:4], -y[:4]])
    found = descend(QuadraticProblem(X, y), np.zeros((8, 4)), mixed(4))
    certificate = landscape_certificate(found.W, mixed(4), X, y)
    assert certificate.is_global and certificate.loss == pytest.approx(0.5 * np.mean(y**2))


def test_dead_units_and_zero_output_weights():
    X, y, rng = data(15, d=4)
    found = descend(QuadraticProblem(X, y), np.zeros((8, 4)), mixed(4))
    W, v = np.vstack([found.W, np.zeros((3, 4)), rng.standard_normal((2, 4))]), np.append(mixed(4), [1, 2, -3, 0, 0])
    certificate = landscape_certificate(W, v, X, y)
    assert certificate.is_global and certificate.loss == pytest.approx(found.value)
    # The same units against a target that they cannot serve with the signs they have.
    positive = landscape_certificate(np.zeros((8, 4)), np.repeat([1.0, 0.0], 4), X, -(X[:, 0] ** 2))
    assert positive.is_global and positive.lower_bound == pytest.approx(positive.loss)


@pytest.mark.parametrize("side", [{}, {"fit_intercept": True, "fit_linear": True}])
@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.ones((1, 3)), np.array([2.0])),
        (np.ones((5, 3)), np.arange(5.0)),
        (np.zeros((5, 3)), np.arange(5.0)),
        (np.column_stack([np.ones(9), np.arange(9.0), np.full(9, 1e8)]), np.arange(9.0) % 4),
        (np.random.RandomState(0).standard_normal((9, 3)), np.full(9, 7.0)),
        (np.random.RandomState(0).standard_normal((9, 3)), np.zeros(9)),
    ],
    ids=["one row", "constant inputs", "no inputs", "constant columns", "constant target", "zero target"],
)
def test_degenerate_data(X, y, side):
    problem = QuadraticProblem(X, y, LossTerms(**side))
    best = solve_convex(problem)
    certificate = landscape_certificate(factorize(best.M, mixed(3))[0], mixed(3), X, y, terms=LossTerms(**side))
    assert certificate.gap >= 0 and certificate.lower_bound <= best.value * (1 + 1e-9) + problem.rounding
    assert certificate.status in ("global", "undecided")
    assert np.isfinite([certificate.gradient_norm, certificate.curvature, certificate.residual_norm]).all()
    if X.max() <= 10:  # columns of 1e8 leave rounding of the squares in every loss
        assert certificate.is_global


def test_too_few_units_are_undecided_with_the_reason():
    X, y, _ = data(16)
    for v, target in ((np.array([1.0, 1, -1]), y), (np.ones(3), np.sum(X**2, axis=1))):
        found = descend(QuadraticProblem(X, target), np.zeros((3, 6)), v)
        certificate = landscape_certificate(found.W, v, X, target)
        assert found.status in ("stuck", "converged")
        assert certificate.status == "undecided" and "needs d = 6" in certificate.reason
    # Unless the point is good enough for a proof: three units planted, three trained.
    y = np.sum((X @ np.eye(6)[:3].T) ** 2, axis=1)
    assert landscape_certificate(np.eye(6)[:3], np.ones(3), X, y).is_global


def test_without_dense_matrices_a_positive_loss_is_undecided():
    X, y, _ = data(17)
    found = descend(QuadraticProblem(X, y), np.zeros((12, 6)), mixed(6))
    certificate = landscape_certificate(found.W, mixed(6), X, y, options=CertificateOptions(max_dense=10))
    assert certificate.status == "undecided" and "max_dense" in certificate.reason
    assert certificate.deterministic_bound(100.0) < 1e-6  # still says how little a network of bounded size can gain


def test_the_certificate_knows_which_loss_it_is_about():
    """The line out of the point is that of the certified loss, ridge and terms included."""
    X, y, rng = data(23, n=40, d=3)
    terms, v, W = LossTerms(alpha=0.1, fit_intercept=True), mixed(3), np.zeros((6, 3))
    certificate = landscape_certificate(W, v, X, y, terms=terms)
    assert certificate.terms == terms
    problem, out = QuadraticProblem(X, y, terms), loss_line(certificate, W, X, y, radius=0.7)
    assert out.direction == "escape direction" and out.steps[-1] == 0.7
    for t, loss in zip(out.steps[::25], out.losses[::25]):
        assert loss == pytest.approx(loss_of(problem, W + t * certificate.escape_direction, v), rel=1e-12)
    # None reaches twice as far as the lowest point, which is then half way.
    c = loss_quartic(problem, W, v, certificate.escape_direction)
    t, lowest = quartic_minimum(c)
    assert loss_line(certificate, W, X, y).steps[-1] == pytest.approx(2 * abs(t))
    assert lowest == pytest.approx(out.losses.min(), rel=1e-2) and lowest <= np.polyval(c[::-1], out.steps).min()


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_both_bounds_of_approximate_minima_hold_and_the_deterministic_one_is_tighter(seed):
    d, n = 10, 60
    rng = np.random.RandomState(100 + seed)
    X, true = rng.standard_normal((n, d)), rng.standard_normal((d + 2, d)) / np.sqrt(d)
    y, v = np.sum((X @ true.T) ** 2, axis=1), np.ones(d + 2)
    nuclear = np.sum(true**2)
    problem = QuadraticProblem(X, y)
    for steps in (1, 5, 20, 60):
        W = descend(problem, rng.standard_normal((d + 2, d)) / np.sqrt(d), v, max_iter=steps).W
        certificate = landscape_certificate(W, v, X, y)
        tight = certificate.deterministic_bound(nuclear, planted=True)
        assert certificate.loss <= tight * (1 + 1e-9) + 1e-14
        assert tight <= certificate.theorem_bound(nuclear) + 1e-14
        assert certificate.loss <= certificate.deterministic_bound(nuclear) + 1e-14


def test_bounds_that_do_not_apply_say_so():
    X, y, rng = data(18)
    W = rng.standard_normal((3, 6))
    with pytest.raises(ValueError, match="all equal.*Use deterministic_bound"):
        landscape_certificate(W, [1.0, 1.0, -1.0], X, y).theorem_bound(1.0)
    with pytest.raises(ValueError, match="about quadratic units"):
        landscape_certificate(W, np.ones(3), X, y, activation=get_activation("tanh")).deterministic_bound(1.0)


# -- other activations and foreign networks ----------------------------------------------------------------------------


def test_other_activations_are_never_called_global():
    X, y, rng = data(19, n=40, d=3)
    g = get_activation("tanh")
    W, v = rng.standard_normal((4, 3)), np.ones(4)
    exact = g(X @ W.T) @ v
    certificate = landscape_certificate(W, v, X, exact, activation=g)
    assert certificate.loss < 1e-30 and certificate.status == "undecided" and not certificate.is_global
    assert "nothing is claimed" in certificate.reason
    flat = landscape_certificate(np.zeros((4, 3)), v, X, X[:, 0] ** 2, activation=get_activation("softplus"))
    assert flat.status == "not stationary"
    # y orthogonal to everything first order at W = 0: a saddle for softplus, whose units bend there.
    both = np.vstack([X, -X])
    target = 4 * np.log(2) + both[:, 0] ** 2 - both[:, 1] ** 2
    saddle = landscape_certificate(np.zeros((4, 3)), v, both, target, activation=get_activation("softplus"))
    assert saddle.status == "saddle" and saddle.curvature < -0.05 and saddle.curvature_converged
    assert saddle.curvature_bound <= saddle.curvature


def test_a_torch_network_and_its_numbers_agree():
    X, y, rng = data(20, n=40, d=3)
    W = torch.nn.Parameter(torch.as_tensor(rng.standard_normal((4, 3))))
    v = torch.tensor([1.0, -1.0, 2.0, -0.5], dtype=torch.float64)
    loss = 0.5 * torch.mean(((torch.as_tensor(X) @ W.T) ** 2 @ v - torch.as_tensor(y)) ** 2)
    loss.backward()
    certificate = landscape_certificate(W, v, X, y)
    assert certificate.loss == pytest.approx(loss.item(), rel=1e-12)
    assert certificate.gradient_norm == pytest.approx(float(W.grad.norm()), rel=1e-12)


def test_a_network_with_biases_is_one_with_a_constant_input():
    X, y, rng = data(21, n=40, d=3)
    weights, biases = [rng.standard_normal((3, 4)), np.ones((4, 1))], [rng.standard_normal(4), [0.0]]
    network = FeedforwardNetwork(weights, biases, "tanh")
    W = np.column_stack([network.weights[0].T, network.biases[0]])
    certificate = landscape_certificate(
        W, network.weights[1][:, 0], np.column_stack([X, np.ones(40)]), y, activation=get_activation("tanh")
    )
    assert certificate.loss == pytest.approx(0.5 * np.mean((network(X)[:, 0] - y) ** 2), rel=1e-12)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"W": np.full((3, 6), np.nan)}, ValueError, "W has values that are not finite"),
        ({"y": np.full(80, np.inf)}, ValueError, "y has values that are not finite"),
        ({"v": np.ones(4)}, ValueError, "shapes must be"),
        ({"X": np.ones(6)}, ValueError, "X must have 2 dimension"),
        ({"X": np.ones((0, 6)), "y": np.ones(0)}, ValueError, "must not be empty"),
        ({"activation": "tanh"}, TypeError, "get_activation"),
        ({"activation": 3}, TypeError, "object with jet"),
        ({"activation": get_activation("relu")}, ValueError, "no second derivative"),
        ({"activation": get_activation("tanh"), "terms": LossTerms(alpha=1.0)}, ValueError, "for quadratic units"),
        ({"W": np.full((3, 6), 1e100)}, ValueError, "overflows"),
    ],
)
def test_errors(change, error, message):
    X, y, rng = data(22)
    arguments = {"W": rng.standard_normal((3, 6)), "v": np.ones(3), "X": X, "y": y, **change}
    with pytest.raises(error, match=message):
        landscape_certificate(**arguments)


def awkward_problem(rng):
    """Small data with a flaw, any options, any output weights."""
    n, d = rng.randint(1, 40), rng.randint(1, 5)
    X, k = rng.standard_normal((n, d)), rng.randint(1, 2 * d + 2)
    flaw = rng.randint(7)
    X = np.sign(X) if flaw == 0 else X[rng.randint(0, n, n)] if flaw == 1 else X
    X[:, -1] = {2: 1.0, 3: X[:, 0]}.get(flaw, X[:, -1])
    X = X * 10.0 ** rng.uniform(-4, 4, d) if flaw == 4 else X + rng.uniform(-10, 10, d) if flaw == 5 else X
    y = rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 3) + rng.choice([0.0, 5.0])
    options = {"alpha": rng.choice([0, 1e-6, 1e-2, 1.0]), "linear_weight": rng.choice([1.0, 30.0])}
    options |= {"fit_intercept": bool(rng.randint(2)), "fit_linear": bool(rng.randint(2))}
    return X, y, rng.choice([-1, 0, 1.0], k) * rng.uniform(0.2, 3, k), options


def test_no_bound_is_above_a_network_with_units_enough():
    statuses = set()
    for seed in range(100):
        rng = np.random.RandomState(seed)
        X, y, v, options = awkward_problem(rng)
        problem, d = QuadraticProblem(X, y, LossTerms(**options)), X.shape[1]
        start = rng.standard_normal((len(v), d)) * rng.choice([0.0, 1.0])
        W = descend(problem, start, v, max_iter=int(rng.choice([5, 1000]))).W
        certificate = landscape_certificate(W, v, X, y, terms=LossTerms(**options))
        enough = np.repeat([s for s in (1.0, -1.0) if (s * v > 0).any()], d)
        best = min(problem.null_value, descend(problem, np.zeros((len(enough), d)), enough).value)
        assert certificate.lower_bound <= best + 1e-11 * problem.target_value + problem.rounding, seed
        assert not certificate.is_global or certificate.loss <= best + 2e-10 * problem.target_value + problem.rounding
        statuses.add(certificate.status)
    assert statuses >= {"global", "undecided", "not stationary"}
