"""Which layer a recovered weight belongs to (Algorithms 3, 4 and 5), and the last layer from the Jacobian."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans

from skident.linalg import leading_subspace, svec_outer

from .subspace import sample_hessians

__all__ = [
    "cluster_directions",
    "detect_first_layer",
    "detect_last_layer",
    "last_layer_from_jacobian",
    "match_directions",
]


def _unit_rows(V):
    return V / np.linalg.norm(V, axis=1, keepdims=True)


def cluster_directions(vectors, n_clusters, *, random_state=None):
    """One unit vector a cluster of nearly equal directions, up to sign.

    Parameters
    ----------
    vectors : ndarray of shape (n, D)
        Unit vectors.
    n_clusters : int
        At most n.

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


def match_directions(targets, candidates):
    """Best one-to-one match of directions up to sign.

    Returns
    -------
    index : ndarray of shape (k,)
        ``candidates[index[i]]`` belongs to ``targets[i]``.
    cosine : ndarray of shape (k,)
        Absolute cosines of the pairs.
    """
    cosines = np.abs(_unit_rows(targets) @ _unit_rows(candidates).T)
    rows, cols = linear_sum_assignment(cosines, maximize=True)
    index = np.empty(len(targets), dtype=int)
    index[rows] = cols
    return index, cosines[np.arange(len(targets)), index]


def detect_first_layer(oracle, candidates, n_first, *, n_hessians=400, radius=None, rng=None):
    """Indices of the candidates most like rank-one parts of far Hessians.

    Parameters
    ----------
    oracle : Oracle
    candidates : ndarray of shape (m, D)
        Unit vectors.
    n_first : int
        m_1.
    n_hessians : int, default=400
    radius : float, default=None
        ``20 sqrt(D)`` as in Table 1.
    rng : numpy.random.RandomState, default=None

    Returns
    -------
    index : ndarray of shape (n_first,)
    similarity : ndarray of shape (m,)
        ``Sim_1`` of eq. (17): ``max |<v v^T, H / ||H||>|`` over the Hessians.

    Notes
    -----
    Source: Algorithm 4 of Fiedler et al. (2021).
    """
    rng = np.random.RandomState(0) if rng is None else rng
    radius = 20.0 * np.sqrt(oracle.n_inputs) if radius is None else radius
    outer = svec_outer(candidates)
    similarity = np.zeros(len(candidates))
    for first in range(0, n_hessians, 50):
        H = sample_hessians(oracle, min(50, n_hessians - first), radius, rng=rng).reshape(-1, outer.shape[1])
        norms = np.linalg.norm(H, axis=1)
        H = H[norms > 1e-6 * max(norms.max(), np.finfo(float).tiny)]
        H /= np.linalg.norm(H, axis=1, keepdims=True)
        if len(H):
            similarity = np.maximum(similarity, np.abs(H @ outer.T).max(axis=0))
    return np.argsort(-similarity, kind="stable")[:n_first], similarity


def detect_last_layer(hessians, candidates, dimension):
    """Which candidates belong to the last layer, and to which output, from subspaces with one output left out.

    Parameters
    ----------
    hessians : ndarray of shape (n, m_L, q)
        From `sample_hessians`, reused.
    candidates : ndarray of shape (m, D)
        Unit vectors; those of the first layer may have been taken out before.
    dimension : int
        Of every ``f_{-p}``'s subspace: all weights that show in Hessians less one.

    Returns
    -------
    index : ndarray of shape (m_L,)
        Candidate of every output, in the outputs' order.
    similarity : ndarray of shape (m,)
        ``Sim_L``; smallest for the last layer.

    Raises
    ------
    ValueError
        If there is one output only: leaving it out leaves nothing.

    Notes
    -----
    Source: Algorithm 5 of Fiedler et al. (2021); the outputs are matched to the scores' minima one to one. One
    `leading_subspace` an output.
    """
    n, m_out, q = hessians.shape
    if m_out < 2:
        raise ValueError(
            "last_layer='hessian' (Algorithm 5) needs at least 2 outputs, got 1; use last_layer='jacobian'."
        )
    outer = svec_outer(candidates)
    dimension = min(dimension, n * (m_out - 1), q)
    scores = np.empty((m_out, len(candidates)))
    for p in range(m_out):
        rest = np.delete(hessians, p, axis=1).reshape(-1, q)
        basis, _ = leading_subspace([rest], dimension)
        scores[p] = np.linalg.norm(outer @ basis, axis=1)
    scores /= np.linalg.norm(scores, axis=0)
    similarity = scores.sum(axis=0)
    last = np.argsort(similarity, kind="stable")[:m_out]
    _, cols = linear_sum_assignment(scores[:, last])
    return last[cols], similarity


def last_layer_from_jacobian(oracle, others=None):
    """The last layer's entangled weights at the centre: ``grad f_p(x*) = g'(.) v_p(x*)``.

    Parameters
    ----------
    oracle : Oracle
    others : ndarray of shape (k, D), default=None
        Points to try instead, in turn, where some output does not move at the centre: all its units may be saturated.

    Returns
    -------
    ndarray of shape (m_L, D)
        Signed (for an increasing output activation) and in the outputs' order; lengths include ``g'``.

    Raises
    ------
    ValueError
        If an output does not move at any of the points.

    Notes
    -----
    Source: eq. (7) of Fiedler et al. (2021). ``2 D + 1`` queries a point with central differences.
    """
    D = oracle.n_inputs
    for u in np.concatenate([np.zeros((1, D)), np.empty((0, D)) if others is None else others]):
        J, values = oracle.jacobian(u[None])[0], oracle(u[None])[0]
        norms = np.linalg.norm(J, axis=1)
        # Differences of a constant are its rounding, 4e-11 of it. Outputs may differ in unit, so each by its own.
        still = norms <= 1e-9 * np.abs(values)
        if not still.any():
            return J
    p = int(np.argmax(still))
    raise ValueError(
        f"output {p} does not move at the centre (gradient norm {norms[p]:.1e}, value {values[p]:.3g}); its "
        "weights cannot be seen there. Move center, or check that the black box depends on X."
    )
