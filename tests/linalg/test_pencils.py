import numpy as np
import pytest

from skident.linalg import jennrich, joint_pencil, matrix_pencil
from skident.linalg.pencils import _diagonalize


def unit(rng, *shape):
    X = rng.normal(size=shape)
    return X / np.linalg.norm(X, axis=0)


def direction_error(found, true):
    """Largest distance of a true unit column to the nearest found one up to sign, each found one used once."""
    cosines = np.abs(true.T @ found)
    nearest = cosines.argmax(axis=1)
    assert len(set(nearest)) == true.shape[1]
    return max(min(np.linalg.norm(found[:, j] - s * true[:, i]) for s in (-1, 1)) for i, j in enumerate(nearest))


def compose(U, V, W):
    return np.einsum("ir,jr,kr->ijk", U, V, W)


# -- Jennrich ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "rank"), [((4, 4, 4), 4), ((6, 5, 3), 4), ((3, 7, 2), 3), ((5, 5, 1), 1), ((8, 8, 9), 2)]
)
def test_terms_come_back(shape, rank, rng):
    U, V, W = (unit(rng, n, rank) for n in shape)
    c = rng.uniform(1, 2, rank) * rng.choice([-1, 1], rank)
    T = compose(U, V, c * W)
    found = jennrich(T, rank, rng=np.random.RandomState(1))
    # Random square factors have condition numbers up to some hundred; three enter.
    for x, true in zip(found, (U, V, W)):
        assert direction_error(x / np.linalg.norm(x, axis=0), true) < 1e-8
    np.testing.assert_allclose(compose(*found[:3]), T, atol=1e-9)
    assert found.residual == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose([np.linalg.norm(x, axis=0) for x in found[:2]], 1, rtol=1e-12)


def test_symmetric_modes(rng):
    W, c = unit(rng, 5, 5), rng.normal(size=(3, 5))
    found = jennrich(compose(W, W, c), 5, symmetric=True)
    assert direction_error(found.U, W) < 1e-8
    np.testing.assert_allclose(compose(*found[:3]), compose(W, W, c), atol=1e-9)
    np.testing.assert_array_equal(found.U, found.V)


def test_error_goes_with_the_noise(rng):
    U, V, W = (unit(rng, 6, 4) for _ in range(3))
    E = rng.normal(size=(6, 6, 6))
    errors = [direction_error(jennrich(compose(U, V, W) + s * E, 4).U, U) for s in (1e-8, 1e-6, 1e-4)]
    assert errors[0] < 1e-6 and errors[1] < 1e-4 and errors[2] < 1e-2


def test_more_draws_explain_at_least_as_much(rng):
    T = compose(*(unit(rng, 6, 6) for _ in range(3))) + 1e-3 * rng.normal(size=(6, 6, 6))
    few, many = (jennrich(T, 6, n_draws=n, rng=np.random.RandomState(3)).residual for n in (1, 40))
    assert many < few


def test_residual_is_of_the_whole_tensor(rng):
    T = compose(*(unit(rng, 5, 3) for _ in range(3))) + 0.01 * rng.normal(size=(5, 5, 5))
    found = jennrich(T, 3)
    assert found.residual == pytest.approx(np.linalg.norm(T - compose(*found[:3])) / np.linalg.norm(T), rel=1e-10)
    found = jennrich(T + T.swapaxes(0, 1), 3, symmetric=True)
    left = np.linalg.norm(T + T.swapaxes(0, 1) - compose(*found[:3])) / np.linalg.norm(T + T.swapaxes(0, 1))
    assert found.residual == pytest.approx(left, rel=1e-10)


def test_parallel_factors_are_told(rng):
    U, V, W = (unit(rng, 4, 3) for _ in range(3))
    W[:, 1] = -2 * W[:, 0]
    with pytest.warns(RuntimeWarning, match="third factors . and . are parallel.*mixing"):
        found = jennrich(compose(U, V, W), 3)
    np.testing.assert_allclose(compose(*found[:3]), compose(U, V, W), atol=1e-7)


# -- pencils -----------------------------------------------------------------------------------------------------------


def test_single_pencil(rng):
    W, Z = unit(rng, 6, 4), unit(rng, 5, 4)
    A, B = W * rng.normal(size=4) @ Z.T, W * rng.uniform(1, 2, 4) @ Z.T
    assert direction_error(matrix_pencil(A, B, 4), W) < 1e-9


@pytest.mark.parametrize("with_base", [False, True])
@pytest.mark.parametrize(("n", "rank", "J"), [(5, 5, 2), (7, 4, 3), (4, 1, 1), (12, 12, 6)])
def test_joint_pencil(n, rank, J, with_base, rng):
    W, c, c0 = unit(rng, n, rank), rng.normal(size=(J, rank)), rng.uniform(0.5, 1, rank)
    M = np.einsum("ir,jr,kr->jik", W, c, W)
    found = joint_pencil(M, rank, base=W * c0 @ W.T if with_base else None)
    assert direction_error(found.vectors, W) < 1e-8 and found.residual < 1e-8
    fit = np.einsum("ir,jr,kr->jik", found.vectors, found.coefficients, found.vectors)
    np.testing.assert_allclose(fit, M, atol=1e-8)


def test_families_that_fail_alone_succeed_together(rng):
    # Half of the coefficients of either family vanish, so each alone sees half of the factors.
    W, c = unit(rng, 6, 6), rng.normal(size=(2, 2, 6))
    c[0, :, :3] = c[1, :, 3:] = 0.0
    M = np.einsum("ir,fjr,kr->fjik", W, c, W)
    for family in M:
        with pytest.raises(ValueError, match="range of rank 3, less than the rank 6 wanted"):
            joint_pencil(family, 6)
    assert direction_error(joint_pencil(M.reshape(4, 6, 6), 6).vectors, W) < 1e-8


