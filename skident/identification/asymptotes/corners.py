"""Corners of the outputs along a far line, one per unit: intervals are halved until each has one unit or none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.oracle import NotIdentified

from .far_line import CURVED
from .profile import fit_profile

__all__ = ["Corner", "find_corners"]

_INSIDE = np.linspace(0.0, 1.0, 18)[1:-1]  # positions tested for curvature, as parts of an interval
_EDGE = 0.03  # part of an interval at either end that must be straight
_MIN_JUMP = 100.0  # of the slopes over an interval, in units of what rounding makes of slopes at its edges
_REACH = 0.2  # part of the shorter side of a corner beyond which its lines are straight
_LINE_POINTS = 9  # per straight side, from there to the end of the interval
_VALUE_TOL = 4.0  # times `CURVED`, of the two lines' values at a corner
_SPLITS = (0.5, 0.43, 0.57, 0.36, 0.64, 0.29, 0.71)  # where an interval is split: not within a corner
_SPLIT_STEP = 0.01  # part of an interval, on either side of a split, that must be straight
_PERHAPS = ": parallel units, another activation, or more than one hidden layer."


@dataclass(frozen=True)
class Corner:
    """Where two straight parts of a line meet: position, outputs (m_L,), and slopes (m_L,) before and after.

    The straight parts begin within `reach` of the position.
    """

    position: float
    value: np.ndarray
    before: np.ndarray
    after: np.ndarray
    reach: float

    def asymptotes(self, t):
        """The two lines at positions (n,), (n, m_L)."""
        move = (t - self.position)[:, None]
        return self.value + move * np.where(move > 0, self.after, self.before)


def find_corners(line, ends, max_units, activation, shortest):
    """(`Corner`, `Profile`) of every unit whose hyperplane a `FarLine` crosses between its ends, in order.

    Raises NotIdentified if two units are closer than `shortest`, an end lies within a corner, or there are too many.
    """
    result, intervals = [], [tuple(ends)]
    while intervals:
        low, high = intervals.pop()
        if _is_straight(line, low, high):
            continue
        corner = _single_corner(line, low, high)
        profile = None if corner is None else fit_profile(line, corner, activation)
        if profile is not None:
            result.append((corner, profile))
            if len(result) > max_units:
                raise NotIdentified("profiles", "crowded", f"more than {max_units} units bend along a line.")
            continue
        if high - low < shortest:
            raise NotIdentified(
                "profiles",
                "curved",
                f"what bends within {high - low:.1e} standard deviations is no single unit of this activation"
                f"{_PERHAPS}",
            )
        middle = _split(line, low, high)
        intervals += [(middle, high), (low, middle)]
    return result


def _is_straight(line, low, high):
    t = low + np.concatenate([[0.0], _INSIDE, [1.0]]) * (high - low)
    Y = line.outputs(t)
    chord = Y[0] + ((t - low) / (high - low))[:, None] * (Y[-1] - Y[0])
    return bool(np.all(np.abs(Y - chord) <= CURVED * line.tolerance(t)))


def _single_corner(line, low, high):
    """The corner of an interval whose edges are straight; None if there is none, or more than one."""
    length = high - low
    edge = length * _EDGE * np.array([0.0, 0.5, 1.0])
    t = np.concatenate([low + edge, high - edge[::-1]])
    Y, tol = line.outputs(t), line.tolerance(t)
    for side in (Y[:3], Y[3:]):
        if np.any(np.abs(side[0] - 2.0 * side[1] + side[2]) > CURVED * tol):
            return None
    before, after = ((side[2] - side[0]) / edge[2] for side in (Y[:3], Y[3:]))
    jump = after - before
    if not np.any(np.abs(jump) * length > _MIN_JUMP * tol / _EDGE):
        return None
    # Both lines meet at s: Y[0] + before s = Y[5] - after (length - s), by least squares over the outputs.
    gap = Y[5] - Y[0] - after * length
    s = float(-(gap @ jump) / (jump @ jump))
    if not _EDGE * length < s < (1.0 - _EDGE) * length:
        return None
    return _refined(line, low, high, s)


def _refined(line, low, high, s):
    """The corner at ``low + s`` with slopes from the longest straight sides; None if these are not straight."""
    guess, tol = low + s, line.tolerance(np.array([low, high]))
    reach = _REACH * min(s, high - low - s)
    sides = []
    for end in (low, high):
        far = end - guess
        t = guess + far * np.linspace(reach / abs(far), 1.0, _LINE_POINTS)
        Y = line.outputs(t)
        slope = (Y[-1] - Y[0]) / (t[-1] - t[0])
        if np.any(np.abs(Y - Y[0] - (t - t[0])[:, None] * slope) > CURVED * tol):
            return None
        sides.append((t[0], Y[0], slope))
    (t0, y0, before), (t1, y1, after) = sides
    jump = after - before
    # Values of both lines at the guess, and the position where they agree.
    left, right = y0 + (guess - t0) * before, y1 + (guess - t1) * after
    position = guess - float((right - left) @ jump / (jump @ jump))
    value = y0 + (position - t0) * before
    other = y1 + (position - t1) * after
    if np.any(np.abs(value - other) > _VALUE_TOL * CURVED * tol / _REACH) or abs(position - guess) > reach:
        return None
    return Corner(position, 0.5 * (value + other), before, after, reach)


def _split(line, low, high):
    """Where an interval is split: not within a corner."""
    for share in _SPLITS:
        t = low + (high - low) * (share + _SPLIT_STEP * np.array([-1.0, 0.0, 1.0]))
        before, at, after = line.outputs(t)
        if np.all(np.abs(before - 2.0 * at + after) <= CURVED * line.tolerance(t)):
            return float(t[1])
    raise NotIdentified(
        "profiles", "curved", f"what bends all over {high - low:.1e} standard deviations is no single unit{_PERHAPS}"
    )
