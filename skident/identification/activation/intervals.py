"""The interval of a far line on which one hidden unit varies, and its activation from the profile there."""

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import lapack
from skident.network import get_activation

from ..asymptotes.profiles import Profile, profile_residual
from ..constants import MANY_ROUNDINGS
from .growth import NOISE_SIGMAS

_DISTANCE = 1e4  # of the line from the center, in sqrt(D) standard deviations: units are some 1e-4 of it wide
_HALF_LENGTH = 3.0  # half length of the line, in units of that distance: crosses nine hyperplanes in ten
_COARSE = 121  # points of the line
_FINE = 41  # points of a part of it
_MAX_BENT = 3  # second differences in a row by which a unit on the coarse line may bend; more are several units
_GAP = 3  # second differences of zero between two units
_MARGIN = 3  # points of the line beside an interval, on which it is straight
_BENT = 4.0  # times their error, beyond which second differences are no error: 1 + 2 + 1 outputs
_SHARP = 1e-9  # width of an interval relative to the distance, from which the unit is a corner or a jump
_MAX_ZOOMS = 60  # each shortens the interval to 0.6 or less: 1e-13 after all
_FULL = 0.6  # part of an interval that its unit fills in the end
_SIDE_WIDTHS = 400.0  # widths on either side of a sharp unit over which the slopes beside it are measured
_JUMP = 8.0  # times the change that slopes and errors explain, beyond which a sharp unit is a jump


@dataclass(frozen=True)
class Interval:
    """``low <= t <= high`` on the line ``start + t direction``, where one unit changes `output`, a combination.

    `shape` is "smooth", "corner" or "jump"; `error` that of the combined outputs.
    """

    start: np.ndarray
    direction: np.ndarray
    output: np.ndarray
    low: float
    high: float
    shape: str = "smooth"
    error: float = 0.0

    def outputs(self, oracle, t):
        """Combined outputs (n,) at positions t (n,)."""
        return oracle(self.start + t[:, None] * self.direction) @ self.output


def find_interval(oracle, rng, noise):
    """An `Interval` on a random line; None if no unit changes on it by itself.

    Second differences of the outputs show where they bend; the part is refined until the bend fills it or is sharp.
    ``121 + 41 k`` queries, k about 4 for smooth units and 8 for sharp ones. `noise` (m_L,) is beyond rounding.
    """
    E = lapack.qr(rng.standard_normal((oracle.n_inputs, 2)))[0].T * np.sqrt(oracle.n_inputs)
    start, direction = _DISTANCE * E[0], E[1]
    t = _DISTANCE * _HALF_LENGTH * (np.linspace(-1.0, 1.0, _COARSE) + rng.uniform(-0.5, 0.5) / _COARSE)
    Y = oracle(start + t[:, None] * direction)
    size = Y.std(axis=0)
    if not size.max() > 0:
        return None
    # A random combination of outputs of equal size: no unit is likely to cancel in it.
    output = np.where(size > 1e-12 * size.max(), rng.uniform(0.5, 1.5, len(size)) / np.maximum(size, 1e-300), 0.0)
    noise = float(np.linalg.norm(output * noise))
    runs = [run for run in _bent_runs(Y @ output, noise) if run[1] - run[0] <= _MAX_BENT]
    if not runs:
        return None
    first, last = runs[rng.randint(len(runs))]
    return _refined(Interval(start, direction, output, t[first], t[last + 2]), oracle, noise)


def _error(largest, noise):
    """Error of outputs of a given size: rounding and noise."""
    return MANY_ROUNDINGS * np.finfo(float).eps * largest + NOISE_SIGMAS * noise


def _bent_runs(y, noise):
    """First and last index of each run of second differences that are not 0 and lie well within the line."""
    y = y - y.mean()
    bent = np.flatnonzero(np.abs(np.diff(y, 2)) > _BENT * _error(np.abs(y).max(), noise))
    if not len(bent):
        return []
    cuts = np.flatnonzero(np.diff(bent) > _GAP)
    runs = [(part[0], part[-1]) for part in np.split(bent, cuts + 1)]
    return [(a, b) for a, b in runs if a >= _MARGIN and b <= len(y) - 3 - _MARGIN]


def _refined(interval, oracle, noise):
    """The interval shortened to its unit; None if there is none any more."""
    for _ in range(_MAX_ZOOMS):
        low, high = interval.low, interval.high
        t = np.linspace(low, high, _FINE)
        y = interval.outputs(oracle, t)
        step = t[1] - t[0]
        steepest = np.abs(np.diff(y)).max() / step
        error = _error(np.abs(y).max() + steepest * _DISTANCE, noise)  # positions are rounded, too
        bent = np.flatnonzero(np.abs(np.diff(y - np.linspace(y[0], y[-1], _FINE), 2)) > _BENT * error)
        if high - low <= _SHARP * _DISTANCE:
            return _sharp(interval, oracle, noise)
        if not len(bent):
            return None
        bent = bent[: 1 + np.argmax(np.append(np.diff(bent), _GAP + 1) > _GAP)]  # the first unit of several
        new_low, new_high = t[bent[0]] - step, t[bent[-1] + 2] + step
        if new_high - new_low > _FULL * (high - low):
            return replace(interval, error=error / MANY_ROUNDINGS)
        interval = replace(interval, low=max(low, new_low), high=min(high, new_high))
    return None


