"""Rank-one terms: subspace power methods and pencils."""

import math
import time

import numpy as np
import pytest
import torch

from skident.linalg import (
    RankOneOptions,
    find_rank_one,
    find_symmetric_powers,
    jennrich,
    joint_pencil,
    n_free_entries,
    projection_norms,
    smat,
    subspace_power_iteration,
    svec_outer,
    symmetric_power,
)
from skident.linalg.pencils import _diagonalize
from tests.references import reference_algorithm_2

BACKENDS = [np.asarray, torch.asarray]


def unit_rows(rng, n, D):
    u = rng.normal(size=(n, D))
    return u / np.linalg.norm(u, axis=1, keepdims=True)


def span_of(vectors):
    return np.linalg.qr(svec_outer(vectors).T)[0]


def distances(targets, candidates):
    """Distance of every target to the nearest candidate, up to sign, without the cancellation of 2 - 2 cos."""
    differences = [np.linalg.norm(targets[:, None] - s * candidates[None], axis=2) for s in (1, -1)]
    return np.min(differences, axis=0).min(axis=1)


def noisy_span(vectors, noise, rng):
    """A subspace near the span: its largest principal angle is about `noise`."""
    basis = span_of(vectors)
    error = rng.normal(size=basis.shape)
    return np.linalg.qr(basis + noise * error / np.linalg.norm(error, 2))[0]


# -- the objective and the iteration -----------------------------------------------------------------------------------


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
def test_projection_norms_against_matrices(to, rng):
    basis, u = np.linalg.qr(rng.normal(size=(15, 4)))[0], unit_rows(rng, 6, 5)
    matrices = smat(basis.T, 5)
    expected = [sum(np.sum(B * np.outer(v, v)) ** 2 for B in matrices) for v in u]
    np.testing.assert_allclose(np.asarray(projection_norms(to(basis), to(u))), expected, rtol=1e-13)


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("n_steps", [1, 2, 7])
@pytest.mark.parametrize("gamma", [0.1, 1.5])
def test_steps_of_algorithm_2(to, gamma, n_steps, rng):
    """Before convergence too: the very iterates of the literal algorithm."""
    basis, starts = np.linalg.qr(rng.normal(size=(21, 8)))[0], unit_rows(rng, 5, 6)
    expected, phi = reference_algorithm_2(smat(basis.T, 6), starts, gamma, n_steps)
    u, p, n_iter = subspace_power_iteration(to(basis), to(starts), step_size=gamma, max_iter=n_steps)
    u = np.asarray(u)
    np.testing.assert_allclose(u * np.sign(u[:, :1]), expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(np.asarray(p), phi, rtol=1e-11)
    assert n_iter == n_steps


@pytest.mark.parametrize("step_size", [1.5, math.inf])
def test_limits_of_algorithm_2(step_size, rng):
    vectors = unit_rows(rng, 12, 10)
    basis, starts = span_of(vectors), unit_rows(rng, 8, 10)
    expected, phi = reference_algorithm_2(smat(basis.T, 10), starts, n_steps=600)
    u, p, n_iter = subspace_power_iteration(basis, starts, step_size=step_size)
    assert n_iter < 1000
    np.testing.assert_allclose(phi, 1.0, atol=1e-12)
    np.testing.assert_allclose(p, 1.0, atol=1e-12)
    assert distances(expected, vectors).max() < 1e-8 and distances(u, vectors).max() < 1e-8


def test_iteration_never_lowers_the_objective_with_a_small_step(rng):
    basis, u = np.linalg.qr(rng.normal(size=(45, 20)))[0], unit_rows(rng, 10, 9)
    phi = projection_norms(basis, u)
    for _ in range(20):
        u, new, _ = subspace_power_iteration(basis, u, step_size=0.5, max_iter=1)
        assert (new >= phi - 1e-14).all()
        phi = new


def test_starts_stay_as_they_were(rng):
    starts = unit_rows(rng, 4, 5)
    before = starts.copy()
    same, _, n_iter = subspace_power_iteration(span_of(unit_rows(rng, 3, 5)), starts, max_iter=0)
    subspace_power_iteration(span_of(unit_rows(rng, 3, 5)), starts)
    np.testing.assert_array_equal(starts, before)
    np.testing.assert_array_equal(same, before)
    assert n_iter == 0


def test_start_orthogonal_to_the_subspace_stays_put():
    e = np.eye(3)
    u, phi, n_iter = subspace_power_iteration(svec_outer(e[:1]).T, e[1:])
    np.testing.assert_array_equal(u, e[1:])
    np.testing.assert_array_equal(phi, 0.0)
    assert n_iter == 1


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
def test_single_precision_converges(to, rng):
    vectors = unit_rows(rng, 6, 8)
    basis, starts = (to(a.astype(np.float32)) for a in (span_of(vectors), unit_rows(rng, 5, 8)))
    u, _, n_iter = subspace_power_iteration(basis, starts)
    assert n_iter < 300 and "float32" in str(u.dtype)
    assert distances(np.asarray(u), vectors).max() < 1e-4


# -- all rank-one matrices ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_sixty_of_dimension_twenty(seed, own_seconds):
    vectors = unit_rows(np.random.default_rng(seed), 60, 20)
    basis = span_of(vectors)
    start = time.perf_counter()
    search = find_rank_one(basis, 20, rng=np.random.RandomState(seed))
    assert time.perf_counter() - start < 3.0  # 0.05 s on a free core
    assert search.vectors.shape == (60, 20)
    assert distances(vectors, search.vectors).max() < 1e-7
    np.testing.assert_allclose(search.phi, 1.0, atol=1e-12)
    assert (np.diff(search.phi) <= 0).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("D", "m"), [(1, 1), (2, 1), (2, 2), (3, 3), (6, 4), (8, 15), (12, 40), (20, 120), (40, 60)])
