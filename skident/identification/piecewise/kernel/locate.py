"""Single kinks in short windows, and how wide these are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["FAINT", "Located", "locate", "windows"]

_CLEAR = 60.0  # roundings that a kink must move the answers by within a window
_LARGEST = 1e100  # error of an offset where nothing bends
_MEETS = 16.0  # roundings up to which two straight pieces meet on the answers
FAINT, _WIDEST = 120.0, 0.15  # uncertainties of a position that a window is wide, and the widest in any case


class Located(NamedTuple):
    """Single kinks in windows.

    Attributes
    ----------
    offset : ndarray of shape (n,)
        Position of the kink from the middle of its window; NaN where there is not just one.
    error : ndarray of shape (n,)
        Accuracy of the offset; infinite where the answers are lost.
    found : ndarray of bool, shape (n,)
    """

    offset: np.ndarray
    error: np.ndarray
    found: np.ndarray


def locate(answers, points, directions, width):
    """The kink in each of many short windows, where there is one and nothing else.

    Parameters
    ----------
    answers : Answers
    points, directions : ndarray of shape (n, D)
        Middles of the windows and unit vectors along them.
    width : float or ndarray of shape (n,)
        Half widths.

    Returns
    -------
    Located

    Raises
    ------
    BlackBoxError
        If the black box fails.

    Notes
    -----
    Five queries a window: two straight pieces that meet inside the inner half of it, on the answers in its middle.
    """
    n = len(points)
    if n == 0:
        return Located(np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool))
    w = np.broadcast_to(np.asarray(width, dtype=float), n)
    offsets = np.array([-1.0, -0.6, 0.0, 0.6, 1.0])
    F, tol = answers.query_block(points[:, None] + (offsets * w[:, None])[:, :, None] * directions[:, None])
    tol = tol.max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        left, right = (F[:, 1] - F[:, 0]) / (0.4 * w)[:, None], (F[:, 4] - F[:, 3]) / (0.4 * w)[:, None]
        jump = right - left
        size = np.linalg.norm(jump, axis=1)
        t = -w - np.sum(jump * (F[:, 4] - F[:, 0] - right * (2.0 * w)[:, None]), axis=1) / size**2
        vertex = F[:, 0] + left * (t + w)[:, None]
        middle = vertex - np.where((t > 0)[:, None], left, right) * t[:, None]
        other = F[:, 4] + right * (t - w)[:, None]
        found = (size * w > _CLEAR * tol) & (np.abs(t) < 0.55 * w)
        found &= np.abs(middle - F[:, 2]).max(axis=1) < _MEETS * tol
        found &= np.abs(vertex - other).max(axis=1) < _MEETS * tol
        error = np.where(np.isfinite(tol), np.minimum(tol / size, _LARGEST), np.inf)
    return Located(np.where(found, t, np.nan), error, found)


def windows(answers, faintness=0.0):
    """Half widths of a wide and a narrow window in which one kink can be told.

    Parameters
    ----------
    answers : Answers
    faintness : float, default=0.0
        How uncertain positions are; a window is wider by far.

    Returns
    -------
    wide, narrow : float
    """
    wide = float(np.clip(60.0 * np.sqrt(answers.resolution), 1e-3, 3e-2))
    wide = max(wide, min(FAINT * faintness, _WIDEST))
    return wide, float(np.clip(3e3 * answers.resolution, 1e-5, wide))
