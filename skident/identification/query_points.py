"""Where a black box is asked: unit vectors, random points on spheres and along hyperplanes, blocks of points."""

from __future__ import annotations

import numpy as np

__all__ = ["query_block", "random_tangents", "random_sphere", "unit_rows"]


def unit_rows(V):
    """The rows of a matrix as unit vectors.

    Parameters
    ----------
    V : ndarray of shape (n, D)

    Returns
    -------
    ndarray of shape (n, D)
        Zero for a row of zeros.
    """
    norms = np.linalg.norm(V, axis=1, keepdims=True)
    return V / np.where(norms > 0, norms, 1.0)


def random_sphere(n_samples, n_features, radius, rng):
    """Points uniform on the sphere of the given radius.

    Parameters
    ----------
    n_samples, n_features : int
        n and D.
    radius : float
    rng : numpy.random.RandomState

    Returns
    -------
    ndarray of shape (n, D)
    """
    X = rng.standard_normal((n_samples, n_features))
    return radius * X / np.linalg.norm(X, axis=1, keepdims=True)


def random_tangents(normals, lengths, rng):
    """Random vectors along hyperplanes.

    Parameters
    ----------
    normals : ndarray of shape (..., D)
        Unit normals of the hyperplanes, a vector each.
    lengths : float or ndarray broadcast to (..., 1)
    rng : numpy.random.RandomState

    Returns
    -------
    ndarray of shape (..., D)
        Of uniform direction within every hyperplane.
    """
    V = rng.standard_normal(normals.shape)
    V -= np.sum(V * normals, axis=-1, keepdims=True) * normals
    return lengths * V / np.linalg.norm(V, axis=-1, keepdims=True)


def query_block(ask, U):
    """Answers at a block of points, asked at once.

    Parameters
    ----------
    ask : callable
        Points (n, D) to answers (n, m_L).
    U : ndarray of shape (..., D)

    Returns
    -------
    ndarray of shape (..., m_L)
    """
    Y = ask(U.reshape(-1, U.shape[-1]))
    return Y.reshape(*U.shape[:-1], Y.shape[-1])
