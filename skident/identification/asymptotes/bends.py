"""Where answers bend along a line far out: intervals are halved until each holds one unit or none."""

from __future__ import annotations

import numpy as np

from skident.oracle import NotIdentified

from .profile import Bend, fit_profile

__all__ = ["find_corners"]

_INSIDE = np.linspace(0.0, 1.0, 18)[1:-1]  # where an interval is looked at
_EDGE = 0.03  # share of an interval at either end that must be straight
_ROOM = 0.2  # share of the shorter side of a bend from which on its lines are straight
_SPLITS = (0.5, 0.43, 0.57, 0.36, 0.64, 0.29, 0.71)
_BENT = 6.0  # deviations from a line, in units of the answers' rounding, that are no rounding
_PERHAPS = ": parallel units, another activation, or more than one hidden layer."


def find_corners(line, ends, max_bends, activation, shortest):
    """The units whose hyperplanes a line crosses, one after the other.

    Parameters
    ----------
    line : FarLine
    ends : tuple of float
    max_bends : int
    activation : Activation
    shortest : float
        Length below which no interval is halved.

    Returns
    -------
    list of (Bend, Profile)
        In their order on the line.

    Raises
    ------
    NotIdentified
        If two units bend too close to each other, an end lies within a bend, or there are more than `max_bends`.
    """
    found, intervals = [], [tuple(ends)]
    while intervals:
        low, high = intervals.pop()
        if _is_straight(line, low, high):
            continue
        bend = _single_bend(line, low, high)
        profile = None if bend is None else fit_profile(line, bend, activation)
        if profile is not None:
            found.append((bend, profile))
            if len(found) > max_bends:
                raise NotIdentified("profiles", "crowded", f"more than {max_bends} units bend along a line.")
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
    return found


def _is_straight(line, low, high):
    t = low + np.concatenate([[0.0], _INSIDE, [1.0]]) * (high - low)
    answers = line.ask(t)
    chord = answers[0] + ((t - low) / (high - low))[:, None] * (answers[-1] - answers[0])
    return bool(np.all(np.abs(answers - chord) <= _BENT * line.tolerance(t)))


def _single_bend(line, low, high):
    """The two lines of which an interval consists, but for what lies around their corner; None if it does not."""
    length = high - low
    edge = length * _EDGE * np.array([0.0, 0.5, 1.0])
    t = np.concatenate([low + edge, high - edge[::-1]])
    answers, tol = line.ask(t), line.tolerance(t)
    for side in (answers[:3], answers[3:]):
        if np.any(np.abs(side[0] - 2.0 * side[1] + side[2]) > _BENT * tol):
            return None
    before, after = ((side[2] - side[0]) / edge[2] for side in (answers[:3], answers[3:]))
    jump = after - before
    if not np.any(np.abs(jump) * length > 100.0 * tol / _EDGE):
        return None
    # before meets after: answers[0] + before s = answers[5] - after (length - s).
    gap = answers[5] - answers[0] - after * length
    s = float(-(gap @ jump) / (jump @ jump))
    if not _EDGE * length < s < (1.0 - _EDGE) * length:
        return None
    return _sharpened(line, low, high, s)


def _sharpened(line, low, high, s):
    """The bend at ``low + s`` with slopes from the longest stretches beside it; None where these are not straight."""
    corner, tol = low + s, line.tolerance(np.array([low, high]))
    room = _ROOM * min(s, high - low - s)
    parts = []
    for end in (low, high):
        far = end - corner
        t = corner + far * np.linspace(room / abs(far), 1.0, 9)
        answers = line.ask(t)
        slope = (answers[-1] - answers[0]) / (t[-1] - t[0])
        if np.any(np.abs(answers - answers[0] - (t - t[0])[:, None] * slope) > _BENT * tol):
            return None
        parts.append((t[0], answers[0], slope))
    (t0, y0, before), (t1, y1, after) = parts
    jump = after - before
    # Values of both lines at `corner`, and the corner where they agree.
    left, right = y0 + (corner - t0) * before, y1 + (corner - t1) * after
    corner_moved = corner - float((right - left) @ jump / (jump @ jump))
    value = y0 + (corner_moved - t0) * before
    other = y1 + (corner_moved - t1) * after
    if np.any(np.abs(value - other) > 4.0 * _BENT * tol / _ROOM) or abs(corner_moved - corner) > room:
        return None
    return Bend(corner_moved, 0.5 * (value + other), before, after, room)


def _split(line, low, high):
    """Where an interval is halved: not within a bend."""
    for share in _SPLITS:
        t = low + (high - low) * (share + 0.01 * np.array([-1.0, 0.0, 1.0]))
        before, at, after = line.ask(t)
        if np.all(np.abs(before - 2.0 * at + after) <= _BENT * line.tolerance(t)):
            return float(t[1])
    raise NotIdentified(
        "profiles", "curved", f"what bends all over {high - low:.1e} standard deviations is no single unit{_PERHAPS}"
    )
