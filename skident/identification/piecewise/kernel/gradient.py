"""Gradients of piecewise linear answers by differences whose steps stay within one piece."""

from __future__ import annotations

import numpy as np

from skident.budget import rows_at_once

__all__ = ["gradients_at"]

_FORWARD = 0.02  # step of forward differences, as a fraction of the room along the line
_FEW = 15  # inputs up to which central differences cost little
_ROWS = 2**24  # numbers handed over at once
_COPIES = 4  # of these: points, inputs, and both of central differences


def gradients_at(probe, centers, rooms, rng, careful=False):
    """Gradients of a probe's answers at points of straight pieces.

    Differences along a random orthonormal frame. Between kinks any step is exact to rounding: forward ones first, all
    checked at once by one more point; where that fails, inputs are few or answers are not exact, central ones.

    Parameters
    ----------
    probe : Probe
    centers : ndarray of shape (n, D)
    rooms : ndarray of shape (n,)
        How far the piece goes on, at least in one direction.
    rng : numpy.random.RandomState
    careful : bool, default=False
        Central differences with steps as wide as can be, some thirty times as accurate.

    Returns
    -------
    gradients : ndarray of shape (n, m_L, D)
    errors : ndarray of shape (n,)
        Norms of their errors; infinite where no straight piece was found.
    """
    n, D = centers.shape
    frame = np.linalg.qr(rng.standard_normal((D, D)))[0]
    size = rows_at_once(_COPIES * 8 * D**2, at_most=max(1, _ROWS // D**2))
    parts = []
    for i in range(0, n, size):
        some = slice(i, i + size)
        f, tol = probe.ask(centers[some])
        if probe.exact and D > _FEW and not careful:
            slopes, errors = _forward(probe, centers[some], rooms[some], frame, f, tol, rng)
        else:
            slopes, errors = _central(probe, centers[some], rooms[some], frame, f, tol)
        parts.append((np.swapaxes(slopes, 1, 2) @ frame.T, errors))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _forward(probe, centers, rooms, frame, f, tol, rng):
    """Slopes (n, D, m_L) along a frame by forward differences, the bad ones by central differences."""
    n, D = centers.shape
    h = _FORWARD * rooms
    moved, tols = probe.ask((centers[:, None] + h[:, None, None] * frame.T).reshape(-1, D))
    slopes = (moved.reshape(n, D, -1) - f[:, None]) / h[:, None, None]
    errors = 1.5 * np.sqrt(np.sum(tols.reshape(n, D) ** 2, axis=1) + D * tol**2) / h / np.sqrt(2.0)
    mix = rng.choice([-1.0, 1.0], (n, D)) / np.sqrt(D)
    check, tol_check = probe.ask(centers + h[:, None] * (mix @ frame.T))
    gap = np.abs(check - f - h[:, None] * np.einsum("nd,ndm->nm", mix, slopes)).max(axis=1)
    with np.errstate(invalid="ignore"):
        bad = ~(gap <= 4.0 * (tol + tol_check)) | np.isinf(errors)
    if bad.any():
        slopes[bad], errors[bad] = _central(probe, centers[bad], rooms[bad], frame, f[bad], tol[bad])
    return slopes, errors


def _central(probe, centers, rooms, frame, f, tol):
    """Slopes (n, D, m_L) along a frame by central differences, and the norms (n,) of their errors.

    Every step is the widest of a sequence, from the room (n,) around the point on, for which the point lies on the
    chord.
    """
    n, D = centers.shape
    steps = np.repeat(0.7 * rooms[:, None], D, axis=1)
    slopes, blurs = np.zeros((n, D, f.shape[1])), np.zeros((n, D))
    piece, column = (index.ravel() for index in np.indices((n, D)))
    for _ in range(12):
        h = steps[piece, column][:, None]
        move = h * frame.T[column]
        both, tols = probe.ask(np.concatenate([centers[piece] + move, centers[piece] - move]))
        (after, before), worst = np.split(both, 2), np.maximum(*np.split(tols, 2))
        slopes[piece, column] = (after - before) / (2.0 * h)
        blurs[piece, column] = worst / h[:, 0]
        sag = np.abs(after - 2.0 * f[piece] + before).max(axis=1)
        bent = (sag > 4.0 * np.maximum(tol[piece], worst)) | np.isinf(worst)
        piece, column = piece[bent], column[bent]
        if len(piece) == 0:
            break
        steps[piece, column] *= 0.3
    errors = np.sqrt(np.sum(blurs**2, axis=1))
    errors[piece] = np.inf
    return slopes, errors
