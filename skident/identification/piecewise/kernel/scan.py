"""Kinks of a function along a line: where it goes from one straight piece to the next.

A continuous piecewise linear function of one variable is known between two straight ends once these meet on it: then it
has one kink, where they meet. Where they do not, the stretch is cut in two. The number of questions grows with the
number of kinks and only as the logarithm of their distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.oracle import NotIdentified

from .tables import Rows

__all__ = ["LineKinks", "find_kinks"]

_WINDOW = 0.1  # half width of the first window in which a slope is measured, as a fraction of the room around it
_SHRINK = 0.15
_SHRINKS = 9
_RETRIES = 4
_NARROW = 1e-7  # stretches narrower than this, relative to 1 + |t|, are left unresolved
_FAINT = 100.0  # tolerances that a kink must move the answers by on its stretch to count as one


@dataclass
class LineKinks:
    """What was found on a line, in order of position.

    Attributes
    ----------
    positions : ndarray of shape (k,)
    jumps : ndarray of shape (k, m_L)
        Change of the slope at every kink.
    errors : ndarray of shape (k,)
        Accuracy of the jumps in every output, from the lengths of the straight pieces on both sides.
    blurs : ndarray of shape (k,)
        Accuracy of the positions.
    unresolved : ndarray of shape (q, 2)
        Ends of narrow stretches with more than one kink, and of stretches without answers.
    """

    positions: np.ndarray
    jumps: np.ndarray
    errors: np.ndarray
    blurs: np.ndarray
    unresolved: np.ndarray


@dataclass
class _Nodes(Rows):
    """Middles of straight windows: positions t, half widths h, accuracies (n,), answers f and slopes s (n, m_L)."""

    t: np.ndarray
    f: np.ndarray
    s: np.ndarray
    h: np.ndarray
    tol: np.ndarray

    def replace(self, index, other):
        """Put other nodes in the place of some of these."""
        for name in vars(self):
            getattr(self, name)[index] = getattr(other, name)


class _Line:
    """A function of one variable with the errors of its values; asks, and counts nothing."""

    def __init__(self, ask, noise, unit, rng):
        self.ask, self.noise, self.unit, self.rng = ask, noise, unit, rng

    def ask_many(self, *positions):
        """Answers at several arrays of positions of one length, in one batch, and their accuracies as columns."""
        t = np.concatenate(positions)
        answers = self.ask(t)
        answers, tol = answers if isinstance(answers, tuple) else (answers, self.noise * (1.0 + np.abs(t) / self.unit))
        self.n_outputs = answers.shape[1]
        return np.split(answers, len(positions)), np.split(tol[:, None], len(positions))

    def measure(self, t, room):
        """Nodes at t (n,), and whether a straight window was found there, no wider than a part of `room` (n,)."""
        h = _WINDOW * room
        (f, before, after), tols = self.ask_many(t, t - h, t + h)
        at, tol = tols[0][:, 0], np.max(tols, axis=0)[:, 0]
        todo = np.arange(len(t))
        for _ in range(_SHRINKS):
            sag = np.abs(after[todo] - 2.0 * f[todo] + before[todo]).max(axis=1)
            blind = np.isinf(tol[todo])
            todo = todo[(blind & np.isfinite(at[todo])) | (~blind & (sag > 4.0 * tol[todo]))]
            if len(todo) == 0:
                break
            h[todo] *= _SHRINK
            (before[todo], after[todo]), tols = self.ask_many(t[todo] - h[todo], t[todo] + h[todo])
            tol[todo] = np.maximum(at[todo], np.max(tols, axis=0)[:, 0])
        good = np.isfinite(tol)
        good[todo] = False
        return _Nodes(t, f, (after - before) / (2.0 * h[:, None]), h, tol), good


def find_kinks(ask, reach, *, noise=1e-14, unit=1.0, faint=_FAINT, max_kinks=1000, rng=None):
    """All kinks of a continuous piecewise linear function on ``|t| <= reach``.

    Parameters
    ----------
    ask : callable
        Answers (n, m_L) at positions (n,); or these and their accuracies (n,), infinite where nothing can be seen.
    reach : float or tuple of two float
        The latter are the ends of a stretch that is not ``|t| <= reach``.
    noise : float, default=1e-14
        Accuracy of the answers near 0, where these do not tell; it is taken to grow as ``1 + |t| / unit``.
    unit : float, default=1.0
        Length on which the function changes near 0.
    faint : float, default=100.0
        Accuracies that a kink must move the answers by on its stretch to count as one.
    max_kinks : int, default=1000
    rng : numpy.random.RandomState, default=None

    Returns
    -------
    LineKinks

    Raises
    ------
    NotIdentified
        (a ValueError) If the answers jump, or bend at more than `max_kinks` places.

    Notes
    -----
    About 20 questions a kink. A kink is taken as one when the straight pieces on both sides, each checked by a point
    inside, meet on the function, and are followed right beside the place where they meet. Kinks closer than 1e-7,
    relative to ``unit + |t|``, or too close for the noise, are reported as unresolved, as are stretches without
    answers; a kink that moves the answers by less than a hundred times the noise is not seen.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.piecewise.kernel.scan import find_kinks
    >>> found = find_kinks(lambda t: np.abs(t - 0.25)[:, None] + np.maximum(t, 3.0)[:, None], 100.0)
    >>> print(found.positions.round(6))
    [0.25 3.  ]
    """
    line = _Line(ask, noise, unit, np.random.RandomState(0) if rng is None else rng)
    kinks, unresolved, level = [], [], 0
    low, high = reach if isinstance(reach, tuple) else (-reach, reach)
    left, right = _start(line, low, high)
    while len(left.t):
        steepest = max(np.abs(left.s).max(), np.abs(right.s).max())
        narrow = right.t - left.t <= _NARROW * (unit + np.minimum(np.abs(left.t), np.abs(right.t)))
        for i in np.flatnonzero(narrow):
            _refuse_steps(line, left.take([i]), right.take([i]), steepest)
            unresolved.append((left.t[i], right.t[i]))
        left, right = left.take(~narrow), right.take(~narrow)
        found, cut, at, lost = _examine(line, left, right, level, faint)
        kinks += found
        unresolved += lost
        left, right = left.take(cut), right.take(cut)
        if len(kinks) + len(left.t) > max_kinks:
            raise NotIdentified(
                "activation boundaries",
                "crowded",
                f"the answers bend at more than {max_kinks} places of a line, as far as they were followed.",
            )
        left, right, stuck = _cut(line, left, right, at)
        unresolved += stuck
        level += 1
    return _collect(kinks, unresolved, line.n_outputs)


def _start(line, low, high):
    """Stretches between nodes at both ends and two near 0: where all happens near 0, the ends alone could miss it."""
    room = 0.5 * (high - low)
    near = np.minimum(line.unit * line.rng.uniform(0.5, 2.0, 2), 0.5 * room) * [-1.0, 1.0]
    near = near[(near > low + 1e-2 * room) & (near < high - 1e-2 * room)]
    rooms = np.concatenate([[room], np.minimum(np.abs(near), np.minimum(near - low, high - near)), [room]])
    nodes, good = line.measure(np.concatenate([[low], near, [high]]), rooms)
    if not good[[0, -1]].all():
        raise NotIdentified(
            "activation boundaries", "crowded", f"no straight piece was found at a distance of {high:.3g}."
        )
    nodes = nodes.take(good)
    return nodes.take(slice(None, -1)), nodes.take(slice(1, None))


def _refuse_steps(line, a, b, steepest):
    """An error if the function jumps between two nodes, by far more than its slopes and its noise allow."""
    rise = np.abs(b.f - a.f - a.s * (b.t - a.t)[:, None])
    if np.any(rise > 1e3 * (steepest * (b.t - a.t)[:, None] + np.maximum(a.tol, b.tol)[:, None])):
        raise NotIdentified(
            "activation boundaries",
            "steps",
            f"the answers jump within {b.t[0] - a.t[0]:.1e} (in units of the inputs' scale): they are rounded, or the "
            "black box is not continuous (a tree, nearest neighbours).",
        )


def _examine(line, a, b, level, faint_tols):
    """What lies between nodes a and b: single kinks, which stretches to cut and where, and stretches given up."""
    width = (b.t - a.t)[:, None]
    rise, jump = b.f - a.f - a.s * width, b.s - a.s
    tol = np.maximum(a.tol, b.tol)[:, None]
    slack = (a.tol / a.h + b.tol / b.h)[:, None]
    straight = np.all((np.abs(jump) <= 4.0 * slack) & (np.abs(rise) <= 4.0 * (tol + slack * width)), axis=1)
    faint = np.all((np.abs(jump) * width <= faint_tols * tol) & (np.abs(rise) <= faint_tols * tol), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = b.t - np.sum(rise * jump, axis=1) / np.sum(jump**2, axis=1)
    inside = (meet > a.t + 0.5 * a.h) & (meet < b.t - 0.5 * b.h)
    # Far ends are known less exactly: first cut nearer to the kink, which also looks at what lies in between.
    near = 2.0 * (line.unit + np.abs(meet))
    far = np.maximum(meet - a.t, b.t - meet) > 2.0 * near
    single = inside & ~straight & ~faint & ~far
    cut = ~single & ~faint
    cut[straight] = ~_is_straight(line, a.take(straight), b.take(straight))
    index = np.flatnonzero(single)
    found, failed = _verify(line, a.take(index), b.take(index), meet[index])
    cut[index[failed]] = True
    # Two kinks that bend the same way lie on the two sides of the point where their outer pieces meet; cut beside it,
    # as the answers may be odd about it.
    room = np.minimum(meet - a.t, b.t - meet)
    beside = meet + 0.1 * line.rng.uniform(-1.0, 1.0, len(meet)) * room
    beside = np.where(far, np.where(meet - a.t > 2.0 * near, meet - near, meet + near), beside)
    useful = inside & ~straight & (level % 3 < 2) & (room > 1e-3 * width[:, 0])
    at = np.where(useful | (far & inside & ~straight), beside, _middle(line, a.t, b.t))
    lost = [(a.t[i], b.t[i]) for i in np.flatnonzero(faint & ~straight & ~cut)]
    return found, cut, at[cut], lost


def _middle(line, a, b):
    """Somewhere in the middle, on a scale that is linear near 0 and logarithmic far away."""
    x, y = np.arcsinh(a / line.unit), np.arcsinh(b / line.unit)
    share = line.rng.uniform(0.4, 0.6, len(a))
    return np.clip(line.unit * np.sinh(x + share * (y - x)), a + 1e-3 * (b - a), b - 1e-3 * (b - a))


def _is_straight(line, a, b):
    """Whether points between nodes lie on the chord: several on a wide stretch, whose ends do not feel bumps near 0."""
    if len(a.t) == 0:
        return np.zeros(0, dtype=bool)
    low, high = np.arcsinh(a.t / line.unit), np.arcsinh(b.t / line.unit)
    counts = 1 + ((high - low) / 0.7).astype(int)
    of = np.repeat(np.arange(len(counts)), counts)
    share = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + line.rng.uniform(0.3, 0.7, len(of))
    t = line.unit * np.sinh(low[of] + share / counts[of] * (high - low)[of])
    part = ((t - a.t[of]) / (b.t - a.t)[of])[:, None]
    (answers,), (tol,) = line.ask_many(t)
    sag = np.abs(answers - (1.0 - part) * a.f[of] - part * b.f[of])
    bent = np.any(sag > 4.0 * np.maximum(tol, np.maximum(a.tol, b.tol)[of, None]), axis=1) | np.isinf(tol[:, 0])
    return np.bincount(of, bent, len(counts)) == 0


def _verify(line, a, b, meet):
    """Single kinks between nodes whose straight lines meet at `meet`, and a mask (n,) of those that are not."""
    if len(meet) == 0:
        return [], np.zeros(0, dtype=bool)
    x1, x2 = a.t + 0.5 * (meet - a.t), a.t + 0.95 * (meet - a.t)
    y1, y2 = b.t - 0.5 * (b.t - meet), b.t - 0.95 * (b.t - meet)
    (fx1, fx2, fy1, fy2), tols = line.ask_many(x1, x2, y1, y2)
    tol_x, tol_y = (
        np.max([a.tol, *(t[:, 0] for t in tols[:2])], axis=0),
        np.max([b.tol, *(t[:, 0] for t in tols[2:])], axis=0),
    )
    good = np.isfinite(tol_x + tol_y)
    tol_x, tol_y = (np.where(good, tol, 1.0)[:, None] for tol in (tol_x, tol_y))
    tol = np.maximum(tol_x, tol_y)
    before, after = (fx2 - a.f) / (x2 - a.t)[:, None], (b.f - fy2) / (b.t - y2)[:, None]
    good &= np.all(np.abs(fx1 - a.f - before * (x1 - a.t)[:, None]) <= 4.0 * tol_x, axis=1)
    good &= np.all(np.abs(fy1 - b.f + after * (b.t - y1)[:, None]) <= 4.0 * tol_y, axis=1)
    jump = after - before
    gap = fy2 - fx2 - before * (y2 - x2)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        t = y2 - np.sum(gap * jump, axis=1) / np.sum(jump**2, axis=1)
    good &= (t > x2) & (t < y2)
    t = np.where(good, t, meet)
    # Lines may meet on the function outside of several kinks too, where one of them is followed on both sides; so look
    # right beside the kink.
    with np.errstate(divide="ignore", invalid="ignore"):
        beside = np.minimum(64.0 * np.max(tol, axis=1) / np.abs(jump).max(axis=1), 0.5 * np.minimum(t - x2, y2 - t))
    beside = np.where(good, beside, 0.0)
    answers, tols = line.ask_many(t, t - beside, t + beside)
    tol = np.maximum(tol, np.max(tols, axis=0))
    good &= np.isfinite(tol[:, 0])
    for f, where, side, slope in zip(answers, (t, t - beside, t + beside), (a, a, b), (before, before, after)):
        good &= np.all(np.abs(f - side.f - slope * (where - side.t)[:, None]) <= 8.0 * tol, axis=1)
    good &= np.all(np.abs(answers[0] - b.f - after * (t - b.t)[:, None]) <= 8.0 * tol, axis=1)
    errors = 2.0 * (tol_x[:, 0] / (t - a.t) + tol_y[:, 0] / (b.t - t))
    blurs = 4.0 * tol[:, 0] / np.maximum(np.abs(jump).max(axis=1), np.finfo(float).tiny)
    return [(t[i], jump[i], errors[i], blurs[i]) for i in np.flatnonzero(good)], ~good


def _cut(line, a, b, at):
    """The halves of stretches cut at `at`, or elsewhere where a kink lies there; stretches where nothing helped."""
    if len(at) == 0:
        return a, b, []
    middle, good = line.measure(at, np.minimum(at - a.t, b.t - at))
    for _ in range(_RETRIES):
        bad = np.flatnonzero(~good)
        if len(bad) == 0:
            break
        t = a.t[bad] + line.rng.uniform(0.1, 0.9, len(bad)) * (b.t - a.t)[bad]
        again, good[bad] = line.measure(t, np.minimum(t - a.t[bad], b.t[bad] - t))
        middle.replace(bad, again)
    stuck = [(a.t[i], b.t[i]) for i in np.flatnonzero(~good)]
    a, b, middle = a.take(good), b.take(good), middle.take(good)
    return a.joined(middle), middle.joined(b), stuck


def _collect(kinks, unresolved, n_outputs):
    kinks = sorted(kinks, key=lambda kink: kink[0])
    positions, errors, blurs = (np.array([kink[i] for kink in kinks]) for i in (0, 2, 3))
    jumps = np.array([kink[1] for kink in kinks]).reshape(-1, n_outputs)
    stretches = np.array(sorted(unresolved)).reshape(-1, 2)
    joined = np.flatnonzero(stretches[1:, 0] <= stretches[:-1, 1])  # two halves of one
    ends = np.column_stack([np.delete(stretches[:, 0], joined + 1), np.delete(stretches[:, 1], joined)])
    return LineKinks(positions, jumps, errors, blurs, ends)
