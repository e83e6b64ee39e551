"""The single activation boundary in each of many short windows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .lines import meeting_point

__all__ = ["Located", "locate", "window_widths"]

_WINDOW_DETECTION_TOL = 60.0  # errors by which a boundary must move the outputs in a window
_MEETING_TOL = 16.0  # errors up to which two linear pieces meet on the outputs: slopes are extrapolated 2.5-fold
_INNER = 0.55  # part of a window in which its boundary must lie, within the 0.6 that the end pieces span
_WIDE_ROOTS = 60.0  # half width of a wide window in roots of the resolution: that leaves as many errors
_WIDE_LEAST = 1e-3  # `_WIDE_ROOTS` in standard deviations of the inputs, at least
_WIDE_MOST = 3e-2  # and at most
_NARROW_RESOLUTIONS = 3e3  # half width of a narrow window in resolutions, of which 60 are detected
_NARROW_LEAST = 1e-5  # `_NARROW_RESOLUTIONS` in standard deviations of the inputs, at least
_LARGEST_ERROR = 1e100  # of a position where nothing bends


class Located(NamedTuple):
    """Single boundaries in windows."""

    offset: np.ndarray  # (n,), position from the center of the window; NaN unless there is exactly one
    error: np.ndarray  # (n,), of the offset; infinite where outputs are lost
    found: np.ndarray  # (n,), mask


def locate(probe, points, directions, width):
    """The boundary in each of many short windows, if there is exactly one.

    Windows have centers and unit directions (n, D) and half widths (n,) or a number. Five queries per window: two
    linear pieces that meet in the inner half of it, on the output at its center.
    """
    n = len(points)
    if n == 0:
        return Located(np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool))
    w = np.broadcast_to(np.asarray(width, dtype=float), n)
    offsets = np.array([-1.0, -0.6, 0.0, 0.6, 1.0])
    F, tol = probe.query_block(points[:, None] + (offsets * w[:, None])[:, :, None] * directions[:, None])
    tol = tol.max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        left, right = (F[:, 1] - F[:, 0]) / (0.4 * w)[:, None], (F[:, 4] - F[:, 3]) / (0.4 * w)[:, None]
        t, jump = meeting_point(-w, F[:, 0], left, w, F[:, 4], right)
        size = np.linalg.norm(jump, axis=1)
        vertex = F[:, 0] + left * (t + w)[:, None]
        center = vertex - np.where((t > 0)[:, None], left, right) * t[:, None]
        other = F[:, 4] + right * (t - w)[:, None]
        found = (size * w > _WINDOW_DETECTION_TOL * tol) & (np.abs(t) < _INNER * w)
        found &= np.abs(center - F[:, 2]).max(axis=1) < _MEETING_TOL * tol
        found &= np.abs(vertex - other).max(axis=1) < _MEETING_TOL * tol
        error = np.where(np.isfinite(tol), np.minimum(tol / size, _LARGEST_ERROR), np.inf)
    return Located(np.where(found, t, np.nan), error, found)


def window_widths(probe):
    """Half widths (wide, narrow) of windows in which one boundary can be located."""
    wide = float(np.clip(_WIDE_ROOTS * np.sqrt(probe.resolution), _WIDE_LEAST, _WIDE_MOST))
    return wide, float(np.clip(_NARROW_RESOLUTIONS * probe.resolution, _NARROW_LEAST, wide))
