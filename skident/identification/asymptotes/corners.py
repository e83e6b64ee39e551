"""Corners of the outputs along a far line, one per unit, and the profile around each: its norm and position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize

from skident.fitting.linear_units import reflection_slope
from skident.linalg import lapack
from skident.oracle import NotIdentified

from ..constants import FAR_LEFT, SHORTER

__all__ = ["CURVED", "Corner", "FarLine", "Profile", "far_gradients", "find_corners", "fit_profile", "rounding_far_out"]

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
    """The corner at ``low + s`` with slopes from the longest straight pieces; None if these are not straight."""
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


_CLOSEST = 1e-10  # of a corner's reach, the first position at which the profile is sampled
_SAMPLES = 100  # on either side of the corner, to find its size: 10 per decade
_NODES = 48  # of the fit
_WITHIN = 12.0  # |z| where these lie: beyond, softplus is within 1e-5 of its asymptotes
_GRID = 2401  # pre-activations at which the activation's largest deviation is searched: spacing 0.01
_MIN_SIZE = 300.0  # of a profile's largest value, in units of the outputs' rounding
_MAX_RESIDUAL_ROUNDING = 100.0  # of the fit, in units of the outputs' rounding
_MAX_RESIDUAL = 1e-7  # of the fit, added to that, relative to the profile's largest value


@dataclass(frozen=True)
class Profile:
    """One unit, whose argument on the line is ``+-slope (t - position)`` with a positive slope.

    `orientation` is 1 or -1, whether the argument grows along the line; 0 if that is undetermined: for activations with
    ``g(z) - g(-z) = z`` a reflected unit has the same profile.
    """

    position: float
    slope: float
    orientation: int


def fit_profile(line, corner, activation):
    """`Profile` of the unit behind a corner of a `FarLine`, by least squares; None if it is not a single unit's.

    The activation must be constant far on the left and have slope 1 far on the right.
    """
    jump = corner.after - corner.before
    weight = jump / (jump @ jump)
    near = corner.reach * np.geomspace(_CLOSEST, 1.0, _SAMPLES)
    t = corner.position + np.concatenate([-near[::-1], near])
    tol = float(np.abs(weight) @ line.tolerance(t))
    deviations = (line.outputs(t) - corner.asymptotes(t)) @ weight
    largest = float(deviations[np.argmax(np.abs(deviations))])
    if abs(largest) < _MIN_SIZE * tol:
        return None
    low = float(activation(np.array([FAR_LEFT]))[0])
    reflects = bool(np.isclose(reflection_slope(activation), 1.0))
    fits = []
    for sign in (1,) if reflects else (1, -1):

        def deviation(z, sign=sign):
            # The asymptotes meet where z + low is the unit's argument.
            return activation(sign * z + low) - low - np.maximum(sign * z, 0.0)

        slope, residual = _fit_slope(line, corner, weight, deviation, largest)
        fits.append((residual, slope, sign))
    residual, slope, sign = min(fits)
    if residual > _MAX_RESIDUAL_ROUNDING * tol + _MAX_RESIDUAL * abs(largest):
        return None
    return Profile(corner.position - sign * low / slope, slope, 0 if reflects else sign)


def _fit_slope(line, corner, weight, deviation, largest):
    """Slope for which ``deviation(slope (t - corner)) / slope`` is that of the outputs, and the largest residual."""
    shape = deviation(np.linspace(-_WITHIN, _WITHIN, _GRID))
    rough = shape[np.argmax(np.abs(shape))] / largest
    if not 0.0 < rough < np.inf or _WITHIN / rough > corner.reach:
        return np.inf, np.inf
    t = corner.position + np.linspace(-_WITHIN, _WITHIN, _NODES) / rough
    wanted = ((line.outputs(t) - corner.asymptotes(t)) @ weight) * rough

    def residual(x):
        factor = np.exp(x[0])
        return deviation(factor * rough * (t - corner.position)) / factor - wanted

    fit = scipy.optimize.least_squares(residual, [0.0], method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return float(np.exp(fit.x[0]) * rough), float(np.abs(fit.fun).max() / rough)


CURVED = 6.0  # times their rounding bound, from which deviations of outputs from a line are curvature
_RAYS = 64  # along which rounding is measured; few of them run along a unit's hyperplane
_MAX_ROUNDING = 1e-11  # of the outputs: larger median second differences are no rounding
_MARGIN = 15.0  # times the median rounding, that hardly any output's error exceeds
_TRIES = 16  # such factors: 4e-9 of the first step
_STEP_CURVED = 4.0  # as `CURVED`, of second differences: 1 + 2 + 1 outputs


@dataclass(frozen=True)
class FarLine:
    """The line ``origin + t direction`` (unit vector), and the outputs' rounding (m_L,) per unit of norm."""

    oracle: object
    origin: np.ndarray
    direction: np.ndarray
    rounding: np.ndarray

    def at(self, t):
        """Points (n, D) at positions (n,)."""
        return self.origin + np.asarray(t)[:, None] * self.direction

    def outputs(self, t):
        """Outputs (n, m_L) at positions (n,)."""
        return self.oracle(self.at(t))

    def tolerance(self, t):
        """Rounding of the outputs (m_L,) at the farthest of positions (n,)."""
        return self.rounding * np.linalg.norm(self.at(t), axis=1).max()


