import math

import numpy as np
import pytest

from skident.linalg import symmetric_power
from skident.samples.paper.scalars import population_tensors, relu_coefficients
from skident.samples.tensor_fit import _tangent, _Target, refine_by_moments
from tests.references import reference_hermite_tensor, reference_packed, reference_residual_jacobian

CURVED = (2, 3, 4)


def refined(tensors, W, b, a, **options):
    """`refine_by_moments` of one start."""
    return [part[0] for part in refine_by_moments(tensors, W[None], b[None], a[None], **options)]


def random_units(rng, p, m, spread=1.0):
    W = rng.normal(size=(p, m))
    return W / np.linalg.norm(W, axis=0), rng.uniform(-spread, spread, m), rng.choice([-1, 1], m) * rng.uniform(1, 2, m)


def curved(units, order=4):
    return {k: T for k, T in population_tensors(*units, order).items() if k >= 2}


# -- coefficients and population tensors -------------------------------------------------------------------------------


def test_coefficients_by_quadrature():
    z = np.linspace(-12, 12, 240_001)
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    for b in (-1.7, 0.0, 0.4):
        values = np.maximum(z + b, 0) * density
        expected = [np.trapezoid(values * np.polynomial.hermite_e.hermeval(z, np.eye(7)[k]), z) for k in range(7)]
        # The trapezoidal rule errs by the step squared, at the kink.
        np.testing.assert_allclose(relu_coefficients(b, 6), expected, atol=1e-6)


def test_every_coefficient_is_the_derivative_of_the_one_before():
    b, step = np.linspace(-3, 3, 13), 1e-5
    slope = (relu_coefficients(b + step, 6) - relu_coefficients(b - step, 6)) / (2 * step)
    np.testing.assert_allclose(slope[:-1], relu_coefficients(b, 6)[1:], atol=1e-8)


def test_population_tensors_are_means_of_hermite_tensors(rng):
    # Gauss-Hermite nodes integrate polynomials exactly; the boundaries leave errors of a few thousandths.
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    X = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    mass = np.outer(weights, weights).ravel() / (2 * np.pi)
    keep = mass > 1e-12
    X, mass = X[keep], mass[keep]
    W, b, a = random_units(rng, 2, 3)
    f = np.maximum(X @ W + b, 0) @ a
    T = population_tensors(W, b, a, 4)
    for k in range(1, 5):
        mean = sum(m * y * reference_hermite_tensor(x, k) for m, y, x in zip(mass, f, X))
        np.testing.assert_allclose(T[k], reference_packed(mean), atol=0.02)
    assert T[0][0] == pytest.approx(mass @ f, abs=0.01)


def test_signs_matter_for_orders_zero_and_one_only(rng):
    W, b, a = random_units(rng, 4, 3)
    s = np.array([1, -1, -1])
    T, flipped = population_tensors(W, b, a, 6), population_tensors(W * s, b * s, a, 6)
    for k in range(7):
        assert np.allclose(T[k], flipped[k], rtol=1e-12, atol=1e-14) == (k >= 2)


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ((np.eye(2), np.zeros(3), np.ones(2)), r"shapes \(2, 2\), \(3,\) and \(2,\)"),
        ((2 * np.eye(2), np.zeros(2), np.ones(2)), "norm 1, got norms from 2 to 2"),
    ],
)
def test_population_errors(units, message):
    with pytest.raises(ValueError, match=message):
        population_tensors(*units, 4)


# -- refinement --------------------------------------------------------------------------------------------------------


def moment_loss(tensors, W, b, a):
    """The risk as far as the orders given determine it, of unit columns W."""
    return float(_Target(tensors, len(W)).loss(W.T[None], b[None], a[None])[0])


