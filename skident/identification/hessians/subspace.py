"""Entangled weights near a point: the span of their outer products, and its rank-one matrices (Algorithms 1-3)."""

import time
from dataclasses import dataclass, field

import numpy as np
from sklearn.cluster import KMeans

from skident.budget import rows_at_once
from skident.linalg import (
    DeficientRankError,
    RankOneOptions,
    find_rank_one,
    lapack,
    leading_subspace,
    n_free_entries,
    svd,
    svec,
    svec_outer,
)
from skident.network import get_activation
from skident.optim import one_blas_thread
from skident.oracle import NotIdentified

from ..query_points import random_sphere

_SHARES = 16  # of points, to be shared out among jobs
_STEP_TOL = 1e-8  # length of a step at which a start of the power method has converged: root of eps
_CHUNK_QUERIES = 1024  # per chunk at least; smaller ones cost more in calls than they save
_WORTH_SHARING = 0.2  # seconds of work below which starting jobs takes longer than they save


def last_layer_visible(architecture):
    """Whether Hessians depend on the last layer's weights as on others: not if the output is linear."""
    return get_activation(architecture.output_activation).curved


def n_visible(architecture):
    """Number of weights that Hessians determine, which is the dimension of their span."""
    return sum(architecture.widths) if last_layer_visible(architecture) else architecture.n_hidden


def check_visible(architecture, n_inputs):
    """Raise NotIdentified if Hessians in `n_inputs` variables cannot determine the weights.

    Either the hidden activation has no second derivative, or there are more weights than the free entries
    ``D (D + 1) / 2`` of a symmetric matrix.
    """
    hidden, m = get_activation(architecture.activation), n_visible(architecture)
    if not hidden.smooth:
        raise NotIdentified(
            "hessians",
            "activation",
            f"activation={hidden.name!r} has no second derivative, so its Hessians determine nothing; the Hessian "
            "route needs a smooth activation (tanh, sigmoid, erf, softplus, sin, gelu, silu).",
        )
    if m > n_free_entries(n_inputs):
        raise NotIdentified(
            "hessians",
            "rank",
            f"layer_widths={architecture.widths} request m = {m} weights from Hessians, but with D = {n_inputs} inputs "
            f"at most D (D + 1) / 2 = {n_free_entries(n_inputs)} are determined; use first_layer='saturation' with "
            "two layers, or more inputs.",
        )


def sample_hessians(oracle, n_hessians, radius, *, rng, n_jobs=None, callback=None):
    """Hessians of all outputs at random points of a sphere around the center, as svec: (n, m_L, D (D + 1) / 2).

    `radius` is R of Table 1, in the oracle's units; ``callback(n_done)``. Chunks of points are queried in `n_jobs`
    jobs, which do not change the result. Full Hessians exist for a chunk of points at a time only (128 MB per job).
    """
    D = oracle.n_inputs
    # If the black box may not be queried so far away, the nearest points at which differences can be taken.
    points = oracle.clip_to_range(random_sphere(n_hessians, D, radius, rng), 2.0 * oracle.step_size)
    before, began = oracle.n_queries, time.perf_counter()
    with one_blas_thread():
        parts = [_packed_hessians(oracle, points[:1])]
    per_point, seconds = oracle.n_queries - before, time.perf_counter() - began
    n_jobs = n_jobs if seconds * n_hessians > _WORTH_SHARING else 1
    chunk = _chunk_size(n_hessians, parts[0].shape[1], D)
    chunks = [points[i : i + chunk] for i in range(1, n_hessians, chunk)]
    for part in oracle.query_in_parallel(_packed_hessians, chunks, n_jobs, queries_per_row=per_point):
        parts.append(part)
        if callback is not None:
            callback(sum(len(p) for p in parts))
    return np.concatenate(parts)


def _packed_hessians(oracle, points):
    return svec(oracle.hessian(points))


