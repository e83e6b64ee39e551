"""The profile of one unit across its boundary far out, where all others are linear or zero: its zero and its norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize

from ..constants import FAR_LEFT

__all__ = ["DISTANCE", "Crossing", "limits_of", "zero_and_slope"]

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


def zero_and_slope(oracle, crossing, activation):
    """Where (D,) the pre-activation of a unit is 0 near a crossing, its slope along the normal, and the residual.

    The activation must be constant far on the left and linear far on the right: there the outputs are two lines which
    meet near the boundary. Their differences from these determine the slope. The residual is relative to the
    largest difference.
    """
    start, weight = DISTANCE * crossing.point, crossing.jump / (crossing.jump @ crossing.jump)
    half = _CLEAR * DISTANCE * crossing.margin

    def outputs(t):
        return oracle(start + t[:, None] * crossing.normal) @ weight

    t = half * _STRAIGHT
    y = outputs(t)
    before, after = (y[1] - y[0]) / (t[1] - t[0]), (y[3] - y[2]) / (t[3] - t[2])
    if abs(after - before - 1.0) > _UNIT_JUMP:
        return start, 1.0, np.inf
    corner = (y[0] - before * t[0] - y[3] + after * t[3]) / (after - before)
    value, (low, rate) = y[0] + before * (corner - t[0]), limits_of(activation)

    def difference(move):
        return outputs(corner + move) - value - move * np.where(move > 0, after, before)

    def shape(z):
        # The lines meet where z + low is the unit's argument.
        return activation(z + low) / rate - low - np.maximum(z, 0.0)

    near = (0.5 * half - abs(corner)) * np.geomspace(_CLOSEST, 1.0, _PLACES)
    differences, forms = difference(np.concatenate([-near[::-1], near])), shape(np.linspace(-_WITHIN, _WITHIN, _GRID))
    largest = differences[np.argmax(np.abs(differences))]
    rough = forms[np.argmax(np.abs(forms))] / largest
    if not _WITHIN / near[-1] < rough < np.inf:
        return start, 1.0, np.inf
    move = np.linspace(-_WITHIN, _WITHIN, _NODES) / rough
    wanted = difference(move) * rough

    def residual(x):
        return shape(np.exp(x[0]) * rough * move) / np.exp(x[0]) - wanted

    fit = scipy.optimize.least_squares(residual, [0.0], method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    slope = float(np.exp(fit.x[0]) * rough)
    left = float(np.abs(fit.fun).max() / np.abs(wanted).max())
    return start + (corner - low / slope) * crossing.normal, slope, left


def limits_of(activation):
    """Left limit over the slope on the right, and that slope."""
    ends = activation(np.array([FAR_LEFT, -FAR_LEFT]))
    rate = float(ends[1] / -FAR_LEFT)
    return float(ends[0] / rate), rate
