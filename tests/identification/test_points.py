import numpy as np
import pytest

from skident.identification.query_points import query_block, random_sphere, random_tangents, unit_rows


def test_unit_rows(rng):
    V = rng.standard_normal((5, 3))
    np.testing.assert_allclose(np.linalg.norm(unit_rows(V), axis=1), 1)
    np.testing.assert_allclose(unit_rows(V) * np.linalg.norm(V, axis=1)[:, None], V)


def test_points_lie_on_the_sphere():
    X = random_sphere(50, 4, 0.3, np.random.RandomState(0))
    assert X.shape == (50, 4)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 0.3)


@pytest.mark.parametrize("shape", [(4,), (4, 2), ()])
def test_vectors_along_hyperplanes(rng, shape):
    normals = rng.standard_normal((*shape, 6))
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    lengths = rng.uniform(1.0, 2.0, (*shape, 1))
    V = random_tangents(normals, lengths, np.random.RandomState(0))
    np.testing.assert_allclose(np.linalg.norm(V, axis=-1, keepdims=True), lengths)
    np.testing.assert_allclose(np.sum(V * normals, axis=-1), 0, atol=1e-12)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 0, 3)])
def test_blocks_are_asked_at_once(rng, shape):
    calls, U = [], rng.standard_normal((*shape, 5))

    def ask(X):
        calls.append(X.shape)
        return X[:, :2] ** 2

    np.testing.assert_array_equal(query_block(ask, U), U[..., :2] ** 2)
    assert calls == [(int(np.prod(shape)), 5)]