def _sharp(interval, oracle, noise):
    """Whether a sharp unit is a jump or a corner."""
    low, high = interval.low, interval.high
    width = high - low
    y = interval.outputs(oracle, np.array([low - _SIDE_WIDTHS * width, low, high, high + _SIDE_WIDTHS * width]))
    slope = max(abs(y[1] - y[0]), abs(y[3] - y[2])) / (_SIDE_WIDTHS * width)
    error = _error(np.abs(y).max(), noise)
    shape = "jump" if abs(y[2] - y[1]) > _JUMP * slope * width + _JUMP * error else "corner"
    return replace(interval, shape=shape, error=error)


_POINTS = 201  # of a profile: some 60 on each tail
_END_POINTS = 10  # whose mean is the limit of a tail
_TAIL_START = 1e-4  # part of the step left where a tail begins: the next power of an exponential is 1e-8
_ERRORS = 30.0  # errors of the outputs at which a tail ends
_MIN_POINTS = 8  # of a tail
_MIN_DECADES = 3.0  # that a tail must fall: curvatures of tanh and erf differ by 0.3, and are good to 0.05 then
_EXPONENTIAL = 0.08  # largest curvature of the logarithm of an exponential tail
_GAUSSIAN = 0.2  # smallest one of a Gaussian tail, which is about 0.3
GROWING = ("softplus", "gelu", "silu", "gelu_tanh", "hardswish", "elu", "selu", "mish")  # units that grow linearly


def settling_profile(interval, oracle):
    """Name ("tanh" if a unit settles like exp(-2 z), "erf" if like exp(-z^2), or None), and curvatures of its tails.

    The curvature is the quadratic part of the logarithm of the distance from the limit, over its whole fall: 0 for tanh
    (and sigmoid), about 0.3 for erf. Holds behind any smooth layers: they are linear in what is left of a tail.
    """
    width = interval.high - interval.low
    t = np.linspace(interval.low - 0.5 * width, interval.high + 0.5 * width, _POINTS)
    y = interval.outputs(oracle, t)
    curvatures = [_tail_curvature(side * t[::side], y[::side], interval.error) for side in (1, -1)]
    curvatures = [c for c in curvatures if c is not None]
    if curvatures and max(curvatures) < _EXPONENTIAL:
        return "tanh", curvatures
    if curvatures and min(curvatures) > _GAUSSIAN:
        return "erf", curvatures
    return None, curvatures


def _tail_curvature(s, y, error):
    """Curvature of the logarithm of the tail at the right end of outputs y (n,) at s (n,); None if it is too short."""
    left = np.abs(y - y[-_END_POINTS:].mean())
    step = np.abs(y[-1] - y[0]) + left.max()
    end = max(_ERRORS * error, 1e-15 * step)
    low = np.flatnonzero(left < _TAIL_START * step)
    start = low[np.argmax(low > np.flatnonzero(left >= _TAIL_START * step)[-1])] if len(low) else len(left)
    below = np.flatnonzero(left[start:] < end)
    stop = start + (below[0] if len(below) else 0)
    if stop - start < _MIN_POINTS or np.log10(left[start] / left[stop - 1]) < _MIN_DECADES:
        return None
    u = (s[start:stop] - s[start]) / (s[stop - 1] - s[start])
    a = np.polyfit(u, np.log(left[start:stop]), 2)
    return float(-a[0] / (-np.polyval(a, 1.0) + np.polyval(a, 0.0)))


def growing_profile(interval, oracle):
    """The activation whose bend is that of the outputs, and the residual of each; either end may be its left one."""
    width, center = interval.high - interval.low, 0.5 * (interval.low + interval.high)
    profile = Profile(lambda t: interval.outputs(oracle, center + t), 1.2 * width)
    if not abs(profile.corner) < profile.half:  # the slopes beside the unit are equal
        return GROWING[0], dict.fromkeys(GROWING, np.inf)
    move = width * np.linspace(-0.6, 0.6, _POINTS)
    differences, residuals = profile.difference(move), {}
    for name in GROWING:
        residuals[name] = min(profile_residual(get_activation(name), side * move, differences) for side in (1.0, -1.0))
    return min(residuals, key=residuals.get), residuals