def test_all_found_for_many_sizes(D, m, seed):
    vectors = unit_rows(np.random.default_rng(100 * D + seed), m, D)
    search = find_rank_one(span_of(vectors), D, rng=np.random.RandomState(seed), options=RankOneOptions(max_iter=5000))
    assert len(search.vectors) == m
    assert distances(vectors, search.vectors).max() < 1e-7


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("step_size", [1.5, math.inf])
def test_backends_agree(to, step_size, rng):
    vectors = unit_rows(rng, 30, 12)
    search = find_rank_one(
        to(span_of(vectors)), 12, rng=np.random.RandomState(0), options=RankOneOptions(step_size=step_size)
    )
    assert type(search.vectors) is type(to(vectors))
    expected = find_rank_one(
        span_of(vectors), 12, rng=np.random.RandomState(0), options=RankOneOptions(step_size=step_size)
    )
    assert (search.n_starts, len(search.vectors)) == (expected.n_starts, 30)
    assert distances(np.asarray(search.vectors), expected.vectors).max() < 1e-8


def test_orthogonal_vectors(rng):
    Q = np.linalg.qr(rng.normal(size=(10, 10)))[0]
    assert distances(Q, find_rank_one(span_of(Q), 10).vectors).max() < 1e-10


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("D", "m", "noise"), [(10, 15, 1e-6), (20, 60, 1e-3), (20, 30, 3e-2), (30, 60, 3e-2)])
def test_noise_moves_vectors_but_makes_none(D, m, noise, seed):
    rng = np.random.default_rng(seed)
    vectors = unit_rows(rng, m, D)
    search = find_rank_one(noisy_span(vectors, noise, rng), D, rng=np.random.RandomState(seed))
    assert len(search.vectors) == m
    assert distances(search.vectors, vectors).max() < 5 * noise
    assert distances(vectors, search.vectors).max() < 5 * noise
    assert (search.phi > 1 - 10 * noise**2).all()


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("known_error", [0.0, 1e-2])
def test_known_vectors_are_deflated_and_not_returned(to, known_error, rng):
    vectors = unit_rows(rng, 40, 15)
    known = vectors[:10] + known_error * unit_rows(rng, 10, 15)
    known /= np.linalg.norm(known, axis=1, keepdims=True)
    search = find_rank_one(to(span_of(vectors)), 15, known=to(known), rng=np.random.RandomState(0))
    found = np.asarray(search.vectors)
    assert len(found) == 30
    assert distances(vectors[10:], found).max() < 1e-7


def test_deflation_beats_the_coupon_collector(rng):
    """m log m = 246 random starts would be needed to hit every one of 60 equally likely vectors."""
    vectors = unit_rows(rng, 60, 20)
    search = find_rank_one(
        span_of(vectors), 20, known=vectors[:50], rng=np.random.RandomState(0), options=RankOneOptions(n_starts=20)
    )
    assert len(search.vectors) == 10 and search.n_starts <= 52


