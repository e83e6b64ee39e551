"""Profile of one unit along a far line: norm and position from what lies between its two asymptotes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize

from skident.fitting.linear_units import reflection_slope

__all__ = ["Profile", "fit_profile"]

_CLOSEST = 1e-10  # of a corner's reach, the first position at which the profile is sampled
_SAMPLES = 100  # on either side of the corner, to find its size: 10 per decade
_NODES = 48  # of the fit
_WITHIN = 12.0  # |z| where these lie: beyond, softplus is within 1e-5 of its asymptotes
_GRID = 2401  # pre-activations at which the activation's largest deviation is searched: spacing 0.01
_MIN_SIZE = 300.0  # of a profile's largest value, in units of the outputs' rounding
_MAX_RESIDUAL_ROUNDING = 100.0  # of the fit, in units of the outputs' rounding
_MAX_RESIDUAL = 1e-7  # of the fit, added to that, relative to the profile's largest value
_FAR_LEFT = -1e3  # pre-activation at which an activation has reached its left limit


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
    low = float(activation(np.array([_FAR_LEFT]))[0])
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
