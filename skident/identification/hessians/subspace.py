"""Building the context: the span of the entangled weights' outer products, from Hessians (Algorithm 1)."""

from __future__ import annotations

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from skident.linalg import leading_subspace, svec, svec_outer

__all__ = ["entangled_subspace", "random_sphere", "sample_hessians"]

_HESSIAN_CHUNK_BYTES = 2**27


def random_sphere(n_samples, n_features, radius, rng):
    """Points uniform on the sphere of the given radius, (n, D)."""
    X = rng.standard_normal((n_samples, n_features))
    return radius * X / np.linalg.norm(X, axis=1, keepdims=True)


def sample_hessians(oracle, n_hessians, radius, *, rng, n_jobs=None, callback=None):
    """Vectorised Hessians of all outputs at random points of a sphere around the oracle's centre.

    Parameters
    ----------
    oracle : Oracle
    n_hessians : int
        Points.
    radius : float
        R of Table 1, in the oracle's units.
    rng : numpy.random.RandomState
    n_jobs : int, default=None
        Threads; the points, and so the result, do not depend on it.
    callback : callable, default=None
        ``callback(n_done)``.

    Returns
    -------
    ndarray of shape (n_hessians, m_L, D (D + 1) / 2)
        ``svec`` of every Hessian. Full Hessians exist only for a chunk of points at a time (128 MB a thread).
    """
    D = oracle.n_inputs
    # Where the black box may not be asked so far away, the nearest points at which differences can be taken.
    points = oracle.confined(random_sphere(n_hessians, D, radius, rng), 2.0 * oracle.step_size)
    # Many small products: see `least_squares.minimise` for the one BLAS thread.
    with threadpool_limits(limits=1, user_api="blas"):
        return _in_chunks(oracle, points, n_jobs, callback)


def _in_chunks(oracle, points, n_jobs, callback):
    """`svec` of the Hessians at all points, a bounded number of points at a time."""
    n_hessians, D = points.shape
    rows = [svec(oracle.hessian(points[:1]))]
    chunk = max(1, int(_HESSIAN_CHUNK_BYTES // (8 * rows[0].shape[1] * D * D)))
    chunks = [points[i : i + chunk] for i in range(1, n_hessians, chunk)]
    parallel = Parallel(n_jobs=n_jobs, require="sharedmem", return_as="generator")
    for part in parallel(delayed(lambda U: svec(oracle.hessian(U)))(U) for U in chunks):
        rows.append(part)
        if callback is not None:
            callback(sum(len(r) for r in rows))
    return np.concatenate(rows)


def entangled_subspace(hessians, dimension, known=None):
    """The leading subspace of vectorised Hessians.

    Parameters
    ----------
    hessians : ndarray of shape (n, m_L, q) or (n, q)
    dimension : int
        Number of entangled weights m that show in Hessians.
    known : ndarray of shape (k, D), default=None
        Unit vectors among them that are known exactly, as the first layer is from saturation and the last from the
        Jacobian. Their outer products are put into the subspace as they are and only the rest is estimated, which
        brings the distance to the true subspace down two to five times.

    Returns
    -------
    basis : ndarray of shape (q, dimension)
        Orthonormal.
    singular_values : ndarray of shape (min(n m_L, q),)
        Of all Hessians, known weights included.

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
    try:
        if known is None or len(known) == 0:
            return leading_subspace([rows], dimension)
        exact = np.linalg.qr(svec_outer(known).T)[0]
        if dimension <= len(known):
            return exact, _singular_values(rows)
        rest, _ = leading_subspace([rows - (rows @ exact) @ exact.T], dimension - len(known))
        return np.hstack([exact, rest]), _singular_values(rows)
    except ValueError as error:
        raise ValueError(
            f"layer_widths ask for {dimension} units in the Hessians, {0 if known is None else len(known)} of them "
            f"known already; for the rest {error} Give the widths that the black box "
            "has, or raise radius, or move center to where the black box is more curved."
        ) from error


def _singular_values(rows):
    """Singular values by the smaller Gram matrix, descending."""
    gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
    return np.sqrt(np.clip(np.linalg.eigvalsh(gram)[::-1], 0.0, None))
