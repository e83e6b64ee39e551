"""Points at which a model is queried: unit vectors, spheres, tangents of hyperplanes, blocks of points."""

from __future__ import annotations

import numpy as np

__all__ = ["query_block", "random_sphere", "random_tangents", "unit_rows"]


def unit_rows(V):
    """The rows of V (n, D) as unit vectors; zero for a row of zeros."""
    norms = np.linalg.norm(V, axis=1, keepdims=True)
    return V / np.where(norms > 0, norms, 1.0)


def random_sphere(n_samples, n_features, radius, rng):
    """Points (n, D), uniform on the sphere of the given radius."""
    X = rng.standard_normal((n_samples, n_features))
    return radius * X / np.linalg.norm(X, axis=1, keepdims=True)


def random_tangents(normals, lengths, rng):
    """One random vector (..., D) in each hyperplane with unit normals (..., D), of given lengths (..., 1)."""
    V = rng.standard_normal(normals.shape)
    V -= np.sum(V * normals, axis=-1, keepdims=True) * normals
    return lengths * V / np.linalg.norm(V, axis=-1, keepdims=True)


def query_block(query, U):
    """Outputs (..., m_L) of ``query: (n, D) -> (n, m_L)`` at a block of points (..., D), in one call."""
    Y = query(U.reshape(-1, U.shape[-1]))
    return Y.reshape(*U.shape[:-1], Y.shape[-1])
