"""Units gathered line by line: what a line shows is compared with what is known, and measured where it is new."""

from __future__ import annotations

import numpy as np

from skident.oracle import BlackBoxError, NotIdentified

from ..kernel.scan import find_kinks
from .residual_probe import Rest
from .units import Line, ReLUUnits, match_kinks, units_at_kinks

__all__ = ["LineSearch"]

_ROUGH = 3e-3  # accuracy of a direction above which a kink is left to another line
_ROUGH_NOISY = 0.1
_POOR = 1e-6  # and above which a unit is measured again where another line meets it
_POOR_NOISY = 1e-2
_SURE = 10.0  # times as large as on other lines where answers are not all as accurate
_POOL = 512  # points from which lines start where not all answers are precise
_GAPS = 96  # points per visible interval at which plateaus within it are searched
_STEPS = 24  # of a line on which its visible stretch is looked for, either way


class LineSearch:
    """Units seen on the lines so far.

    Parameters
    ----------
    probe : Probe
    reach : float
        Of lines, in units of the inputs.
    max_units : int
        Bound on the kinks of one line.
    rng : numpy.random.RandomState

    Attributes
    ----------
    units : ReLUUnits
        Those found.
    anchor : tuple of ndarray, ndarray and float, or None
        A point, the gradient of the answers there, and its accuracy: where that is best.
    poor : float
        Accuracy above which a known unit is measured again where a line meets it.
    n_idle : int
        Lines in a row that confirmed what is known and showed nothing else.
    faint : float
        Size of the largest kink of the last line that was not taken up.
    pool : ndarray of shape (n, D)
        Points with answers, from which lines start; empty where all points have answers.
    n_known : int
        Units, the first ones, that have been located on the answers.
    """

    def __init__(self, probe, reach, max_units, rng):
        self.probe, self.reach, self.max_units, self.rng = probe, reach, max_units, rng
        self.rough, self.poor = (_ROUGH, _POOR) if probe.exact else (_ROUGH_NOISY, _POOR_NOISY)
        D = probe.oracle.n_inputs
        self.pool = _pool(probe, rng) if probe.oracle.restricted else np.empty((0, D))
        self.aims, self.n_known = [], 0
        self.units = ReLUUnits(np.empty((D, 0)), np.empty(0), np.empty((0, len(probe.noise))), np.empty(0))
        self.anchor, self.n_idle, self.n_lost, self.faint, self.failure = None, 0, 0, 0.0, None

    def widen(self, failure):
        """Look farther away, as what was found ended in a failure.

        Parameters
        ----------
        failure : NotIdentified
            Raised where the black box cannot be asked there.
        """
        self.failure, self.n_idle, self.reach = failure, 0, 100.0 * self.reach

    def follow_line(self):
        """Find the kinks of a line, drop units that it does not confirm and add those that are new.

        Raises
        ------
        NotIdentified
            If too many units are not confirmed, or the line is not piecewise linear.
        BlackBoxError
            If the black box cannot be asked there.
        """
        line = self._next_line()
        kinks = self._kinks(line, self.probe)
        lost, met = match_kinks(self.units, line, kinks, self.probe.strong)
        lost &= self._shows(line, lost)
        fresh = np.setdiff1d(np.arange(len(kinks.positions)), met)
        self._refuse_bent(int(lost.sum()), len(fresh))
        sizes = np.abs(kinks.jumps[fresh]).max(axis=1, initial=0.0) * self.probe.unit
        self.n_idle = 0 if lost.any() or np.any(sizes > self.probe.strong) else self.n_idle + 1
        added = self._measure(line, kinks, fresh, lost, met)
        self.faint = sizes[~added].max(initial=0.0)

    def follow_rest(self):
        """Add what the units known leave over on a line; they must be accurate to rounding.

        Raises
        ------
        NotIdentified
            If the rest is not piecewise linear.
        """
        rest, line = Rest(self.probe, self.units), self._next_line()
        kinks = self._kinks(line, rest)
        sizes = np.abs(kinks.jumps).max(axis=1, initial=0.0) * self.probe.unit
        self.n_idle = 0 if np.any(sizes > _SURE * self.probe.faint) else self.n_idle + 1
        if len(sizes):
            new, _ = units_at_kinks(rest, line, kinks, np.arange(len(sizes)), self.rng)
            self.units = self.units.joined(new.take(new.errors < self.rough))

    def aim(self, wrong, right):
        """Follow next the lines through points that are not explained and the nearest ones that are.

        Parameters
        ----------
        wrong, right : ndarray of shape (n, D) and (k, D)
        """
        self.n_idle = 0
        nearest = np.argmin(
            np.sum(wrong**2, axis=1)[:, None] - 2.0 * wrong @ right.T + np.sum(right**2, axis=1), axis=1
        )
        self.aims = [(u, right[i] - u) for u, i in zip(wrong, nearest, strict=True)]

    def _next_line(self):
        """A random line, or one that was aimed at; where not all answers are precise, a stretch of it that shows."""
        direction = self.rng.standard_normal(self.probe.oracle.n_inputs)
        if len(self.pool) == 0:
            origin = self.rng.standard_normal(len(direction))
            return Line(origin, direction / np.linalg.norm(direction), self.reach)
        origin = self.pool[self.rng.randint(len(self.pool))]
        if self.aims:
            origin, direction = self.aims.pop()
        direction = direction / np.linalg.norm(direction)
        return Line(origin, direction, _visible(self.probe, origin, direction, self.reach))

    def _measure(self, line, kinks, fresh, lost, met):
        """Take up fresh kinks, and known ones that were poorly measured, where that is accurate; mask of `fresh`."""
        keep = ~lost
        poor = np.flatnonzero((met >= 0) & (self.units.errors > self.poor))
        which = np.concatenate([fresh, met[poor]])
        if len(which) == 0:
            self.units = self.units.take(keep)
            return np.zeros(0, dtype=bool)
        new, anchor = units_at_kinks(self.probe, line, kinks, which, self.rng, careful=len(fresh) == 0)
        better = new.errors < np.concatenate([np.full(len(fresh), self.rough), self.units.errors[poor]])
        keep[poor] = ~better[len(fresh) :]
        self.units = self.units.take(keep).joined(new.take(better))
        self.anchor = anchor if self.anchor is None or anchor[2] < self.anchor[2] else self.anchor
        return better[: len(fresh)]

    def _shows(self, line, which):
        """Units (m_1,) among `which` whose kink on a line is where answers are accurate enough to show it."""
        shows = np.array(which)
        if len(self.pool) == 0 or not which.any():
            return shows
        units = self.units.take(which)
        across = units.weights.T @ line.direction
        t = -(units.biases + units.weights.T @ line.origin) / across
        tol = self.probe.ask(self.probe.oracle.clip_to_range(line.at(t)))[1]
        sizes = np.abs(units.outgoing).max(axis=1) * np.abs(across) * self.probe.unit
        shows[which] = sizes > _SURE * self.probe.strong * tol
        return shows

    def _kinks(self, line, probe):
        try:
            return find_kinks(
                lambda t: probe.ask(line.at(t)),
                line.reach,
                unit=probe.unit,
                faint=probe.faint,
                max_kinks=self.max_units,
                rng=self.rng,
            )
        except BlackBoxError as error:
            if self.failure is not None:  # it was asked farther away than it should have been
                raise self.failure from None
            raise BlackBoxError(
                f"{error} The search for kinks asks up to {self.reach:.1e} standard deviations from the centre; where "
                "the black box cannot be asked there, pass a smaller reach."
            ) from error

    def _refuse_bent(self, n_lost, n_fresh):
        known = len(self.units)
        self.n_lost += n_lost
        # Noise makes one kink of two, here and there.
        if n_lost and self.n_lost > (2 + 0.3 * known if self.probe.exact else 6 + known):
            raise NotIdentified(
                "activation boundaries",
                "bent",
                f"{n_lost} of the {known} kinks known were not met, of the same size, where their hyperplanes cross "
                f"another line, which showed {n_fresh} new ones: the answers are piecewise linear, but their kinks "
                "end, bend or change, as with more than one hidden layer, pooling, or inputs that are clipped.",
            )


