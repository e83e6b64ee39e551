"""Positions of activation boundaries from two lines, each fitted to six outputs on one side."""

from typing import NamedTuple

import numpy as np

from skident.budget import chunks
from skident.budget.constants import CHUNK_COPIES
from skident.linalg import lapack

from ...constants import STRAIGHT

DEVIATIONS = 3.0  # standard deviations that an output's error in a `Probe` stands for
_OFFSETS = np.array([-1.0, -0.85, -0.7, -0.55, -0.4, -0.25, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0])  # over the half width
_SIDE = 6  # of these per side
_RECENTERED = 0.6  # half width of the second round over the first
_MEET = 8.0  # distance of the two lines where they are closest, in standard deviations
_INNER = 0.3  # part of a window in which its boundary must lie: lines are fitted from 0.25 on
_POSITION = 1.7  # standard deviation of a position over ``width std / jump``: extrapolation of two fitted lines
_ACCURATE = 0.08  # of a position, over the half width: less accurate ones may be a bend of rounding
_LINE = np.column_stack([np.ones(_SIDE), _OFFSETS[:_SIDE]]), np.column_stack([np.ones(_SIDE), _OFFSETS[_SIDE:]])


class Crossings(NamedTuple):
    """Single boundaries in windows."""

    offset: np.ndarray  # (n,), position from the center of the window
    error: np.ndarray  # (n,), its standard deviation
    jump: np.ndarray  # (n, m_L), change of the slope, outputs in the units of the probe
    found: np.ndarray  # (n,), mask

    def take(self, index):
        """The windows of an index array or mask."""
        return Crossings(*(part[index] for part in self))


def locate_by_lines(probe, points, directions, width, n_rounds=2):
    """`Crossings` in windows of centers and unit directions (n, D) and half widths (n,); 12 queries each per round.

    The second round has narrower windows around the positions that the first one gave.
    """
    n, D = points.shape
    if n == 0:
        return Crossings(np.zeros(0), np.zeros(0), np.zeros((0, probe.n_outputs)), np.zeros(0, dtype=bool))
    width = np.broadcast_to(np.asarray(width, dtype=float), n)
    some = chunks(n, CHUNK_COPIES * 8 * len(_OFFSETS) * D)
    parts = [_locate(probe, points[i], directions[i], width[i], n_rounds) for i in some]
    return Crossings(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _locate(probe, points, directions, width, n_rounds):
    center = np.zeros(len(points))
    for last in [False] * (n_rounds - 1) + [True]:
        w = width if center is None or not center.any() else _RECENTERED * width
        offset, error, jump, good = _meeting(probe, points + center[:, None] * directions, directions, w)
        if last:
            break
        center = np.where(np.isfinite(offset), np.clip(offset, -1.0, 1.0), 0.0) * w
    good &= error < _ACCURATE * width / w
    return Crossings(center + np.nan_to_num(offset) * w, error * w, jump / w[:, None], good)


def _meeting(probe, centers, directions, w):
    """Where the two lines meet and its error, over the half widths w (n,); jumps per half width; a mask."""
    F, tol = probe.query_block(centers[:, None] + (w[:, None] * _OFFSETS)[:, :, None] * directions[:, None])
    std = np.maximum(tol.max(axis=1), np.finfo(float).tiny) / DEVIATIONS
    usable = np.isfinite(std)
    F = F / np.where(usable, std, 1.0)[:, None, None]
    (left, left_error), (right, right_error) = (_fit(F[:, i], A) for i, A in zip(_SIDES, _LINE, strict=True))
    jump, rise = right[:, 1] - left[:, 1], right[:, 0] - left[:, 0]
    square = np.sum(jump**2, axis=1) + np.finfo(float).tiny
    t = -np.sum(jump * rise, axis=1) / square
    apart = np.linalg.norm(rise + jump * t[:, None], axis=1)
    good = usable & (np.abs(t) < _INNER) & (np.maximum(left_error, right_error) < STRAIGHT) & (apart < _MEET)
    t = np.where(np.abs(t) < 1.0, t, 0.0)
    return t, _POSITION / np.sqrt(square), jump * np.where(usable, std, 1.0)[:, None], good


_SIDES = (slice(None, _SIDE), slice(_SIDE, None))


def _fit(F, A):
    """Coefficients (n, 2, m_L) of lines through outputs (n, 6, m_L), and the root mean squares of what is left (n,)."""
    coef = np.einsum("ak,nkm->nam", lapack.pinv(A), F)
    rest = F - np.einsum("ka,nam->nkm", A, coef)
    return coef, np.sqrt(np.sum(rest**2, axis=(1, 2)) / ((_SIDE - 2) * F.shape[2]))