@pytest.mark.parametrize("make_rng", [np.random.RandomState, np.random.default_rng])
def test_equal_seeds_equal_answers(make_rng, rng):
    basis = span_of(unit_rows(rng, 20, 10))
    first, second, other = (find_rank_one(basis, 10, rng=make_rng(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.vectors, second.vectors)
    assert (first.n_iter, first.n_starts) == (second.n_iter, second.n_starts)
    assert not np.array_equal(first.vectors, other.vectors)
    default = find_rank_one(basis, 10)
    np.testing.assert_array_equal(default.vectors, find_rank_one(basis, 10).vectors)


@pytest.mark.parametrize("chunk_bytes", [1, 24 * 100 * 7])
def test_chunks_change_nothing(chunk_bytes, rng):
    basis = span_of(unit_rows(rng, 25, 10))
    whole = find_rank_one(basis, 10, rng=np.random.RandomState(0), options=RankOneOptions(n_starts=30))
    parts = find_rank_one(
        basis, 10, rng=np.random.RandomState(0), options=RankOneOptions(n_starts=30, chunk_bytes=chunk_bytes)
    )
    assert whole.n_starts == parts.n_starts and len(whole.vectors) == len(parts.vectors) == 25
    assert distances(whole.vectors, parts.vectors).max() < 1e-8


def test_search_ends_when_enough_are_known(rng):
    vectors = unit_rows(rng, 30, 12)
    calls = []
    search = find_rank_one(span_of(vectors), 12, n_vectors=5, callback=lambda *counts: calls.append(counts))
    assert len(calls) == 1 and calls[0] == (len(search.vectors), 5) and len(search.vectors) >= 5
    nothing = find_rank_one(span_of(vectors), 12, known=vectors)
    assert nothing.vectors.shape == (0, 12) and nothing.phi.shape == (0,) and nothing.n_starts == 0


# -- subspaces without the structure -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("D", "m"), [(8, 6), (15, 40)])
def test_no_rank_one_matrix_at_all(D, m, rng):
    """A random subspace: the search gives up after two empty rounds and returns nothing."""
    basis = np.linalg.qr(rng.normal(size=(n_free_entries(D), m)))[0]
    rounds = []
    search = find_rank_one(
        basis, D, callback=lambda *counts: rounds.append(counts), options=RankOneOptions(max_iter=200)
    )
    assert search.vectors.shape == (0, D)
    assert rounds == [(0, m)] * 2 and search.n_starts == 2 * max(16, 2 * m)


def test_traceless_subspace_has_none():
    A = np.diag([1.0, -1.0, 0.0]) / np.sqrt(2)
    basis = A[np.triu_indices(3)][:, None]
    assert len(find_rank_one(basis, 3).vectors) == 0


def test_all_symmetric_matrices():
    """Every u u^T lies in the space: more directions than dimensions come back, all with phi = 1."""
    search = find_rank_one(np.eye(n_free_entries(4)), 4)
    assert len(search.vectors) >= 10 and search.n_iter == 1
    np.testing.assert_allclose(search.phi, 1.0, atol=1e-14)


def test_fewer_rank_one_matrices_than_dimensions(rng):
    vectors = unit_rows(rng, 8, 10)
    rest = rng.normal(size=(n_free_entries(10), 6))
    basis = np.linalg.qr(np.hstack([svec_outer(vectors).T, rest]))[0]
    search = find_rank_one(basis, 10, rng=np.random.RandomState(0))
    assert len(search.vectors) == 8 and distances(vectors, search.vectors).max() < 1e-7


def test_sizes_must_agree():
    with pytest.raises(ValueError, match=r"of symmetric 4 x 4 matrices must have 10 rows, got shape \(6, 2\)"):
        find_rank_one(np.eye(6)[:, :2], 4)
    with pytest.raises(ValueError, match=r"known must have shape \(k, 3\), got \(1, 4\)"):
        find_rank_one(np.eye(6)[:, :2], 3, known=np.eye(4)[:1])


@pytest.mark.parametrize(("D", "order", "m"), [(7, 2, 16), (6, 3, 32), (5, 4, 40), (3, 4, 8), (4, 3, 12)])
@pytest.mark.parametrize("error", [0.0, 1e-7])
def test_all_powers_of_a_subspace(D, order, m, error):
    rng = np.random.RandomState(m)
    X = rng.standard_normal((m, D))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    F = symmetric_power(X, order).T
    basis, _ = np.linalg.qr(F + error * rng.standard_normal(F.shape))
    found = find_symmetric_powers(basis, D, order, rng)
    assert len(found.vectors) == m and found.residuals.max() < 1e-12 + 50 * error
    assert np.abs(found.vectors @ X.T).max(axis=0).min() > 1 - 1e-8


def test_a_subspace_without_powers():
    rng = np.random.RandomState(0)
    basis, _ = np.linalg.qr(rng.standard_normal((56, 4)))
    found = find_symmetric_powers(basis, 6, 3, rng, max_rounds=3)
    assert len(found.vectors) == 0 and len(found.residuals) == 0


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
        with pytest.raises(ValueError, match="range of rank 3, less than the 6 wanted"):
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
        (lambda: jennrich(np.ones((3, 3, 3)), 2), "the first mode is of rank 1, less than the 2 wanted"),
        (lambda: jennrich(np.ones((3, 2, 3)), 1, symmetric=True), r"equal dimensions, got shape \(3, 2, 3\)"),
        (lambda: joint_pencil(EYE, 1), r"matrices must have shape \(J, n, n\), got \(3, 3\)"),
        (lambda: joint_pencil(np.ones((1, 3, 2)), 1), r"\(J, n, n\), got \(1, 3, 2\)"),
        (lambda: joint_pencil(EYE[None], 4), "rank 4 is larger than the dimension 3"),
        (lambda: joint_pencil(EYE[None], 2, base=np.eye(2)), r"base must have shape \(3, 3\).*got \(2, 2\)"),
        (lambda: joint_pencil(EYE[None], 2, base=np.diag([1.0, 0, 0])), "the base is of rank 1, less than the 2"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
