"""Building the context: the span of the entangled weights' outer products, from Hessians (Algorithm 1)."""

from __future__ import annotations

import time

import numpy as np

from skident.budget import rows_at_once
from skident.linalg import DeficientRankError, leading_subspace, n_free_entries, svec, svec_outer
from skident.network import get_activation
from skident.optim import one_blas_thread
from skident.oracle import NotIdentified

from ..query_points import random_sphere

__all__ = [
    "check_visible",
    "entangled_subspace",
    "independence",
    "last_layer_visible",
    "n_visible",
    "sample_hessians",
    "spectral_drop",
    "subspace_in_units",
]

_CHUNKS, _CHUNK_QUERIES = 16, 1024  # so many to share out, but each of so many queries
_WORTH_SHARING = 0.2  # seconds of work below which jobs take longer than they spare


def last_layer_visible(architecture):
    """Whether the last layer's weights show in Hessians: not where the output is linear.

    Parameters
    ----------
    architecture : Architecture

    Returns
    -------
    bool
    """
    return get_activation(architecture.output_activation).curved


def n_visible(architecture):
    """Number of weights that show in Hessians, which is the dimension of their span.

    Parameters
    ----------
    architecture : Architecture

    Returns
    -------
    int
    """
    return sum(architecture.widths) if last_layer_visible(architecture) else architecture.n_hidden


def check_visible(architecture, n_inputs):
    """Raise where Hessians cannot show the weights.

    Parameters
    ----------
    architecture : Architecture
    n_inputs : int
        D.

    Raises
    ------
    ValueError
        If the hidden activation has no second derivative, or more weights show than symmetric matrices have free
        entries, ``D (D + 1) / 2``.
    """
    hidden, m = get_activation(architecture.activation), n_visible(architecture)
    if not hidden.smooth:
        raise NotIdentified(
            "hessians",
            "activation",
            f"activation={hidden.name!r} has no second derivative, so its Hessians show nothing; the Hessian "
            "route needs a smooth activation (tanh, sigmoid, erf, softplus, sin, gelu, silu).",
        )
    if m > n_free_entries(n_inputs):
        raise NotIdentified(
            "hessians",
            "rank",
            f"layer_widths={architecture.widths} ask for m = {m} weights from Hessians, but with D = {n_inputs} inputs "
            f"at most D (D + 1) / 2 = {n_free_entries(n_inputs)} can be told apart; use first_layer='saturation' with "
            "two layers, or more inputs.",
        )


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
        Chunks of points asked at the same time, see `Oracle.query_in_parallel`; the result does not depend on it.
    callback : callable, default=None
        ``callback(n_done)``.

    Returns
    -------
    ndarray of shape (n_hessians, m_L, D (D + 1) / 2)
        ``svec`` of every Hessian. Full Hessians exist only for a chunk of points at a time (128 MB a job).

    Raises
    ------
    BlackBoxError
        (a ValueError) If the black box fails.
    """
    D = oracle.n_inputs
    # Where the black box may not be asked so far away, the nearest points at which differences can be taken.
    points = oracle.clip_to_range(random_sphere(n_hessians, D, radius, rng), 2.0 * oracle.step_size)
    asked, began = oracle.n_queries, time.perf_counter()
    with one_blas_thread():
        rows = [_vectorised_hessians(oracle, points[:1])]
    per_point, seconds = oracle.n_queries - asked, time.perf_counter() - began
    n_jobs = n_jobs if seconds * n_hessians > _WORTH_SHARING else 1
    chunk = _chunk_size(n_hessians, rows[0].shape[1], D)
    chunks = [points[i : i + chunk] for i in range(1, n_hessians, chunk)]
    for part in oracle.query_in_parallel(_vectorised_hessians, chunks, n_jobs, queries_per_row=per_point):
        rows.append(part)
        if callback is not None:
            callback(sum(len(r) for r in rows))
    return np.concatenate(rows)


def _vectorised_hessians(oracle, points):
    return svec(oracle.hessian(points))


def _chunk_size(n_hessians, n_outputs, D):
    """Points of a chunk, the same for any number of jobs."""
    shared_out = max(-(-n_hessians // _CHUNKS), _CHUNK_QUERIES // (2 * D * D + 1))
    return max(1, min(shared_out, rows_at_once(8 * n_outputs * D * D)))


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
        raise NotIdentified(
            "hessians",
            "rank",
            f"{dimension} units show in the Hessians but symmetric matrices of this size have only {q} free entries "
            "(D (D + 1) / 2): their weights cannot be told apart by second derivatives. "
            "Use fewer units, or first_layer='saturation' with two layers.",
        )
    if dimension > len(rows):
        raise NotIdentified(
            "hessians",
            "rank",
            f"{len(rows)} Hessians (n_hessians times outputs) cannot span {dimension} dimensions; raise n_hessians.",
        )
    try:
        if known is None or len(known) == 0:
            return leading_subspace([rows], dimension)
        exact = np.linalg.qr(svec_outer(known).T)[0]
        if dimension <= len(known):
            return exact, _singular_values(rows)
        rest, _ = leading_subspace([rows - (rows @ exact) @ exact.T], dimension - len(known))
        return np.hstack([exact, rest]), _singular_values(rows)
    except DeficientRankError as error:
        raise NotIdentified(
            "hessians",
            "rank",
            f"layer_widths ask for {dimension} units in the Hessians, {0 if known is None else len(known)} of them "
            f"known already; for the rest {error} Give the widths that the black box "
            "has, or raise radius, or move center to where the black box is more curved.",
        ) from error


def _singular_values(rows):
    """Singular values by the smaller Gram matrix, descending."""
    gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
    return np.sqrt(np.clip(np.linalg.eigvalsh(gram)[::-1], 0.0, None))


def independence(basis, vectors):
    """How independent the outer products of vectors are as seen in a subspace of symmetric matrices.

    Parameters
    ----------
    basis : ndarray of shape (q, k)
        Orthonormal `svec` vectors.
    vectors : ndarray of shape (m, D)
        Unit vectors.

    Returns
    -------
    float
        The smallest singular value of ``<v_i v_i^T, B_j>``: far from 0 where the vectors are the rank-one matrices
        that span the subspace. Infinite without vectors.
    """
    return float(np.linalg.svd(svec_outer(vectors) @ basis, compute_uv=False).min(initial=np.inf))


def spectral_drop(singular_values, dimension):
    """How much of the spectrum goes on behind a subspace.

    Parameters
    ----------
    singular_values : ndarray
        Of all Hessians, in decreasing order.
    dimension : int
        Of the subspace, m.

    Returns
    -------
    float
        ``s_{m+1} / s_m``: small where the subspace is that of m weights, near 1 where m is larger than their number or
        weights are lost in what others leave.
    """
    last, following = singular_values[dimension - 1], singular_values[dimension : dimension + 1]
    return float(following[0] / last) if len(following) else 0.0


def subspace_in_units(basis, scale):
    """A subspace of Hessians by standardised inputs as one of Hessians by the inputs themselves.

    Parameters
    ----------
    basis : ndarray of shape (q, k)
        Orthonormal `svec` vectors of Hessians by u, where ``x = center + scale * u``.
    scale : ndarray of shape (D,)

    Returns
    -------
    ndarray of shape (q, k)
        Orthonormal.
    """
    units = svec(1.0 / np.outer(scale, scale)) / svec(np.ones((len(scale),) * 2))
    return np.linalg.qr(units[:, None] * basis)[0]