def rounding_far_out(oracle, radius, rng):
    """Bound of the outputs' rounding (m_L,) per unit of the inputs' norm, from second differences along rays.

    Raises NotIdentified if the outputs do not grow linearly along rays.
    """
    rays = rng.standard_normal((_RAYS, oracle.n_inputs))
    rays *= radius / np.linalg.norm(rays, axis=1, keepdims=True)
    near, middle, far = (oracle(factor * rays) for factor in (1.0, 1.5, 2.0))
    deviation = np.abs(near - 2.0 * middle + far)
    size = np.abs(far).max(axis=0)
    rounding = np.median(deviation, axis=0) + np.finfo(float).eps * size
    if not np.all(rounding <= _MAX_ROUNDING * size):
        raise NotIdentified(
            "profiles",
            "curved",
            f"along rays, {radius:.1e} to {2.0 * radius:.1e} standard deviations from the center, the outputs deviate "
            f"from a line by {np.max(rounding / np.maximum(size, np.finfo(float).tiny)):.1e} of their size: they do "
            "not grow linearly, or are not exact.",
        )
    return _MARGIN * rounding / (2.0 * radius)


def far_gradients(line, t, steps, rng):
    """Gradients (n, m_L, D) at positions (n,) between units, by central differences.

    The first steps (n,) are shortened until they cross no unit. Raises NotIdentified if none is short enough.
    """
    D = len(line.direction)
    frame = lapack.qr(rng.standard_normal((D, D)))[0]
    points, middle = line.at(t), line.outputs(t)
    slopes = np.zeros((len(t), D, middle.shape[1]))
    steps = np.repeat(np.asarray(steps)[:, None], D, axis=1)
    point, axis = (index.ravel() for index in np.indices(steps.shape))
    for _ in range(_TRIES):
        h = steps[point, axis][:, None]
        ahead, behind = (line.oracle(points[point] + sign * h * frame[axis]) for sign in (1.0, -1.0))
        slopes[point, axis] = (ahead - behind) / (2.0 * h)
        tol = _STEP_CURVED * line.rounding * (np.linalg.norm(points[point], axis=1)[:, None] + h)
        crosses = np.any(np.abs(ahead - 2.0 * middle[point] + behind) > tol, axis=1)
        point, axis = point[crosses], axis[crosses]
        if len(point) == 0:
            return np.swapaxes(slopes, 1, 2) @ frame
        steps[point, axis] *= SHORTER
    raise NotIdentified("profiles", "crowded", "however short the steps of a gradient are, they cross units.")
