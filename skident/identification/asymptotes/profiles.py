"""The profile of one unit across its boundary far out, where all others are linear or zero: its zero and its norm."""

from dataclasses import dataclass

import numpy as np
import scipy.optimize

from skident.budget import check_deadline
from skident.network.tabulated import Tabulated

from ..constants import FAR_LEFT

DISTANCE = 1e5  # of the crossings, in sqrt(D) standard deviations: the other units are linear or zero there
_CLEAR = 0.4  # of the distance to the next boundary that a profile covers
_STRAIGHT = np.array([-1.0, -0.5, 0.5, 1.0])  # positions that give the two lines beside a corner, over its half length
_PLACES = 40  # on either side of the corner, to find the unit's norm: four per decade
_CLOSEST = 1e-10  # of these positions, over the half length
_NODES = 48  # of the fit
_WITHIN = 12.0  # |z| where these lie: beyond, softplus is within 1e-5 of its asymptotes
_GRID = 2401  # pre-activations at which the activation's largest deviation is searched: spacing 0.01
_UNIT_JUMP = 0.01  # difference of a profile's jump from that of the limit: others are no profiles of one unit


@dataclass(frozen=True)
class Crossing:
    """A point (D,) on a unit's boundary, the normal, the slope of its pre-activation, the jump (m_L,), its margin."""

    point: np.ndarray
    normal: np.ndarray
    slope: float
    jump: np.ndarray
    margin: float


class Profile:
    """Outputs along a line less the two lines beside the corner at which a unit bends, over the change of slope.

    `outputs` are a function of positions (n,), linear beyond half of the length `half`.
    """

    def __init__(self, outputs, half):
        t = half * _STRAIGHT
        y = outputs(t)
        before, after = (y[1] - y[0]) / (t[1] - t[0]), (y[3] - y[2]) / (t[3] - t[2])
        self.outputs, self.half, self.slopes, self.jump = outputs, half, (before, after), after - before
        self.largest = np.abs(y).max()
        with np.errstate(divide="ignore", invalid="ignore"):
            self.corner = (y[0] - before * t[0] - y[3] + after * t[3]) / self.jump
        self.value = y[0] + before * (self.corner - t[0])

    def difference(self, move):
        """From the two lines, at positions (n,) relative to the corner."""
        line = self.value + move * np.where(move > 0, self.slopes[1], self.slopes[0])
        return (self.outputs(self.corner + move) - line) / self.jump

    def near(self):
        """Positions (n,) on either side of the corner, and the differences there: scales from 1e-10 of the length."""
        near = (0.5 * self.half - abs(self.corner)) * np.geomspace(_CLOSEST, 1.0, _PLACES)
        move = np.concatenate([-near[::-1], near])
        return move, self.difference(move)


def profile_at(oracle, crossing, distance=DISTANCE):
    """The start (D,) of the line along the normal of a crossing at a distance, and the `Profile` on it.

    None in its place if slopes do not change by the jump.
    """
    start, jump = distance * crossing.point, crossing.jump / (crossing.jump @ crossing.jump)

    def outputs(t):
        return oracle(start + t[:, None] * crossing.normal) @ jump

    profile = Profile(outputs, _CLEAR * distance * crossing.margin)
    profile.rounding = np.finfo(float).eps * (profile.largest + distance * np.abs(profile.slopes).max())
    return start, profile if abs(profile.jump - 1.0) <= _UNIT_JUMP else None


def zero_and_slope(oracle, crossing, activation, distance=DISTANCE):
    """Where (D,) the pre-activation of a unit is 0 near a crossing, its slope along the normal, and the residual.

    The activation must be linear far on both sides. The differences of the outputs from these lines determine the
    slope. The residual is relative to the largest difference.
    """
    start, profile = profile_at(oracle, crossing, distance)
    if profile is None:
        return start, 1.0, np.inf
    places, differences = profile.near()
    rough = rough_slope(activation, differences)
    if not _WITHIN / places[-1] < rough < np.inf:
        return start, 1.0, np.inf
    move = np.linspace(-_WITHIN, _WITHIN, _NODES) / rough
    slope, left = fitted_slope(activation, move, profile.difference(move), rough)
    return start + (profile.corner - limits_of(activation)[0] / slope) * crossing.normal, slope, left


def shape_of(activation):
    """The activation less its two lines, which meet at 0, over its change of slope."""
    low, rate = limits_of(activation)
    left = activation.jet.slopes[0] if isinstance(activation, Tabulated) else 0.0

    def shape(z):  # the lines meet where z + low is the unit's argument
        return (activation(z + low) / rate - low - np.where(z > 0, z, left * z)) / (1.0 - left)

    return shape


def rough_slope(activation, differences):
    """The slope of a unit's argument for which the largest of its differences has the height of the activation's."""
    forms = shape_of(activation)(np.linspace(-_WITHIN, _WITHIN, _GRID))
    return forms[np.argmax(np.abs(forms))] / differences[np.argmax(np.abs(differences))]


def fitted_slope(activation, move, differences, rough):
    """The slope k for which the differences at `move` (n,) are ``shape(k move) / k``; residual over the largest."""
    shape, wanted = shape_of(activation), differences * rough

    def residual(x):
        check_deadline()
        return shape(np.exp(x[0]) * rough * move) / np.exp(x[0]) - wanted

    fit = scipy.optimize.least_squares(residual, [0.0], method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return float(np.exp(fit.x[0]) * rough), float(np.abs(fit.fun).max() / np.abs(wanted).max())


def profile_residual(activation, move, differences):
    """Residual of an activation's own bend, stretched to the differences at `move` (n,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rough = rough_slope(activation, differences)
    return fitted_slope(activation, move, differences, rough)[1] if 0.0 < rough < np.inf else np.inf


def limits_of(activation):
    """Left limit over the slope on the right, and that slope; the lines of a table meet at 0."""
    if isinstance(activation, Tabulated):
        return 0.0, float(activation.jet.slopes[1])
    ends = activation(np.array([FAR_LEFT, -FAR_LEFT]))
    rate = float(ends[1] / -FAR_LEFT)
    return float(ends[0] / rate), rate
