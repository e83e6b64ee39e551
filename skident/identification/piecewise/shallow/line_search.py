"""Units collected line by line: the boundaries of a line confirm known units or give new ones."""

import numpy as np

from skident.oracle import BlackBoxError, NotIdentified

from ..kernel.lines import Line
from ..kernel.scan import scan_line
from .units import ReLUUnits, ResidualProbe, match_units, units_on_line

_DIRECTION_TOL = 3e-3  # error of a direction above which a boundary is left to another line
_DIRECTION_TOL_NOISY = 0.1  # `_DIRECTION_TOL` for noisy outputs
_REMEASURE_TOL = 1e-6  # error of a unit above which it is measured again if another line crosses it
_REMEASURE_TOL_NOISY = 1e-2  # `_REMEASURE_TOL` for noisy outputs
_CERTAIN = 10.0  # multiple of the detection tolerances where not all outputs are equally accurate
_WIDENING = 100.0  # factor of the reach if the units detected do not explain the outputs
_POOL = 512  # start points of lines per distance, if not all outputs are precise
_FEWEST_STARTS = 8  # of these with outputs, fewer than which are an error
_GRID = 24  # points of a line, either way, at which its visible interval is searched
_BISECTIONS = 8  # that narrow the end of the visible interval to 0.4 % of a grid interval
_CLIPPED_GRID = 96  # points per visible interval at which clipped outputs within it are searched
_FIRST_MEASURED = 8  # boundaries of the first line, before another one shows whether they are hyperplanes (budget)
_MISSED = 2  # units missed without an error, and per known unit:
_MISSED_SHARE = 0.3  # of these: rounding far out hides some, deeper layers nearly all
_MISSED_NOISY = 6  # `_MISSED` for noisy outputs, where two boundaries merge here and there
_MISSED_SHARE_NOISY = 1.0  # and per known unit


