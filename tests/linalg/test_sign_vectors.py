import itertools

import numpy as np
import pytest

from skident.linalg.sign_vectors import UndecidedSignsError, flippable_units, nearest_signs, solve_signs


def problem(E, K, seed):
    rng = np.random.RandomState(seed)
    M, signs = rng.standard_normal((E, K)) * rng.uniform(0.1, 1.0, K), rng.choice([-1.0, 1.0], K)
    return M, signs, M @ signs


# Independent columns; free signs tried at once, in two halves, and by a lattice.
SIZES = [(8, 6), (8, 8), (3, 10), (1, 9), (6, 24), (3, 27), (10, 45), (12, 60)]


@pytest.mark.parametrize(("E", "K"), SIZES)
@pytest.mark.parametrize("seed", range(2))
def test_the_signs(E, K, seed):
    M, signs, r = problem(E, K, seed)
    rounded = r + 1e-12 * np.random.RandomState(9).uniform(-1, 1, E)
    np.testing.assert_array_equal(solve_signs(M, rounded, 1e-11), [signs])


@pytest.mark.parametrize("seed", range(5))
def test_against_all_combinations(seed):
    """Small integers have many solutions (one for one of the seeds), and all are found."""
    rng = np.random.RandomState(seed)
    M = rng.randint(-3, 4, (2, 9)).astype(float)
    r = M @ rng.choice([-1.0, 1.0], 9)
    everything = np.array(list(itertools.product([-1.0, 1.0], repeat=9)))
    expected = everything[np.abs(everything @ M.T - r).max(axis=1) < 1e-9]
    found = solve_signs(M, r, 1e-9, max_solutions=1000)
    assert set(map(tuple, found)) == set(map(tuple, expected))


@pytest.mark.parametrize("seed", range(5))
def test_columns_dependent_up_to_the_error_of_the_equations(seed):
    rng, noise = np.random.RandomState(seed), 1e-7
    kernels = rng.standard_normal((2, 3))
    M = np.zeros((8, 12))  # shifts of two kernels of 3 entries by 0 to 5: they span the polynomials of degree 7
    for (k, i), column in zip(np.ndindex(2, 6), M.T, strict=True):
        column[i : i + 3] = kernels[k]
    signs = rng.choice([-1.0, 1.0], 12)
    measured = M + noise * rng.standard_normal(M.shape)
    found = solve_signs(measured, M @ signs, tol=40.0 * noise)
    np.testing.assert_array_equal(found, signs[None])


@pytest.mark.parametrize(("E", "K"), [(8, 6), (3, 10), (6, 24)])
def test_no_solution(E, K):
    M, _, r = problem(E, K, 0)
    assert solve_signs(M, r + 1e-3 * M[:, 0], 1e-9).shape == (0, K)


@pytest.mark.parametrize(("E", "K"), [(8, 6), (3, 10), (6, 24), (10, 45)])
def test_two_solutions(E, K):
    """Two equal columns with opposite signs can change places."""
    M, signs, _ = problem(E, K, 0)
    M[:, 1], signs[:2] = M[:, 0], [1.0, -1.0]
    found = solve_signs(M, M @ signs, 1e-10)
    assert len(found) == 2 and found[0, 0] == -found[1, 0]
    np.testing.assert_allclose(found @ M.T, [M @ signs] * 2, atol=1e-10)


@pytest.mark.parametrize(("E", "K"), [(3, 2), (2, 9), (6, 16)])
def test_nearest_of_all(E, K, rng):
    M, _, r = problem(E, K, 3)
    r = r + 0.01 * rng.standard_normal(E)
    every = np.array(list(itertools.product([-1.0, 1.0], repeat=K)))
    distances = np.linalg.norm(every @ M.T - r, axis=1)
    found = nearest_signs(M, r, 5)
    np.testing.assert_array_equal(found[0], every[np.argmin(distances)])
    assert np.all(np.diff(np.linalg.norm(found @ M.T - r, axis=1)) >= 0) and 1 <= len(found) <= 5


def test_too_many_signs():
    M, _, r = problem(1, 60, 0)
    with pytest.raises(UndecidedSignsError, match="60 signs in equations of rank 1 are too many"):
        solve_signs(M, r, 1e-9)


def test_too_few_equations():
    M, _, r = problem(1, 27, 0)
    with pytest.raises(UndecidedSignsError, match="combinations of 26 free signs fit one equation"):
        solve_signs(M, r, 0.2)


@pytest.mark.parametrize(("E", "K", "least"), [(10, 100, 3), (12, 120, 2)])
def test_rate_of_large_lattices(E, K, least):
    """10 of 10 random cases each where this was measured: fewer than `least` of 3 would be another rate."""
    found = 0
    for seed in range(3):
        M, signs, r = problem(E, K, seed)
        try:
            found += np.array_equal(solve_signs(M, r + 1e-13 * np.cos(np.arange(E)), 1e-12), [signs])
        except UndecidedSignsError:
            pass
    assert found >= least


# Independent terms; free signs tried at once, in two halves, and by a lattice.
@pytest.mark.parametrize(("D", "K", "m"), [(6, 6, 1), (6, 10, 1), (3, 9, 2), (4, 24, 1), (10, 60, 1)])
@pytest.mark.parametrize("size", [0, 2, 3, 5])
def test_units_that_can_be_flipped(D, K, m, size):
    rng = np.random.RandomState(size)
    W, V = rng.standard_normal((D, K)), rng.standard_normal((K, m))
    if size:  # for m = 2 outputs, parallel outgoing weights
        V[:size] = np.outer(V[:size, 0], rng.standard_normal(m))
        W[:, size - 1] = -(W[:, : size - 1] @ V[: size - 1, 0]) / V[size - 1, 0]
    order = rng.permutation(K)
    W, V = W[:, order] * (1.0 + 1e-14 * rng.standard_normal((D, K))), V[order]
    found = flippable_units(W, V, 1e-11)
    np.testing.assert_array_equal(found, order < size)
    if size and K <= 10:  # the statement itself
        b, X = rng.standard_normal(K), rng.standard_normal((50, D))
        signs = np.where(found, -1.0, 1.0)
        gap = np.maximum(X @ W + b, 0.0) @ V - np.maximum((X @ W + b) * signs, 0.0) @ V
        assert np.ptp(gap, axis=0).max() < 1e-11


def test_too_many_units_to_compare_their_signs():
    rng = np.random.RandomState(0)
    with pytest.raises(UndecidedSignsError, match="too many"):
        flippable_units(rng.standard_normal((2, 90)), np.ones((90, 1)), 1e-6)
    with pytest.raises(UndecidedSignsError, match="not accurate enough for any of 20 signs"):
        solve_signs(rng.standard_normal((2, 20)), np.zeros(2), 10.0)
    with pytest.raises(UndecidedSignsError, match="300 units in 2 equations are too many to compare"):
        flippable_units(rng.standard_normal((2, 300)), np.ones((300, 1)), 1e-12)


def test_units_without_effect_have_no_signs():
    assert flippable_units(np.zeros((2, 2)), np.ones((2, 1)), 1e-9).all()