def test_draws_are_chosen_by_what_they_explain(rng):
    W, c = unit(rng, 5, 5), rng.normal(size=(4, 5))
    E = 1e-3 * rng.normal(size=(4, 5, 5))
    M = np.einsum("ir,jr,kr->jik", W, c, W) + E + E.swapaxes(1, 2)
    one, many = (joint_pencil(M, 5, n_draws=n, max_iter=0, rng=np.random.RandomState(0)) for n in (1, 50))
    assert many.residual < one.residual
    fit = np.einsum("ir,jr,kr->jik", many.vectors, many.coefficients, many.vectors)
    assert many.residual == pytest.approx(np.linalg.norm(M - fit) / np.linalg.norm(M), rel=1e-9)


def test_newton_steps_use_all_matrices(rng):
    ratios, errors = [], []
    for _ in range(5):
        W, c = unit(rng, 6, 6), rng.normal(size=(12, 6))
        E = 1e-4 * rng.normal(size=(12, 6, 6))
        M = np.einsum("ir,jr,kr->jik", W, c, W) + E + E.swapaxes(1, 2)
        pencil, newton = (joint_pencil(M, 6, n_draws=5, max_iter=n) for n in (0, 10))
        assert newton.residual <= pencil.residual
        errors.append(direction_error(newton.vectors, W))
        ratios.append(direction_error(pencil.vectors, W) / errors[-1])
    assert np.median(ratios) > 2 and max(errors) < 0.02


def test_newton_steps_converge_quadratically(rng):
    W, c = unit(rng, 5, 5), rng.normal(size=(4, 5))
    M, X = np.einsum("ir,jr,kr->jik", W, c, W), W + 1e-3 * rng.normal(size=(5, 5))
    lengths = []
    X = X[None]
    for _ in range(4):
        X, length = _diagonalize(M, X)
        lengths.append(length[0])
    assert lengths[1] < 50 * lengths[0] ** 2 and lengths[3] < 1e-11
    assert direction_error(X[0] / np.linalg.norm(X[0], axis=0), W) < 1e-11


def test_complex_pairs_stay_in_their_plane(rng):
    # A rotation has no real eigenvectors; the noise of a nearly double eigenvalue acts like one.
    W = unit(rng, 5, 5)
    c = np.array([[1.0, 1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0, 2.0]])
    E = 1e-6 * rng.normal(size=(2, 5, 5))
    M = np.einsum("ir,jr,kr->jik", W, c, W) + E + E.swapaxes(1, 2)
    found = joint_pencil(M, 5).vectors
    assert found.dtype == np.float64
    plane, _ = np.linalg.qr(W[:, :2])
    outside = np.linalg.norm(found - plane @ (plane.T @ found), axis=0)
    assert np.sum(outside < 1e-3) == 2


def test_twin_coefficients_are_told(rng):
    W, c = unit(rng, 4, 4), rng.normal(size=(3, 4))
    c[:, 2] = 3 * c[:, 1]
    with pytest.warns(RuntimeWarning, match="coefficients of factors . and . are parallel"):
        joint_pencil(np.einsum("ir,jr,kr->jik", W, c, W), 4)


def test_the_same_generator_gives_the_same_factors(rng):
    T = rng.normal(size=(3, 3, 3))
    a, b = (jennrich(T, 3, rng=np.random.RandomState(5)) for _ in range(2))
    np.testing.assert_array_equal(a.U, b.U)


# -- errors ------------------------------------------------------------------------------------------------------------

EYE = np.eye(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jennrich(np.ones((3, 3)), 1), r"T must have shape \(n_1, n_2, n_3\), got \(3, 3\)"),
        (lambda: jennrich(np.ones((3, 0, 3)), 1), r"got \(3, 0, 3\)"),
        (lambda: jennrich(np.full((2, 2, 2), np.nan), 1), "T must be finite, got 8 entries"),
        (lambda: jennrich(np.ones((3, 2, 5)), 3), "rank 3 is larger than the dimension 2.*flatten"),
        (lambda: jennrich(np.ones((3, 3, 3)), 0), "rank must be an integer >= 1, got 0"),
        (lambda: jennrich(np.ones((3, 3, 3)), 1, n_draws=0), "n_draws must be an integer >= 1"),
        (lambda: jennrich(np.ones((3, 3, 3)), 2), "the first mode is of rank 1, less than the 2 asked for"),
        (lambda: jennrich(np.ones((3, 2, 3)), 1, symmetric=True), r"equal sides, got shape \(3, 2, 3\)"),
        (lambda: joint_pencil(EYE, 1), r"matrices must have shape \(J, n, n\), got \(3, 3\)"),
        (lambda: joint_pencil(np.ones((1, 3, 2)), 1), r"\(J, n, n\), got \(1, 3, 2\)"),
        (lambda: joint_pencil(EYE[None], 4), "rank 4 is larger than the dimension 3"),
        (lambda: joint_pencil(EYE[None], 2, base=np.eye(2)), r"base must have shape \(3, 3\).*got \(2, 2\)"),
        (lambda: joint_pencil(EYE[None], 2, base=np.diag([1.0, 0, 0])), "the base is of rank 1, less than the 2"),
        (lambda: matrix_pencil(EYE, np.eye(2), 1), r"one shape, got \(3, 3\) and \(2, 2\)"),
        (lambda: matrix_pencil(EYE, np.ones((3, 3)), 2), "B is a matrix of rank 1, less than the 2"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
