"""The profile of one unit across its boundary far out, where all others are linear or zero: its zero and its norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize

from skident.network.tabulated import Tabulated

from ..constants import FAR_LEFT

__all__ = ["DISTANCE", "Crossing", "Profile", "fitted_stretch", "limits_of", "shape_of", "zero_and_slope"]

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
    """Outputs along the normal of a crossing at a distance, in units of the jump, less the two lines beside the corner.

    The activation must be linear far on both sides: the lines meet near the boundary. None of this holds, and `corner`
    is None, if the slopes of the lines do not differ by the jump.
    """

    def __init__(self, oracle, crossing, distance=DISTANCE):
        self.oracle, self.crossing, self.start = oracle, crossing, distance * crossing.point
        self.half, self.corner = _CLEAR * distance * crossing.margin, None
        t = self.half * _STRAIGHT
        y = self._outputs(t)
        before, after = (y[1] - y[0]) / (t[1] - t[0]), (y[3] - y[2]) / (t[3] - t[2])
        self.before, self.after, self.jump = before, after, after - before
        self.rounding = np.finfo(float).eps * (np.abs(y).max() + distance * max(abs(before), abs(after)))
        if abs(self.jump - 1.0) > _UNIT_JUMP:
            return
        self.corner = (y[0] - before * t[0] - y[3] + after * t[3]) / self.jump
        self.value = y[0] + before * (self.corner - t[0])

    def _outputs(self, t):
        jump = self.crossing.jump
        return self.oracle(self.start + t[:, None] * self.crossing.normal) @ (jump / (jump @ jump))

    def difference(self, move):
        """From the two lines, at positions (n,) relative to the corner."""
        return self._outputs(self.corner + move) - self.value - move * np.where(move > 0, self.after, self.before)

    def near(self):
        """Positions (n,) on either side of the corner, and the differences there: scales from 1e-10 of the length."""
        near = (0.5 * self.half - abs(self.corner)) * np.geomspace(_CLOSEST, 1.0, _PLACES)
        move = np.concatenate([-near[::-1], near])
        return move, self.difference(move)


def zero_and_slope(oracle, crossing, activation, distance=DISTANCE):
    """Where (D,) the pre-activation of a unit is 0 near a crossing, its slope along the normal, and the residual.

    The activation must be linear far on both sides. The differences of the outputs from these lines determine the
    slope. The residual is relative to the largest difference.
    """
    profile = Profile(oracle, crossing, distance)
    if profile.corner is None:
        return profile.start, 1.0, np.inf
    low, shape = shape_of(activation)
    (places, differences), forms = profile.near(), shape(np.linspace(-_WITHIN, _WITHIN, _GRID))
    largest = differences[np.argmax(np.abs(differences))]
    rough = forms[np.argmax(np.abs(forms))] / largest
    if not _WITHIN / places[-1] < rough < np.inf:
        return profile.start, 1.0, np.inf
    move = np.linspace(-_WITHIN, _WITHIN, _NODES) / rough
    wanted = profile.difference(move) * rough
    stretch, left = fitted_stretch(shape, rough * move, wanted)
    slope = stretch * rough
    return profile.start + (profile.corner - low / slope) * crossing.normal, slope, left


def shape_of(activation):
    """Left limit over the slope on the right; and the activation less its two lines, for a change of slope by 1."""
    low, rate = limits_of(activation)
    left = activation.jet.slopes[0] if isinstance(activation, Tabulated) else 0.0

    def shape(z):  # the lines meet where z + low is the unit's argument
        return (activation(z + low) / rate - low - np.where(z > 0, z, left * z)) / (1.0 - left)

    return low, shape


def fitted_stretch(shape, z, wanted):
    """The factor k for which ``shape(k z) / k`` is the values wanted at z (n,), and the residual over the largest."""

    def residual(x):
        return shape(np.exp(x[0]) * z) / np.exp(x[0]) - wanted

    fit = scipy.optimize.least_squares(residual, [0.0], method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return float(np.exp(fit.x[0])), float(np.abs(fit.fun).max() / np.abs(wanted).max())


def limits_of(activation):
    """Left limit over the slope on the right, and that slope; the lines of a table meet at 0."""
    if isinstance(activation, Tabulated):
        return 0.0, float(activation.jet.slopes[1])
    ends = activation(np.array([FAR_LEFT, -FAR_LEFT]))
    rate = float(ends[1] / -FAR_LEFT)
    return float(ends[0] / rate), rate
