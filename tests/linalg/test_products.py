"""Vectors whose products of entries lie in a subspace."""

import itertools

import numpy as np
import pytest

from skident.linalg.products import products_of_entries, vectors_of_products


def sets_of(k, order, repeated=False):
    """Sets of columns, each once; if `repeated`, those with one of them twice as well."""
    sets = itertools.combinations_with_replacement(range(k), order)
    return np.array([S for S in sets if len(set(S)) >= order - repeated])


def test_products_of_entries(rng):
    V, sets = rng.standard_normal((3, 5)), sets_of(5, 3, True)
    expected = [[np.prod(v[list(S)]) for S in sets] for v in V]
    np.testing.assert_allclose(products_of_entries(V, sets), expected)


@pytest.mark.parametrize(
    ("k", "m", "sets"),
    [
        (6, 9, sets_of(6, 2)),
        (8, 20, sets_of(8, 2)),
        (7, 20, sets_of(7, 3)),
        (7, 20, sets_of(7, 4)),
        (5, 10, sets_of(5, 2, True)),
        (4, 12, sets_of(4, 3, True)),
    ],
)
def test_vectors_are_found(k, m, sets, rng):
    V = rng.standard_normal((m, k))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    basis = np.linalg.qr(products_of_entries(V, sets).T)[0]
    found, distances = vectors_of_products(basis, k, sets, rng, 1e-6)
    assert len(found) == m and distances.max() < 1e-6
    np.testing.assert_allclose(np.abs(found @ V.T).max(axis=0), 1.0, atol=1e-8)


def test_a_random_subspace_has_no_products(rng):
    basis = np.linalg.qr(rng.standard_normal((28, 10)))[0]
    assert len(vectors_of_products(basis, 8, sets_of(8, 2), rng, 1e-4)[0]) == 0
