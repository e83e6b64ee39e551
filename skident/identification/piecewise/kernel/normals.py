"""Normals of kinks from where these show nearby: far more exact on noisy answers than gradients are."""

from __future__ import annotations

import numpy as np

from skident.budget import chunks

from .locate import locate
from .robust_fit import active_set_fit

__all__ = ["normals_from_positions"]

_REACHES = (0.1, 0.3)  # of the room of a kink, in turn
_SPARE = 8  # positions beyond the unknowns
_NARROWEST = 0.05  # of a reach, half width of windows
_COPIES = 12  # of a chunk of points: tangents, points, normals, and five points of a window each, twice
_UNSURE = 3.0  # errors of the normal that windows allow for


def normals_from_positions(answers, points, normals, errors, rooms, rng):
    """Planes of least squares through kinks around other kinks.

    Parameters
    ----------
    answers : Answers
    points, normals : ndarray of shape (n, D)
        The normals have norm 1.
    errors : ndarray of shape (n,)
        Of the normals.
    rooms : ndarray of shape (n,)
        Distances up to which there is no other kink in some direction.
    rng : numpy.random.RandomState

    Returns
    -------
    normals : ndarray of shape (n, D)
        Those given where the new ones are no better.
    errors : ndarray of shape (n,)

    Raises
    ------
    BlackBoxError
        If the black box fails.

    Notes
    -----
    ``10 D + 80`` queries a kink. A position is known to ``tol / size``, with a jump of this size and answers good to
    tol; planes through positions at a distance r to that over r, gradients with a step h only to ``sqrt(D) / h`` of it,
    and h is far smaller.
    """
    normals, errors = normals.copy(), errors.copy()
    for reach in _REACHES:
        for some in chunks(len(points), _COPIES * 8 * (points.shape[1] + _SPARE) * points.shape[1]):
            _tilt(answers, points[some], normals[some], errors[some], reach * rooms[some], rng)
    return normals, errors


def _tilt(answers, points, normals, errors, r, rng):
    """Replace normals and their errors, in place, by those of planes through kinks at distances r where better."""
    n, D = points.shape
    tangents = rng.standard_normal((n, D + _SPARE, D))
    tangents -= np.einsum("nqd,nd->nq", tangents, normals)[:, :, None] * normals[:, None]
    tangents /= np.linalg.norm(tangents, axis=2, keepdims=True)
    P = points[:, None] + r[:, None, None] * tangents
    width = np.repeat(np.clip(_UNSURE * errors, _NARROWEST, 1.0) * r, D + _SPARE)
    there = locate(answers, P.reshape(-1, D), np.repeat(normals, D + _SPARE, axis=0), width)
    offset, error, found = (np.reshape(v, (n, -1)) for v in there)
    for i in np.flatnonzero(found.sum(axis=1) >= D + 3):
        hit = found[i]
        normal, e = _through(tangents[i, hit], offset[i, hit] / r[i], error[i, hit] / r[i], normals[i])
        if e < errors[i]:
            normals[i], errors[i] = normal, e


def _through(tangents, offsets, errors, normal):
    """The normal of the plane through points beside one of a given normal, at distance 1 from it; and its error."""
    free = np.linalg.svd(normal[None])[2][1:].T
    fit = active_set_fit(np.column_stack([tangents @ free, np.ones(len(offsets))]), offsets, errors)
    if fit is None:
        return normal, np.inf
    tilted = normal - free @ fit.solution[:-1]
    return tilted / np.linalg.norm(tilted), float(np.sqrt(np.trace(fit.scatter[:-1, :-1])))
