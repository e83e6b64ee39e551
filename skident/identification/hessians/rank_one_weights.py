"""Entangled weights as the rank-one matrices in the span of Hessians (Algorithms 1 to 3 of Fiedler et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from sklearn.cluster import KMeans

from skident.linalg import RankOneOptions, find_rank_one

from .subspace import check_visible, entangled_subspace, n_visible, sample_hessians

__all__ = ["EntangledWeights", "HessianSearch", "cluster_directions", "find_entangled_weights"]

_COPY_COSINE = 0.95  # of two candidates (18 degrees) that are taken for unconverged copies of one weight
_KMEANS_STARTS = 5  # of k-means++; budget


@dataclass(frozen=True)
class HessianSearch:
    """Where Hessians are taken, and how rank-one matrices are searched in their span.

    Without Hessians (0) nothing is searched. `radius` is in the oracle's units; `n_starts` are the random starts of the
    power method's first round (None: twice the number of missing weights), `tol` the length of a step at which a start
    has converged.
    """

    n_hessians: int
    radius: float = 0.01
    n_jobs: int | None = None
    n_starts: int | None = None
    max_iter: int = 1000
    tol: float = 1e-8


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
            options=RankOneOptions(n_init=search.n_starts, max_iter=search.max_iter, tol=search.tol),
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
    centers = [np.linalg.svd(folded[labels == k], full_matrices=False)[2][0] for k in range(n_clusters)]
    return np.array(centers)
