"""Output weights times powers: found in the subspace they span, and fitted to noisy rows."""

import numpy as np
import pytest

from skident.identification.second_layer.kernel.output_powers import OutputPowers, find_output_powers, fitted_powers


def planted(m, m_L, k, order, seed):
    """Random units, and a random generator."""
    rng = np.random.RandomState(seed)
    X, V = rng.standard_normal((m, k)), rng.standard_normal((m, m_L))
    units = [A / np.linalg.norm(A, axis=1, keepdims=True) for A in (X, V)]
    return OutputPowers(*units, order), rng


def errors(found, true):
    """Distance of every true direction w from the nearest one found."""
    cosines = np.abs(true.vectors @ found.vectors.T).max(axis=1)
    return np.sqrt(np.maximum(1.0 - cosines**2, 0.0))


@pytest.mark.parametrize(("m", "m_L", "k", "order"), [(22, 3, 4, 2), (30, 2, 4, 3)])
def test_more_units_than_one_output_would_tell_are_found(m, m_L, k, order):
    true, rng = planted(m, m_L, k, order, 1)
    basis = np.linalg.qr(true.flat.T)[0]
    found = find_output_powers(basis, m_L, k, order, rng, farthest=1e-6)
    assert len(found.vectors) == m > true.flat.shape[1] // m_L
    assert errors(found, true).max() < 1e-7
    assert found.distances(basis).max() < 1e-12


def test_tangents_are_derivatives():
    true, rng = planted(5, 2, 3, 3, 2)
    steps = rng.standard_normal((5, 5))
    ends = [
        OutputPowers(true.vectors + s * steps[:, :3], true.weights + s * steps[:, 3:], 3).flat for s in (1e-6, -1e-6)
    ]
    assert np.allclose((ends[0] - ends[1]) / 2e-6, np.einsum("nab,nb->na", true.tangents, steps), atol=1e-8)


def test_the_fit_of_all_is_better_than_a_subspace_of_which_parts_are_hardly_known():
    true, rng = planted(20, 3, 4, 2, 3)
    sizes, mixed = np.geomspace(1.0, 1e-6, 20), np.linalg.qr(rng.standard_normal((20, 20)))[0]
    rows = rng.standard_normal((60, 20)) * sizes @ mixed @ true.flat + 1e-8 * rng.standard_normal((60, 30))
    basis = np.linalg.svd(rows)[2][:20].T
    found = find_output_powers(basis, 3, 4, 2, rng, farthest=0.05)
    fitted = fitted_powers(found, rows)
    before, after = errors(found, true), errors(fitted, true)
    assert len(found.vectors) == 20
    assert after.max() < 1e-3
    assert np.median(after) < 0.3 * np.median(before)


def test_a_fit_with_nothing_to_gain_stays():
    true, rng = planted(6, 2, 3, 2, 4)
    fitted = fitted_powers(true, rng.standard_normal((20, 6)) @ true.flat)
    assert errors(fitted, true).max() < 1e-7


def test_a_random_subspace_has_none():
    rng = np.random.RandomState(5)
    basis = np.linalg.qr(rng.standard_normal((30, 8)))[0]
    assert len(find_output_powers(basis, 3, 4, 2, rng, farthest=1e-3).vectors) == 0
