"""Logistic, Huber and Poisson losses of quadratic networks: minimizers and certificates against slow references."""

import numpy as np
import pytest
from scipy.optimize import minimize

from skident.landscape import CertificateOptions, HuberLoss, LossTerms, landscape_certificate
from skident.landscape.convex_loss_problem import ConvexLossProblem
from skident.landscape.losses import Huber, LogisticLoss, PoissonLoss
from skident.landscape.quadratic_form import factorize
from skident.linalg import svec_outer
from skident.network import get_activation

LOSSES = {"logistic": LogisticLoss(), "huber": Huber(0.5), "poisson": PoissonLoss()}
NAMES = {"logistic": "logistic", "huber": HuberLoss(0.5), "poisson": "poisson"}
BOTH = LossTerms(0.05, True, True, 3.0)


def mixed(d):
    return np.repeat([1.0, -1.0], d)


def data(name, seed, n=60, d=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    f = X[:, 0] * X[:, 1] - 0.5 * X[:, 0] ** 2 + 0.3 * X[:, -1]
    y = {
        "logistic": np.where(f + rng.logistic(size=n) > 0, 1.0, -1.0),
        "huber": f + rng.standard_t(2, size=n),
        "poisson": rng.poisson(np.exp(np.minimum(f, 3.0))).astype(float),  # about half are 0
    }[name]
    return X, y


def slow_value(X, y, loss, terms, params):
    """The loss term by term, from explicit features: M and b scaled so that the ridge is a plain sum of squares."""
    d = X.shape[1]
    q = d * (d + 1) // 2
    f = svec_outer(X) @ params[:q]
    rest = params[q:]
    if terms.fit_linear:
        f = f + np.sqrt(terms.linear_weight) * X @ rest[:d]
        rest = rest[d:]
    f = f + (rest[0] if terms.fit_intercept else 0.0)
    n_free = int(terms.fit_intercept)
    return loss.value(f, y).mean() + 0.5 * terms.alpha * np.sum(params[: len(params) - n_free] ** 2)


def slow_minimum(X, y, loss, terms):
    d = X.shape[1]
    p = d * (d + 1) // 2 + (d if terms.fit_linear else 0) + int(terms.fit_intercept)
    result = minimize(lambda t: slow_value(X, y, loss, terms, t), np.zeros(p), options={"maxiter": 500, "gtol": 1e-8})
    return result.fun


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_are_those_of_finite_differences(name):
    loss, f, h = LOSSES[name], np.linspace(-3.3, 3.3, 41), 1e-6
    y = np.where(np.arange(41) % 2, 1.0, -1.0) if name == "logistic" else np.arange(41) % 4.0
    slope = (loss.value(f + h, y) - loss.value(f - h, y)) / (2 * h)
    assert loss.slope(f, y) == pytest.approx(slope, abs=1e-7)
    bends = (loss.slope(f + h, y) - loss.slope(f - h, y)) / (2 * h)
    assert loss.curvature(f, y) == pytest.approx(bends, abs=1e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_the_conjugate_is_the_largest_difference(name):
    loss = LOSSES[name]
    for y in (1.0, -1.0) if name == "logistic" else (0.0, 1.0, 4.0):
        for f in (-2.0, -0.3, 0.4, 1.5):
            u = loss.slope(np.array([f]), np.array([y]))
            t = np.linspace(-20.0, 20.0, 400_001)
            assert loss.conjugate(u, np.array([y]))[0] == pytest.approx(np.max(u * t - loss.value(t, y)), abs=1e-8)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("terms", [LossTerms(0.1), LossTerms(0.02, True, False), BOTH, LossTerms(0.0, True, True)])
def test_the_minimizer_is_that_of_a_general_optimizer_and_is_certified(name, terms):
    X, y = data(name, 1)
    problem = ConvexLossProblem(X, y, LOSSES[name], terms)
    M, _ = problem.minimize()
    reference = slow_minimum(X, y, LOSSES[name], terms)
    assert problem.value(M) == pytest.approx(reference, rel=1e-7)
    W, _ = factorize(M, mixed(3))
    found = landscape_certificate(W, mixed(3), X, y, terms=terms, loss=NAMES[name])
    assert found.status == "global" and found.loss_name == name
    assert found.lower_bound <= reference + 1e-12 and found.gap <= 1e-10
    norm = np.hypot(np.linalg.norm(M), np.linalg.norm(np.r_[problem.side_terms(M)[0], problem.side_terms(M)[1]]))
    assert found.radius == np.inf if terms.alpha else found.radius >= 1000 * max(1.0, norm / np.sqrt(3.0))


@pytest.mark.parametrize("name", LOSSES)
def test_wrong_points_have_an_escape_that_lowers_the_loss(name):
    X, y = data(name, 2)
    problem = ConvexLossProblem(X, y, LOSSES[name], BOTH)
    W, _ = factorize(problem.minimize()[0], mixed(3))
    for point, status in ((np.zeros_like(W), "saddle"), (1.001 * W, "not stationary"), (W + 0.1, "not stationary")):
        found = landscape_certificate(point, mixed(3), X, y, terms=BOTH, loss=NAMES[name])
        assert found.status == status
        v = mixed(3)[:, None]
        moved = [point + t * found.escape_direction for t in np.logspace(-6, -1, 11)]
        assert min(problem.value(U.T @ (v * U)) for U in moved) < found.loss
        assert found.lower_bound <= found.loss - found.gap / 2


@pytest.mark.parametrize("seed", range(6))
def test_hessian_products_are_differences_of_gradients(seed):
    name = list(LOSSES)[seed % 3]
    X, y = data(name, seed)
    problem, rng = ConvexLossProblem(X, y, LOSSES[name], BOTH), np.random.default_rng(seed)
    M, N = (A + A.T for A in 0.1 * rng.standard_normal((2, 3, 3)))
    h = 1e-5
    difference = (problem.at(M + h * N).gradient - problem.at(M - h * N).gradient) / (2 * h)
    # Of Huber losses the second derivative jumps where a residual meets delta: n^-1 of it at most, for few samples.
    assert problem.at(M).hessian_product(N) == pytest.approx(difference, abs=1e-6 if name != "huber" else 1e-2)


def test_one_sign_is_certified_at_its_own_optimum_only():
    X, y = data("logistic", 3)
    problem = ConvexLossProblem(X, y, LOSSES["logistic"], LossTerms(0.05, True, True))

    def value(w):
        W = w.reshape(3, 3)
        return problem.value(W.T @ W)

    def slope(w):
        W = w.reshape(3, 3)
        return 2.0 * (W @ problem.at(W.T @ W).gradient).ravel()

    start = np.random.default_rng(0).standard_normal(9)
    W = minimize(value, start, jac=slope, options={"gtol": 1e-11, "maxiter": 2000}).x.reshape(3, 3)
    found = landscape_certificate(W, np.ones(3), X, y, terms=problem.terms, loss="logistic")
    assert found.status == "global"
    both = problem.value(problem.minimize()[0])
    assert found.loss > both + 1e-3  # one sign is a constraint
    other = landscape_certificate(W, -np.ones(3), X, y, terms=problem.terms, loss="logistic")
    assert not other.is_global


@pytest.mark.parametrize("kind", ["duplicated", "rank", "few"])
@pytest.mark.parametrize("name", LOSSES)
def test_dependent_inputs(name, kind):
    X, y = data(name, 4)
    if kind == "duplicated":
        X = np.hstack([X, X[:, :1]])
    elif kind == "rank":
        X = X @ np.random.default_rng(0).standard_normal((3, 5))
    else:
        X, y = np.random.default_rng(0).standard_normal((6, 8)), y[:6]
    for alpha in (0.05, 0.0) if kind != "few" else (0.05,):
        terms = LossTerms(alpha, True, True)
        problem, v = ConvexLossProblem(X, y, LOSSES[name], terms), mixed(X.shape[1])
        W, _ = factorize(problem.minimize()[0], v)
        found = landscape_certificate(W, v, X, y, terms=terms, loss=NAMES[name])
        assert found.status == "global" if alpha else found.status in ("global", "undecided")


def test_losses_and_targets_that_do_not_fit_are_refused():
    X, y = data("huber", 5)
    W, v = np.ones((2, 3)), np.array([1.0, -1.0])
    with pytest.raises(ValueError, match="-1 and 1"):
        landscape_certificate(W, v, X, y, loss="logistic")
    with pytest.raises(ValueError, match="counts y >= 0"):
        landscape_certificate(W, v, X, y, loss="poisson")
    with pytest.raises(ValueError, match="loss must be"):
        landscape_certificate(W, v, X, y, loss="hinge")
    with pytest.raises(ValueError, match="delta"):
        landscape_certificate(W, v, X, y, loss=HuberLoss(0.0))
    with pytest.raises(ValueError, match="quadratic units"):
        landscape_certificate(W, v, X, np.sign(y), loss="logistic", activation=get_activation("tanh"))
    with pytest.raises(ValueError, match="squared losses"):
        landscape_certificate(W, v, X, np.sign(y), loss="logistic").theorem_bound(1.0)


def test_a_looser_tolerance_proves_a_rougher_point():
    X, y = data("logistic", 6)
    problem = ConvexLossProblem(X, y, LOSSES["logistic"], BOTH)
    W = 1.0001 * factorize(problem.minimize()[0], mixed(3))[0]
    options = {"terms": BOTH, "loss": "logistic"}
    assert landscape_certificate(W, mixed(3), X, y, **options).status == "not stationary"
    rough = landscape_certificate(W, mixed(3), X, y, options=CertificateOptions(tol=1e-4), **options)
    assert rough.status == "global"
