"""Activation boundaries on many segments at once: all of them, or the single one in a short window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skident.budget import chunks
from skident.budget.constants import CHUNK_COPIES

from ...constants import WIDEST_INPUTS
from .lines import Table, meeting_point

__all__ = ["WINDOW_ERRORS", "Located", "locate", "scan_segments", "window_widths"]

# Scanning segments.
_STRAIGHT_TOL = 6.0  # errors of the outputs in a second difference of a linear piece: 4, with a margin
_DETECTION_TOL = 30.0  # errors by which a boundary must move the outputs on its interval
_VERIFIED_TOL = 24.0  # errors up to which outputs follow two linear pieces: slopes are extrapolated up to fourfold
_END_PIECE = 1.05  # quarters of an interval at its ends that have no boundary: a bent end piece meets at one
_BESIDE = 1e-3  # distance beside a vertex at which it is verified, over that of the ends
_BESIDE_ERRORS = 20.0  # `_BESIDE` in errors of the vertex
_NARROWEST = 1e-9  # interval, over the segment's length, that is given up
_NARROWEST_BLIND = 1e-3  # `_NARROWEST` if some of its outputs are lost
_TRIPLES = ((0, 1, 2), (1, 2, 3), (2, 3, 4), (0, 2, 4))  # of five points in a row: their second differences

# Locating one boundary in a window.
_WINDOW_DETECTION_TOL = 60.0  # errors by which a boundary must move the outputs in a window
_MEETING_TOL = 16.0  # errors up to which two linear pieces meet on the outputs: slopes are extrapolated 2.5-fold
_INNER = 0.55  # part of a window in which its boundary must lie, within the 0.6 that the end pieces span
_WIDE_ROOTS = 60.0  # half width of a wide window in roots of the resolution: that leaves as many errors
_WIDE_LEAST = 1e-3  # `_WIDE_ROOTS` in standard deviations of the inputs, at least
_WIDE_MOST = 3e-2  # and at most
_NARROW_RESOLUTIONS = 3e3  # half width of a narrow window in resolutions, of which 60 are detected
_NARROW_LEAST = 1e-5  # `_NARROW_RESOLUTIONS` in standard deviations of the inputs, at least
_LARGEST_ERROR = 1e100  # of a position where nothing bends
WINDOW_ERRORS = 120.0  # half width of a window in errors of the predicted position


@dataclass
class _Intervals(Table):
    """Parts of segments."""

    line: np.ndarray  # (n,), which segment
    a: np.ndarray  # (n,), ends
    b: np.ndarray
    fa: np.ndarray  # (n, m_L), outputs there
    fb: np.ndarray
    ta: np.ndarray  # (n,), their accuracies
    tb: np.ndarray


def scan_segments(probe, segments, rng, *, n_intervals=1, max_queries=200_000):
    """Boundaries on segments: line indices and positions (k,) each, in order.

    An interval is straight if five points of it are; it has one boundary if the pieces at its ends meet inside, on the
    outputs; otherwise it is split. Four queries per interval, two more per boundary. Intervals with some outputs lost
    are split too. A bump between two of the first `n_intervals` points is not detected.
    """
    intervals = _first_intervals(probe, segments, n_intervals, rng)
    lines, positions, budget = [], [], probe.oracle.n_queries + max_queries
    span = segments.high - segments.low
    while len(intervals) and probe.oracle.n_queries < budget:
        width = intervals.b - intervals.a
        q = 0.25 * width
        inner, ti = _query_lines(probe, segments, intervals.line, intervals.a[:, None] + np.arange(1, 4) * q[:, None])
        F = np.concatenate([intervals.fa[:, None], inner, intervals.fb[:, None]], axis=1)
        tols = np.column_stack([intervals.ta, ti, intervals.tb])
        tol, clear = tols.max(axis=1), np.isfinite(tols)
        sag = np.abs(np.stack([F[:, i] - 2.0 * F[:, j] + F[:, k] for i, j, k in _TRIPLES])).max(axis=(0, 2))
        partly = ~clear.all(axis=1) & clear.any(axis=1) & (width > _NARROWEST_BLIND * span[intervals.line])
        bent = (clear.all(axis=1) & (sag > _STRAIGHT_TOL * tol)) | partly
        intervals, F, tol, q = intervals.take(bent), F[bent], tol[bent], q[bent]
        t, single = _single_boundaries(probe, segments, intervals, F, tol, q)
        lines.append(intervals.line[single])
        positions.append(t[single])
        rest = intervals.take(~single)
        rest = rest.take(rest.b - rest.a > _NARROWEST * span[rest.line])
        intervals = _split(probe, segments, rest, rng)
    line, t = np.concatenate(lines or [np.zeros(0, int)]), np.concatenate(positions or [np.zeros(0)])
    order = np.lexsort((t, line))
    return line[order], t[order]


def _query_lines(probe, segments, line, t):
    """Outputs (k, q, m_L) and accuracies (k, q) at positions t (k, q) of segments, in chunks of segments."""
    some = chunks(len(line), CHUNK_COPIES * 8 * t.shape[1] * probe.n_inputs)
    parts = [probe.query_block(segments.at(line[i], t[i])) for i in some]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _first_intervals(probe, segments, n_intervals, rng):
    """Every segment in n parts of nearly equal lengths."""
    n, span = len(segments.low), (segments.high - segments.low)[:, None]
    ends = segments.low[:, None] + span * np.arange(n_intervals + 1) / n_intervals
    ends[:, 1:-1] += span / n_intervals * rng.uniform(-0.2, 0.2, (n, n_intervals - 1))
    F, tol = _query_lines(probe, segments, np.arange(n), ends)
    m, left, right = F.shape[2], np.s_[:, :-1], np.s_[:, 1:]
    return _Intervals(
        np.repeat(np.arange(n), n_intervals),
        *(ends[left].ravel(), ends[right].ravel()),
        *(F[left].reshape(-1, m), F[right].reshape(-1, m)),
        *(tol[left].ravel(), tol[right].ravel()),
    )


def _single_boundaries(probe, segments, intervals, F, tol, q):
    """Where the end pieces of intervals meet, and a mask of the intervals with that boundary and no other.

    F (n, 5, m_L) are the outputs at the five points, at distances q (n,).
    """
    left, right = (F[:, 1] - F[:, 0]) / q[:, None], (F[:, 4] - F[:, 3]) / q[:, None]
    t, jump = meeting_point(intervals.a, F[:, 0], left, intervals.b, F[:, 4], right)
    size = np.linalg.norm(jump, axis=1)
    with np.errstate(invalid="ignore"):
        single = np.isfinite(tol) & (size * q > _DETECTION_TOL * tol)
        single &= (t > intervals.a + _END_PIECE * q) & (t < intervals.b - _END_PIECE * q)
    i = np.flatnonzero(single)
    if len(i) == 0:
        return t, single
    a, b, ti = intervals.a[i], intervals.b[i], t[i]
    # Right beside the vertex: between there and the end pieces nothing can bend and come back.
    beside = np.maximum(_BESIDE * np.minimum(ti - a, b - ti), _BESIDE_ERRORS * tol[i] / size[i])
    T = np.column_stack([ti - beside, ti + beside])
    G, tg = probe.query_block(segments.at(intervals.line[i], T))
    T = np.column_stack([T, 0.5 * (a + b)])
    G = np.concatenate([G, F[i][:, 2:3]], axis=1)
    vertex = F[i, 0] + left[i] * (ti - a)[:, None]
    slopes = np.where((T < ti[:, None])[:, :, None], left[i][:, None], right[i][:, None])
    expected = vertex[:, None] + slopes * (T - ti[:, None])[:, :, None]
    slack = np.maximum(tol[i], tg.max(axis=1))
    single[i] = np.abs(expected - G).max(axis=(1, 2)) < _VERIFIED_TOL * slack
    return t, single


def _split(probe, segments, s, rng):
    """Every interval in two."""
    if len(s) == 0:
        return s
    c = s.a + rng.uniform(0.42, 0.58, len(s.a)) * (s.b - s.a)
    fc, tc = probe.query(segments.at(s.line, c))
    return _Intervals(s.line, s.a, c, s.fa, fc, s.ta, tc).joined(_Intervals(s.line, c, s.b, fc, s.fb, tc, s.tb))


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


def window_widths(probe, position_error=0.0):
    """Half widths (wide, narrow) of windows in which one boundary can be located; wider if predictions have errors."""
    wide = float(np.clip(_WIDE_ROOTS * np.sqrt(probe.resolution), _WIDE_LEAST, _WIDE_MOST))
    wide = max(wide, min(WINDOW_ERRORS * position_error, WIDEST_INPUTS))
    return wide, float(np.clip(_NARROW_RESOLUTIONS * probe.resolution, _NARROW_LEAST, wide))
