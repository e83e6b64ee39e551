"""Candidates for units of the next layer: critical points in different linear regions that one unit explains."""

import numpy as np

from skident.budget.constants import MANY_ROUNDS
from skident.linalg import svd

from ...constants import INSIDE, NORMAL_RANK_TOL, SAME_PART

_LEAST_PART = 0.05  # of a unit's weights on which two parts must agree
_LEAST_SHARED = 1  # weights that two parts must share, beside the bias
_SAME_JUMP = 3e-6  # sine of the angle between jumps of one unit in one pattern of the layers behind it
_LARGEST_CLUSTER = 200  # critical points of which equations are formed (budget)


def partial_units(H, A, N):
    """Weights (n, m) and biases (n,) of units through points with normals N (n, D), where these are unique.

    Outputs H (n, m) of the known layers have gradients A (n, m, D): a unit's normal is a combination of the gradients
    of the active ones. Also masks: whether the normal is such a combination (n,), and whether it is a unique one (n,).
    """
    U, s, Vt = svd(A, full_matrices=False)
    kept = s > NORMAL_RANK_TOL * np.maximum(s[:, :1], np.finfo(float).tiny)
    y = np.einsum("nrd,nd->nr", Vt, N) * kept
    inside = np.linalg.norm(N - np.einsum("nrd,nr->nd", Vt, y), axis=1) < INSIDE
    w = np.einsum("nmr,nr->nm", U, np.where(kept, y / np.where(kept, s, 1.0), 0.0))
    active = np.any(A != 0.0, axis=2)
    unique = inside & (kept.sum(axis=1) == active.sum(axis=1)) & active.any(axis=1)
    w = np.where(active, w, 0.0)
    w /= np.maximum(np.linalg.norm(w, axis=1, keepdims=True), np.finfo(float).tiny)
    return w, -np.einsum("nm,nm->n", w, H), inside, unique


def grown(w, b, active, scale, seed, free):
    """A candidate (weights (m,), bias, mask (m,), mask of its parts (n,)) from one of the partial units (n, m).

    Two parts belong together if they agree, up to a factor, on the weights that they share and on the bias, which
    counts in units of `scale`, the size of the outputs before. Only parts that are `free` (n,) are joined.
    """
    c, bias, mask = w[seed].copy(), b[seed], active[seed].copy()
    members = np.zeros(len(w), dtype=bool)
    members[seed] = True
    least = w.shape[1] if active.all() else _LEAST_SHARED
    for _ in range(MANY_ROUNDS):
        shared = active & mask
        cm, vm = shared * c, shared * w
        size = np.sum(vm**2, axis=1) + (b / scale) ** 2
        own = np.sum(cm**2, axis=1) + (bias / scale) ** 2
        factor = (np.sum(cm * vm, axis=1) + bias * b / scale**2) / np.maximum(size, np.finfo(float).tiny)
        off = np.sum((cm - factor[:, None] * vm) ** 2, axis=1) + ((bias - factor * b) / scale) ** 2
        agree = (shared.sum(axis=1) >= least) & (off < SAME_PART**2 * own) & ~members & free
        agree &= np.sum(cm**2, axis=1) > _LEAST_PART**2 * (c @ c)
        if not agree.any():
            break
        for i in np.flatnonzero(agree):
            new = active[i] & ~mask
            c[new], mask = factor[i] * w[i, new], mask | active[i]
            members[i] = True
    return c, bias, mask, members


def clusters_of_jumps(U, line, least):
    """Lists of critical points with one jump direction U (n, m_L), on two lines or more: one unit in one pattern."""
    near = 1.0 - (U @ U.T) ** 2 < _SAME_JUMP**2
    free, found = np.ones(len(U), dtype=bool), []
    for i in np.argsort(-near.sum(axis=1), kind="stable"):
        index = np.flatnonzero(near[i] & free)
        if not free[i]:
            continue
        free[index] = False
        if len(index) >= least and len(np.unique(line[index])) > 1:
            found.append(index[:_LARGEST_CLUSTER])
    return found


def unit_equations(H, A, N):
    """Equations E (n D + n, m + 1) with ``E x = 0`` for a unit x = (w, b), and B, whose size they are relative to.

    They are those of the normals N (n, D) and of the value at the points, relative to the gradients and features.
    """
    n, m, _ = A.shape
    B = np.swapaxes(A, 1, 2)
    size = np.sqrt(np.sum(B**2, axis=(1, 2))) + np.finfo(float).tiny
    B = B / size[:, None, None]
    E = B - N[:, :, None] * np.einsum("nd,ndm->nm", N, B)[:, None]
    v = np.column_stack([H, np.ones(n)])
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    E, B = (np.column_stack([part.reshape(-1, m), np.zeros(part.size // m)]) for part in (E, B))
    return np.vstack([E, v]), np.vstack([B, v])


def gram_matrices(H, A, N):
    """Matrices G and F (m + 1, m + 1) such that ``x^T G x / x^T F x`` is the residual of a unit x = (w, b)."""
    E, B = unit_equations(H, A, N)
    return E.T @ E, B.T @ B