@pytest.mark.parametrize("orders", [(2, 3, 4), (0, 1, 2, 3), (2, 3, 4, 5, 6), (1, 5)])
def test_matrix_and_gradient_against_differences(orders, rng):
    p, m = 3, 4
    T = {k: population_tensors(*random_units(rng, p, m), 6)[k] for k in orders}
    W, b, a = random_units(rng, p, m)

    def residual(theta):
        units = theta.reshape(m, p + 2)
        c = units[:, p] * relu_coefficients(units[:, p + 1], 6)
        parts = [(T[k] - c[k] @ symmetric_power(units[:, :p], k)) / math.sqrt(math.factorial(k)) for k in orders]
        return np.concatenate(parts)[:, None]

    theta = np.column_stack([W.T, a, b]).ravel()
    J, r = reference_residual_jacobian(residual, theta), residual(theta)[:, 0]
    target = _Target(T, p)
    H, g = target.linearize(W.T[None], b[None], a[None])
    np.testing.assert_allclose(H.reshape(m * (p + 2), -1), J.T @ J, atol=1e-8)
    np.testing.assert_allclose(g.ravel(), -J.T @ r, atol=1e-8)
    assert moment_loss(T, W, b, a) == pytest.approx(r @ r, rel=1e-12)
    P = np.eye(m * (p + 2)).reshape(m, p + 2, m, p + 2)
    for i, w in enumerate(W.T):
        P[i, :p, i, :p] -= np.outer(w, w)
    P = P.reshape(m * (p + 2), -1)
    H, g = _tangent(H, g, W.T[None])
    np.testing.assert_allclose(H.reshape(P.shape), P @ J.T @ J @ P + np.eye(len(P)) - P, atol=1e-8)
    np.testing.assert_allclose(g.ravel(), -P @ J.T @ r, atol=1e-8)


@pytest.mark.parametrize(("p", "m", "order"), [(1, 1, 4), (5, 3, 4), (10, 10, 4), (4, 7, 6)])
def test_exact_tensors_give_back_the_units(p, m, order, rng):
    W, b, a = random_units(rng, p, m)
    V = W + 0.1 * rng.normal(size=W.shape) / np.sqrt(p)
    start = V / np.linalg.norm(V, axis=0), b + 0.1 * rng.normal(size=m), a * 1.1
    found = refined(curved((W, b, a), order), *start, ftol=0.0)
    # A loss of 1e-15 is the rounding of the tensors' norms; errors are its root, and one Gauss-Newton step better.
    for x, true in zip(found, (W, b, a)):
        np.testing.assert_allclose(x, true, atol=1e-6)
    assert abs(found[3]) < 1e-13


def test_random_starts_reach_the_minimum(rng):
    # 80 to 90 of a hundred do; with long steps of the biases less than 10 of a hundred did.
    units = random_units(rng, 6, 6)
    starts = map(np.array, zip(*[random_units(rng, 6, 6) for _ in range(20)]))
    *_, loss = refine_by_moments(curved(units), *starts)
    assert np.mean(loss < 1e-8) >= 0.5


@pytest.mark.parametrize("unit", [1e-9, 1e6])
def test_the_unit_of_the_outputs_does_not_matter(unit, rng):
    T, (W, b, a) = curved(random_units(rng, 4, 4)), random_units(rng, 4, 4)
    expected = refined(T, W, b, a, max_iter=8)
    found = refined({k: unit * t for k, t in T.items()}, W, b, unit * a, max_iter=8)
    for x, y, factor in zip(found, expected, (1, 1, unit, unit**2)):
        np.testing.assert_allclose(x, factor * np.array(y), rtol=1e-6)


def test_far_biases_are_reached(rng):
    W, b, a = random_units(rng, 3, 2)
    b = np.array([2.5, -3.0])
    *found, loss = refined(population_tensors(W, b, a, 4), W, 0.6 * b, a, ftol=0.0)
    np.testing.assert_allclose(found[1], b, atol=1e-5)


def test_noisy_minimum_is_stationary_and_below_the_truth(rng):
    units = random_units(rng, 4, 4)
    T = {k: t + 0.01 * rng.normal(size=t.shape) for k, t in curved(units).items()}
    W, b, a, loss = refined(T, *units, ftol=0.0)
    assert loss < moment_loss(T, *units)
    np.testing.assert_allclose(np.linalg.norm(W, axis=0), 1, rtol=1e-12)
    target = _Target(T, 4)
    _, g = _tangent(*target.linearize(W.T[None], b[None], a[None]), W.T[None])
    # The gradient goes with the root of what the loss cannot see, 1e-16.
    assert np.abs(g).max() < 1e-6


def test_a_batch_is_its_candidates(rng):
    T = curved(random_units(rng, 3, 3))
    W, b, a = map(np.array, zip(*[random_units(rng, 3, 3) for _ in range(4)]))
    together = refine_by_moments(T, W, b, a, max_iter=5)
    for i in range(4):
        alone = refined(T, W[i], b[i], a[i], max_iter=5)
        for x, y in zip(together, alone):
            np.testing.assert_allclose(x[i], y, rtol=1e-9, atol=1e-12)


def test_arguments_stay_as_they_are(rng):
    T, (W, b, a) = curved(random_units(rng, 3, 2)), random_units(rng, 3, 2)
    kept = W.copy(), b.copy(), a.copy()
    refined(T, W, b, a)
    for before, after in zip(kept, (W, b, a)):
        np.testing.assert_array_equal(before, after)
