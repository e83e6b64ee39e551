"""The weights that show in Hessians: the rank-one matrices in the Hessians' span (Algorithms 1 to 3)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from sklearn.cluster import KMeans

from skident.linalg import RankOneOptions, find_rank_one

from .subspace import check_visible, entangled_subspace, n_visible, sample_hessians

__all__ = ["HessianSearch", "EntangledWeights", "cluster_directions", "find_entangled_weights"]

# Candidates this close (18 degrees) to each other are taken for unconverged copies of one weight.
_COPY_COSINE = 0.95


@dataclass(frozen=True)
class HessianSearch:
    """Where Hessians are taken, and how rank-one matrices are searched in their span.

    Attributes
    ----------
    n_hessians : int
        Points; with 0 nothing is searched.
    radius : float
        Of the sphere on which the points lie, in the oracle's units.
    n_jobs : int or None
        Jobs that ask for Hessians.
    n_init : int or None
        Random starts of the power method's first round; twice the number of missing weights where None.
    max_iter : int
        Of the power method.
    tol : float
        Length of a step at which one of its starts has converged.
    """

    n_hessians: int
    radius: float = 0.01
    n_jobs: int | None = None
    n_init: int | None = None
    max_iter: int = 1000
    tol: float = 1e-8


@dataclass(frozen=True)
class EntangledWeights:
    """What Hessians show of a network's weights.

    Attributes
    ----------
    vectors : ndarray of shape (k, D)
        Unit vectors beside those known before, of no layer yet and of any sign.
    n_missing : int
        Weights that the subspace must hold too, but that were not found.
    hessians : ndarray of shape (n, m_L, q) or None
        As `sample_hessians` gives them; None where none were needed.
    basis : ndarray of shape (q, m) or None
        Of the entangled subspace, orthonormal.
    singular_values : ndarray
        Of all Hessians, descending.
    n_iter : int
        Iterations of the power method's longest run, at least 1.
    """

    vectors: np.ndarray
    n_missing: int = 0
    hessians: np.ndarray | None = None
    basis: np.ndarray | None = None
    singular_values: np.ndarray = field(default_factory=lambda: np.empty(0))
    n_iter: int = 1


def find_entangled_weights(oracle, architecture, known, search, rng, log):
    """Unit weights that the Hessians near the centre show, beside those that are known.

    Parameters
    ----------
    oracle : Oracle
    architecture : Architecture
    known : ndarray of shape (k, D)
        Unit weights that are known exactly and need not be found.
    search : HessianSearch
    rng : numpy.random.RandomState
    log : StageLog
        Gets the stages "Hessians", "subspace" (residual: relative norm of the singular values left out) and "power
        method" (residual: ``1 - ||P_W(u u^T)||_F^2`` of the worst weight).

    Returns
    -------
    EntangledWeights

    Raises
    ------
    ValueError
        If Hessians show nothing, or cannot tell so many weights apart: see `check_visible`, `entangled_subspace`.

    Notes
    -----
    Source: Algorithms 1 to 3 of Fiedler et al. (2021). Queries are those of `sample_hessians`.
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
        found = find_rank_one(
            basis,
            oracle.n_inputs,
            n_vectors=wanted,
            known=known,
            options=RankOneOptions(n_init=search.n_init, max_iter=search.max_iter, tol=search.tol),
            rng=rng,
            callback=lambda n_found, _: entry["progress"](min(n_found, wanted)),
        )
        vectors = _one_each(found.vectors, wanted, rng)
        entry["residual"] = float(1.0 - found.phi.min()) if len(found.phi) else None
    return EntangledWeights(vectors, wanted - len(vectors), hessians, basis, values, max(1, found.n_iter))


def _one_each(vectors, wanted, rng):
    """At most `wanted` different vectors of those that are best first: clusters where copies remain, else the best."""
    if len(vectors) <= wanted or wanted == 0:
        return vectors[:wanted]
    cosines = np.abs(vectors @ vectors.T) - np.eye(len(vectors))
    if cosines.max() > _COPY_COSINE:
        return cluster_directions(vectors, wanted, random_state=rng)
    return vectors[:wanted]


def cluster_directions(vectors, n_clusters, *, random_state=None):
    """One unit vector a cluster of nearly equal directions, up to sign.

    Parameters
    ----------
    vectors : ndarray of shape (n, D)
        Unit vectors.
    n_clusters : int
        At most n.
    random_state : numpy.random.RandomState, default=None

    Returns
    -------
    ndarray of shape (n_clusters, D)

    Notes
    -----
    k-means++ on the vectors folded onto one half space, then each centre replaced by the top eigenvector of its
    members' ``sum v v^T``, which does not care about signs at the fold. Source: Algorithm 3 of Fiedler et al. (2021).
    """
    rng = np.random.RandomState(0) if random_state is None else random_state
    pole = rng.standard_normal(vectors.shape[1])
    folded = vectors * np.where(vectors @ pole < 0, -1.0, 1.0)[:, None]
    labels = KMeans(n_clusters, n_init=5, random_state=rng.randint(2**31 - 1)).fit_predict(folded)
    centers = [np.linalg.svd(folded[labels == k], full_matrices=False)[2][0] for k in range(n_clusters)]
    return np.array(centers)
