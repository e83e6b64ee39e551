"""Building the context: the span of the entangled weights' outer products, from Hessians (Algorithm 1)."""

from __future__ import annotations

import numpy as np

from skident.linalg import leading_subspace, n_free_entries, svec

__all__ = ["entangled_subspace", "random_sphere", "sample_hessians"]

_HESSIAN_CHUNK_BYTES = 2**28


def random_sphere(n_samples, n_features, radius, rng):
    """Points uniform on the sphere of the given radius, (n, D)."""
    X = rng.standard_normal((n_samples, n_features))
    return radius * X / np.linalg.norm(X, axis=1, keepdims=True)


def sample_hessians(oracle, n_hessians, radius, *, rng, callback=None):
    """Vectorised Hessians of all outputs at random points of a sphere around the oracle's centre.

    Parameters
    ----------
    oracle : Oracle
    n_hessians : int
        Points.
    radius : float
        R of Table 1, in the oracle's units.
    rng : numpy.random.RandomState
    callback : callable, default=None
        ``callback(n_done)``.

    Returns
    -------
    ndarray of shape (n_hessians, m_L, D (D + 1) / 2)
        ``svec`` of every Hessian. Full Hessians exist only for a chunk of points at a time (256 MB).
    """
    D = oracle.n_inputs
    points = random_sphere(n_hessians, D, radius, rng)
    rows, first, chunk = [], 0, 1
    while first < n_hessians:
        H = oracle.hessian(points[first : first + chunk])
        rows.append(svec(H))
        first += len(H)
        chunk = max(1, int(_HESSIAN_CHUNK_BYTES // (8 * H.shape[1] * D * D)))
        if callback is not None:
            callback(first)
    return np.concatenate(rows)


def entangled_subspace(hessians, dimension):
    """The leading subspace of vectorised Hessians.

    Parameters
    ----------
    hessians : ndarray of shape (n, m_L, q) or (n, q)
    dimension : int
        Number of entangled weights m that show in Hessians.

    Returns
    -------
    basis : ndarray of shape (q, dimension)
        Orthonormal.
    singular_values : ndarray of shape (min(n m_L, q),)

    Raises
    ------
    ValueError
        If the dimension exceeds ``D (D + 1) / 2``, the number of vectors, or their numerical rank.

    Notes
    -----
    Source: Algorithm 1 of Fiedler et al. (2021). Cost ``O(n m_L q min(n m_L, q))``.
    """
    q = hessians.shape[-1]
    rows = hessians.reshape(-1, q)
    if dimension > q:
        raise ValueError(
            f"{dimension} units show in the Hessians but symmetric matrices of this size have only {q} free entries "
            "(D (D + 1) / 2): their weights cannot be told apart by second derivatives. "
            "Use fewer units, or first_layer='saturation' with two layers."
        )
    if dimension > len(rows):
        raise ValueError(
            f"{len(rows)} Hessians (n_hessians times outputs) cannot span {dimension} dimensions; raise n_hessians."
        )
    return leading_subspace([rows], dimension)


def check_dimension(singular_values, dimension, n_features, noise=1e-7):
    """Refuse a dimension that the spectrum does not support.

    Raises
    ------
    ValueError
        If the ``dimension``-th singular value is below `noise` times the first: the widths sum to more than the answers
        support, or radius and centre show too little curvature.
    """
    if n_free_entries(n_features) < dimension or singular_values[0] <= 0:
        raise ValueError("the Hessians vanish: the black box is linear around the centre; move center or raise radius.")
    if singular_values[dimension - 1] < noise * singular_values[0]:
        rank = int(np.sum(singular_values >= noise * singular_values[0]))
        raise ValueError(
            f"layer_widths ask for {dimension} units in the Hessians, but these span only {rank} dimensions "
            f"(singular value {dimension} is {singular_values[dimension - 1]:.1e}, the first {singular_values[0]:.1e}). "
            "Give the widths that the black box has, or raise radius, or move center where it is more curved."
        )
