"""Units that are missing in a known layer because they are always active: linear parts of deeper normals."""

from __future__ import annotations

import numpy as np

from skident.linalg import lapack, svd

from ..constants import REWEIGHTINGS
from ..measure.outputs import SIGNIFICANCE
from .prefix import Prefix

__all__ = ["missing_direction"]

_FEWEST = 4  # normals that show a missing unit, beyond the unknowns over the equations of one
_EXPLAINED = 0.8  # of these that one direction must explain


def missing_direction(prefix, record, index, tol):
    """Weights (m,) of a unit of the last layer that is active at nearly all of some bends with normals; or None.

    The normals of deeper boundaries are combinations of the gradients of this layer's units. With a projector R off
    those of the known ones, ``R n`` is parallel to ``R A v`` if A are the gradients of the layer before: linear
    equations for the weights v, which are undetermined along those of the known units.
    """
    if len(index) == 0:
        return None
    P, W = record.points[index], prefix.top.weights
    A = Prefix(prefix.n_inputs, prefix.layers).gradients(P)[1][:, :-1]
    G = prefix.gradients(P)[0][:, prefix.first :]
    U, s, _ = svd(W)
    free = U[:, int((s > tol * s[0]).sum()) :]
    blocks = []
    for n, error, a, g in zip(record.normals[index], record.normal_errors[index], A, G, strict=True):
        n, slack = n / np.linalg.norm(n), tol + SIGNIFICANCE * error
        _, s, Vt = svd(g, full_matrices=False)
        Q = Vt[s > tol * max(s[0], 1e-300)]
        rest, B = n - Q.T @ (Q @ n), free.T @ a
        B = B - (B @ Q.T) @ Q
        size = np.linalg.norm(B)
        if np.linalg.norm(rest) > slack and size > 0:
            rest /= np.linalg.norm(rest)
            blocks.append((B - np.outer(B @ rest, rest)) / size)
    if free.shape[1] == 0 or len(blocks) < _FEWEST + free.shape[1]:
        return None
    M = np.array(blocks)
    squares, weights = np.einsum("nik,njk->nij", M, M), np.ones(len(M))
    for _ in range(REWEIGHTINGS):
        v = lapack.eigh(np.einsum("n,nij->ij", weights, squares))[1][:, 0]
        off = np.linalg.norm(np.einsum("i,nik->nk", v, M), axis=1)
        weights = 1.0 / (off + tol**2)
    return free @ v if np.mean(off < np.sqrt(tol)) > _EXPLAINED else None