def _pool(probe, rng):
    """Points with precise answers, as far as there are any."""
    U = rng.standard_normal((4 * _POOL, probe.oracle.n_inputs)) * np.repeat([0.5, 1.0, 2.0, 4.0], _POOL)[:, None]
    # Coordinates outside the range: anywhere in it.
    low, high = (probe.oracle.clip_to_range(np.full_like(U, end)) for end in (-4.0, 4.0))
    U = np.where(probe.oracle.clip_to_range(U) == U, U, rng.uniform(low, high))
    tol = probe.ask(U)[1]
    seen = np.flatnonzero(np.isfinite(tol))
    if len(seen) < 8:
        raise BlackBoxError(
            f"of {len(U)} points near the centre only {len(seen)} have answers that tell anything: the classifier is "
            "too certain. Give rows X where it is less so."
        )
    return U[seen]


def _visible(probe, origin, direction, reach):
    """The ends (low, high) of the stretch of a line around its origin on which there are answers."""
    t = np.geomspace(1e-3 * probe.unit, reach, _STEPS)
    ends = []
    for side in (-1.0, 1.0):
        seen = np.isfinite(probe.ask(origin + side * t[:, None] * direction)[1])
        n = len(t) if seen.all() else int(np.argmin(seen))
        inner, outer = (0.0 if n == 0 else t[n - 1]), t[min(n, len(t) - 1)]
        for _ in range(8 if n < len(t) else 0):
            middle = 0.5 * (inner + outer)
            shows = np.isfinite(probe.ask((origin + side * middle * direction)[None])[1][0])
            inner, outer = (middle, outer) if shows else (inner, middle)
        end = 0.98 * inner if n < len(t) else reach
        if probe.oracle.output_bounds is not None:  # clipped outputs may come back between two of these points
            within = end * np.linspace(0.0, 1.0, _GAPS)
            seen = np.isfinite(probe.ask(origin + side * within[:, None] * direction)[1])
            end = end if seen.all() else within[max(int(np.argmin(seen)) - 1, 0)]
        ends.append(side * end)
    return ends[0], max(ends[1], ends[0] + 1e-6 * probe.unit)