class LineSearch:
    """Units of one hidden layer detected on the lines so far.

    Attributes: `units` (`ReLUUnits`); `anchor`, see `units_on_line`, the most accurate one so far, or None;
    `n_idle`, lines in a row that confirmed what is known and gave nothing else; `faint`, jump of the largest boundary
    of the last line that was not added; `pool` (n, D), start points with outputs, empty if all points have outputs;
    `n_located`, how many units, the first ones, have been located by their positions; `waiting`, the first line, its
    scan and the boundaries on it that are measured once another line shows no deeper layer, or None.
    """

    def __init__(self, probe, reach, max_units, rng):
        self.probe, self.reach, self.max_units, self.rng = probe, reach, max_units, rng
        self.direction_tol = _DIRECTION_TOL if probe.exact else _DIRECTION_TOL_NOISY
        self.remeasure_tol = _REMEASURE_TOL if probe.exact else _REMEASURE_TOL_NOISY
        D = probe.oracle.n_inputs
        self.pool = _start_points(probe, rng) if probe.oracle.restricted else np.empty((0, D))
        self.n_located, self.waiting = 0, None
        self.units = ReLUUnits(np.empty((D, 0)), np.empty(0), np.empty((0, len(probe.output_error))), np.empty(0))
        self.anchor, self.n_idle, self.n_missed, self.faint, self.failure = None, 0, 0, 0.0, None

    def widen(self, failure):
        """Scan farther out after a `failure` (`NotIdentified`), which is raised if the black box fails there."""
        self.failure, self.n_idle, self.reach = failure, 0, _WIDENING * self.reach

    def scan_next_line(self):
        """Scan a line, drop units that it does not confirm and add new ones.

        Raises `NotIdentified` if too many units are not confirmed or the line is not piecewise linear, and
        `BlackBoxError` if the black box cannot be queried there.
        """
        line = self.next_line()
        scan = self.scan(line)
        missed, matched, new = self._matched(line, scan)
        if self.waiting is not None:  # no deeper layer shows at the boundaries that were measured
            self.n_missed, (first, first_scan, rest), self.waiting = 0, self.waiting, None
            m = len(self.units)
            self._measure(first, first_scan, rest, np.zeros(m, dtype=bool), np.full(m, -1))
            missed, matched, new = self._matched(line, scan)
        elif len(self.units) == 0 and len(new) > _FIRST_MEASURED:
            near = slice((len(new) - _FIRST_MEASURED) // 2, (len(new) + _FIRST_MEASURED) // 2)  # they share pieces
            self.waiting, new = (line, scan, np.delete(new, near)), new[near]
        sizes = np.abs(scan.jumps[new]).max(axis=1, initial=0.0) * self.probe.length_scale
        self.n_idle = 0 if missed.any() or np.any(sizes > self.probe.reliable_tol) else self.n_idle + 1
        added = self._measure(line, scan, new, missed, matched)
        self.faint = sizes[~added].max(initial=0.0)

    def _matched(self, line, scan):
        """Which known units a line misses, the positions of the others on it or -1, and the positions of new ones."""
        missed, matched = match_units(self.units, line, scan, self.probe.reliable_tol)
        missed &= self._visible_on(line, missed)
        new = np.setdiff1d(np.arange(len(scan.positions)), matched)
        self._refuse_deeper(int(missed.sum()), len(new))
        return missed, matched, new

    def scan_residual(self):
        """Add units that the known ones, which must be accurate to rounding, leave over on a line."""
        residual, line = ResidualProbe(self.probe, self.units), self.next_line()
        scan = self.scan(line, residual)
        sizes = np.abs(scan.jumps).max(axis=1, initial=0.0) * self.probe.length_scale
        self.n_idle = 0 if np.any(sizes > _CERTAIN * self.probe.detection_tol) else self.n_idle + 1
        if len(sizes):
            new, _ = units_on_line(residual, line, scan, np.arange(len(sizes)), self.rng)
            self.units = self.units.joined(new.take(new.errors < self.direction_tol))

    def next_line(self):
        """A random line; its visible interval if not all outputs are precise."""
        direction = self.rng.standard_normal(self.probe.oracle.n_inputs)
        if len(self.pool) == 0:
            origin = self.rng.standard_normal(len(direction))
            return Line(origin, direction / np.linalg.norm(direction), self.reach)
        origin = self.pool[self.rng.randint(len(self.pool))]
        direction = direction / np.linalg.norm(direction)
        return Line(origin, direction, _visible_interval(self.probe, origin, direction, self.reach))

    def _measure(self, line, scan, new, missed, matched):
        """Add new units, and known ones measured again, if accurate, and drop missed ones; a mask of `new`."""
        keep = ~missed
        again = np.flatnonzero((matched >= 0) & (self.units.errors > self.remeasure_tol))
        which = np.concatenate([new, matched[again]])
        if len(which) == 0:
            self.units = self.units.take(keep)
            return np.zeros(0, dtype=bool)
        measured, anchor = units_on_line(self.probe, line, scan, which, self.rng, accurate=len(new) == 0)
        limits = np.concatenate([np.full(len(new), self.direction_tol), self.units.errors[again]])
        better = measured.errors < limits
        keep[again] = ~better[len(new) :]
        self.units = self.units.take(keep).joined(measured.take(better))
        self.anchor = anchor if self.anchor is None or anchor[2] < self.anchor[2] else self.anchor
        return better[: len(new)]

    def _visible_on(self, line, which):
        """A mask (m_1,) of the units among `which` that cross a line where outputs are accurate enough to detect it."""
        visible = np.array(which)
        if len(self.pool) == 0 or not which.any():
            return visible
        units = self.units.take(which)
        across = units.weights.T @ line.direction
        t = -(units.biases + units.weights.T @ line.origin) / across
        tol = self.probe.query(self.probe.oracle.clip_to_range(line.at(t)))[1]
        sizes = np.abs(units.outgoing).max(axis=1) * np.abs(across) * self.probe.length_scale
        visible[which] = sizes > _CERTAIN * self.probe.reliable_tol * tol
        return visible

    def scan(self, line, probe=None):
        """The `LineScan` of a line, of another probe's outputs if one is given."""
        probe = self.probe if probe is None else probe
        try:
            return scan_line(
                lambda t: probe.query(line.at(t)),
                line.reach,
                length_scale=probe.length_scale,
                max_boundaries=self.max_units,
                rng=self.rng,
            )
        except BlackBoxError as error:
            if self.failure is not None:  # it was queried farther out than it should have been
                raise self.failure from None
            raise BlackBoxError(
                f"{error} The search for activation boundaries queries up to {self.reach:.1e} standard deviations from "
                "the center."
            ) from error

    def _refuse_deeper(self, n_missed, n_new):
        """Raise if so many units were missed that there must be more than one hidden layer."""
        known = len(self.units)
        self.n_missed += n_missed
        exact = self.probe.exact
        allowed = _MISSED + _MISSED_SHARE * known if exact else _MISSED_NOISY + _MISSED_SHARE_NOISY * known
        if n_missed and self.n_missed > allowed:
            raise NotIdentified(
                "activation boundaries",
                "bent",
                f"{n_missed} of the {known} known boundaries were not met, of the same size, where their hyperplanes "
                f"cross another line, which had {n_new} new ones: the outputs are piecewise linear, but their "
                "boundaries end, bend or change, as with more than one hidden layer, pooling, or clipped inputs.",
            )


def _start_points(probe, rng):
    """Points (n, D) with precise outputs, at up to four standard deviations."""
    U = rng.standard_normal((4 * _POOL, probe.oracle.n_inputs)) * np.repeat([0.5, 1.0, 2.0, 4.0], _POOL)[:, None]
    # Coordinates outside the input range: anywhere in it.
    low, high = (probe.oracle.clip_to_range(np.full_like(U, end)) for end in (-4.0, 4.0))
    U = np.where(probe.oracle.clip_to_range(U) == U, U, rng.uniform(low, high))
    visible = np.flatnonzero(np.isfinite(probe.query(U)[1]))
    if len(visible) < _FEWEST_STARTS:
        raise BlackBoxError(
            f"only {len(visible)} of {len(U)} points near the center have informative outputs: the classifier is too "
            "certain. Give samples X where it is less so."
        )
    return U[visible]


def _visible_interval(probe, origin, direction, reach):
    """The ends (low, high) of the interval of a line around its origin on which there are outputs."""
    t = np.geomspace(1e-3 * probe.length_scale, reach, _GRID)
    ends = [side * _visible_length(probe, origin, side * direction, t) for side in (-1.0, 1.0)]
    return ends[0], max(ends[1], ends[0] + 1e-6 * probe.length_scale)


def _visible_length(probe, origin, direction, t):
    """How far from the origin there are outputs along a ray: a grid t (n,), then bisection."""

    def visible(s):
        return np.isfinite(probe.query(origin + s[:, None] * direction)[1])

    seen = visible(t)
    end = t[-1]
    if not seen.all():
        n = int(np.argmin(seen))
        inner, outer = (0.0 if n == 0 else t[n - 1]), t[n]
        for _ in range(_BISECTIONS):
            middle = 0.5 * (inner + outer)
            inner, outer = (middle, outer) if visible(np.array([middle]))[0] else (inner, middle)
        end = 0.98 * inner
    if probe.oracle.output_bounds is not None:  # clipped outputs may return between two points of the grid
        within = end * np.linspace(0.0, 1.0, _CLIPPED_GRID)
        seen = visible(within)
        end = end if seen.all() else within[max(int(np.argmin(seen)) - 1, 0)]
    return end