def _chunk_size(n_hessians, n_outputs, D):
    """Points per chunk, the same for any number of jobs."""
    shared_out = max(-(-n_hessians // _SHARES), _CHUNK_QUERIES // (2 * D * D + 1))
    return max(1, min(shared_out, rows_at_once(8 * n_outputs * D * D)))


def entangled_subspace(hessians, dimension, known=None):
    """Orthonormal basis (q, dimension) of the leading subspace of svec Hessians (..., q), and their singular values.

    `known` (k, D) are unit vectors among the weights that are known exactly, as the first layer is from saturation and
    the last from the Jacobian. Their outer products are put into the subspace as they are and only the rest is
    estimated, which makes the distance to the true subspace two to five times smaller.
    Raises NotIdentified if the dimension exceeds q, the number of Hessians, or their numerical rank.
    Source: Algorithm 1 of Fiedler et al. (2021). ``O(n m_L q min(n m_L, q))``.
    """
    q = hessians.shape[-1]
    H = hessians.reshape(-1, q)
    if dimension > q:
        raise NotIdentified(
            "hessians",
            "rank",
            f"{dimension} units determine the Hessians, but symmetric matrices of this size have only {q} free entries "
            "(D (D + 1) / 2): second derivatives do not determine their weights. "
            "Use fewer units, or first_layer='saturation' with two layers.",
        )
    if dimension > len(H):
        raise NotIdentified(
            "hessians",
            "rank",
            f"{len(H)} Hessians (n_hessians times outputs) cannot span {dimension} dimensions; raise n_hessians.",
        )
    try:
        if known is None or len(known) == 0:
            return leading_subspace([H], dimension)
        exact = lapack.qr(svec_outer(known).T)[0]
        if dimension <= len(known):
            return exact, _singular_values(H)
        rest, _ = leading_subspace([H - (H @ exact) @ exact.T], dimension - len(known))
        # Directions of small singular values carry the rounding of the subtraction.
        rest = lapack.qr(rest - exact @ (exact.T @ rest))[0]
        return np.hstack([exact, rest]), _singular_values(H)
    except DeficientRankError as error:
        raise NotIdentified(
            "hessians",
            "rank",
            f"layer_widths request {dimension} units in the Hessians, {0 if known is None else len(known)} of them "
            f"known already; for the rest {error} Give the widths that the black box "
            "has, or raise radius, or move center to where the black box is more curved.",
        ) from error


def _singular_values(H):
    """Singular values by the smaller Gram matrix, descending."""
    gram = H @ H.T if len(H) <= H.shape[1] else H.T @ H
    return np.sqrt(np.clip(lapack.eigvalsh(gram)[::-1], 0.0, None))


def independence(basis, vectors):
    """Smallest singular value of ``<v_i v_i^T, B_j>`` for unit vectors (m, D) and an orthonormal svec basis (q, k).

    Far from 0 if the vectors are the rank-one matrices that span the subspace; infinite without vectors.
    """
    return float(svd(svec_outer(vectors) @ basis, compute_uv=False).min(initial=np.inf))


def spectral_drop(singular_values, dimension):
    """``s_{m+1} / s_m`` of the Hessians for a subspace of dimension m.

    Small if the subspace is that of m weights, near 1 if m is larger than their number or weights are lost in what the
    others leave.
    """
    last, following = singular_values[dimension - 1], singular_values[dimension : dimension + 1]
    return float(following[0] / last) if len(following) else 0.0


def subspace_in_units(basis, scale):
    """An orthonormal svec basis (q, k) of Hessians by u as one of Hessians by ``x = center + scale * u``."""
    units = svec(1.0 / np.outer(scale, scale)) / svec(np.ones((len(scale),) * 2))
    return lapack.qr(units[:, None] * basis)[0]


_COPY_COSINE = 0.95  # of two candidates (18 degrees) that are taken for unconverged copies of one weight
_KMEANS_STARTS = 5  # of k-means++; budget


@dataclass(frozen=True)
class HessianSearch:
    """Where Hessians are taken, and how rank-one matrices are searched in their span.

    Without Hessians (0) nothing is searched. `radius` is in the oracle's units; `n_starts` are the random starts of the
    power method's first round (None: twice the number of missing weights).
    """

    n_hessians: int
    radius: float = 0.01
    n_jobs: int | None = None
    n_starts: int | None = None
    max_iter: int = 1000


@dataclass(frozen=True)
class EntangledWeights:
    """Unit weights (k, D) recovered from Hessians beside those known before, of unknown layer and sign.

    `n_missing` weights of the subspace were not recovered. The Hessians (n, m_L, q) and the basis (q, m) of their
    subspace are None if none were needed; `n_iter` is that of the power method's longest run, at least 1.
    """

    vectors: np.ndarray
    n_missing: int = 0
    hessians: np.ndarray | None = None
    basis: np.ndarray | None = None
    singular_values: np.ndarray = field(default_factory=lambda: np.empty(0))
    n_iter: int = 1


def find_entangled_weights(oracle, architecture, known, search, rng, log):
    """`EntangledWeights` of Hessians near the center, beside the unit weights `known` (k, D) exactly.

    The log gets the stages "Hessians", "subspace" (residual: relative norm of the singular values left out) and "power
    method" (residual: ``1 - ||P_W(u u^T)||_F^2`` of the worst weight). Raises as `check_visible`, `entangled_subspace`.
    Source: Algorithms 1 to 3 of Fiedler et al. (2021).
    """
    if search.n_hessians == 0:
        return EntangledWeights(known[:0])
    check_visible(architecture, oracle.n_inputs)
    m = n_visible(architecture)
    with log.stage("Hessians", oracle, search.n_hessians, "Hessians") as entry:
        hessians = sample_hessians(
            oracle, search.n_hessians, search.radius, rng=rng, n_jobs=search.n_jobs, callback=entry["progress"]
        )
    with log.stage("subspace") as entry:
        basis, values = entangled_subspace(hessians, m, known)
        entry["residual"] = float(np.linalg.norm(values[m:]) / np.linalg.norm(values))
    wanted = max(0, m - len(known))
    with log.stage("power method", total=wanted, unit="units") as entry:
        result = find_rank_one(
            basis,
            oracle.n_inputs,
            n_vectors=wanted,
            known=known,
            options=RankOneOptions(n_starts=search.n_starts, max_iter=search.max_iter, tol=_STEP_TOL),
            rng=rng,
            callback=lambda n_found, _: entry["progress"](min(n_found, wanted)),
        )
        vectors = _without_copies(result.vectors, wanted, rng)
        entry["residual"] = float(1.0 - result.phi.min()) if len(result.phi) else None
    return EntangledWeights(vectors, wanted - len(vectors), hessians, basis, values, max(1, result.n_iter))


def _without_copies(vectors, wanted, rng):
    """At most `wanted` vectors of those sorted by quality: cluster centers if copies remain, else the first ones."""
    if len(vectors) <= wanted or wanted == 0:
        return vectors[:wanted]
    cosines = np.abs(vectors @ vectors.T) - np.eye(len(vectors))
    if cosines.max() > _COPY_COSINE:
        return cluster_directions(vectors, wanted, random_state=rng)
    return vectors[:wanted]


def cluster_directions(vectors, n_clusters, *, random_state=None):
    """One unit vector per cluster (n_clusters, D) of nearly equal directions (n, D), up to sign.

    k-means++ on the vectors folded onto one half space, then each center replaced by the top eigenvector of its
    members' ``sum v v^T``, which does not depend on signs at the fold. Source: Algorithm 3 of Fiedler et al. (2021).
    """
    rng = np.random.RandomState(0) if random_state is None else random_state
    pole = rng.standard_normal(vectors.shape[1])
    folded = vectors * np.where(vectors @ pole < 0, -1.0, 1.0)[:, None]
    labels = KMeans(n_clusters, n_init=_KMEANS_STARTS, random_state=rng.randint(2**31 - 1)).fit_predict(folded)
    centers = [svd(folded[labels == k], full_matrices=False)[2][0] for k in range(n_clusters)]
    return np.array(centers)
