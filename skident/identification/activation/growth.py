"""Behavior of outputs along lines: growth far out, polynomial degree, and linearity near the center."""

import numpy as np
from numpy.polynomial import chebyshev

from skident.budget.constants import ROUNDINGS
from skident.linalg import lapack

from ..constants import LINE_POINTS
from ..query_points import query_block

# Standard deviations of noise that no difference of a few outputs exceeds, even if the noise has heavy tails.
NOISE_SIGMAS = 16.0

_RAYS = 12  # from the center; three in four must agree, since units that hardly depend on a ray settle late
_AGREEING = 0.75  # share of them
_RADII = (1e-2, 0.1, 1.0)  # tried one after the other, relative to the farthest
_FACTORS = (1.0, 2.0, 4.0)  # of a radius: two changes, whose ratio is the exponent of a power
_SETTLED = 1e-7  # change from one radius to the next, relative to the outputs' spread, of outputs that have settled
_BOUNDED = 3.0  # ratio of the largest outputs at all radii, of bounded ones: a power grows a hundredfold
_OSCILLATION = 0.05  # change from one radius to the next, relative to the outputs' spread, of outputs that oscillate
_POWER_ERROR = 0.02  # error of an exponent of growth: lower powers have died out to 1e-2 at these radii
_MIN_CHANGE = 1e-4  # of the largest change: rays that change less have no exponent
_LINES = 3  # through the center, on which polynomials are fitted
_POLYNOMIAL_RANGE = 3.0  # standard deviations along each axis: leaves the region where tanh is a polynomial
_POLYNOMIAL_TOL = 1e-10  # residual relative to the largest output, that is rounding
_STRAIGHT_CHORDS = 0.9  # share of chords that must agree: half of those far out cross the hyperplane of a single unit
_CHORDS = 64  # up to the farthest distance, whose middles a linear function meets (budget: 3 queries each)

_NEAR_LINES = 4  # random lines near the center
_LINES_IF_LOST = 16  # where values are lost on most of these lines (budget)
_NEAR_POINTS = 161  # per line
_NEAR_RANGE = 2.0  # standard deviations either way
_NEAR_RANGE_CROWDED = 0.2  # `_NEAR_RANGE` if nearly all intervals contain an activation boundary
_NEAR_RANGE_ROUNDED = 1.0  # `_NEAR_RANGE` for rounded outputs, where trained units may be close together
_PIECEWISE_STRAIGHT = 0.4  # share of second differences that vanish, of piecewise linear functions
_LINEAR_STRAIGHT = 0.99  # `_PIECEWISE_STRAIGHT` of linear functions
_BEND = 100.0  # times that tolerance, beyond which a second difference is no rounding
_TINY_WINDOWS = 200  # in which the errors of rounded values are measured (budget)
_TINY_STEP = 1e-3  # standard deviations: curvature is a millionth there, and few windows contain a boundary
_TINY_MARGIN = 6.0  # median differences that rounding stays below: four standard deviations
_MIN_PRECISE = 200  # second differences of such values, of 636, that decide


def growth(oracle, rng, noise=0.0, farthest=1e5):
    """How outputs behave along rays: "settles", "oscillates", "power" or "unclear", and the exponent of a power.

    Outputs that approach constants as a power has a negative exponent.
    `noise` is the standard deviation of the outputs' errors beyond rounding; the last radius is `farthest` standard
    deviations. 36 queries per radius, one to three radii.
    """
    E = rng.standard_normal((_RAYS, oracle.n_inputs))
    exponent, spreads, moves = np.nan, [], []
    for radius in farthest * np.array(_RADII):
        Y = oracle(np.concatenate([k * radius * E for k in _FACTORS])).reshape(3, _RAYS, -1)
        spread = np.maximum(np.abs(Y - Y[0].mean(axis=0)).max(axis=(0, 1)), 1e-300)
        near, far = (np.max(np.abs(Y[k + 1] - Y[k]) / spread, axis=1) for k in (0, 1))
        if np.mean(np.maximum(near, far) < _SETTLED + NOISE_SIGMAS * np.max(noise / spread)) >= _AGREEING:
            return "settles", 0.0
        moving = near > _MIN_CHANGE * near.max()
        if not moving.any():  # between the first two radii, but beyond: no power
            continue
        exponents = np.log2(np.maximum(far[moving], 1e-300) / near[moving])
        exponent = float(np.median(exponents))
        steady = np.mean(np.abs(exponents - round(exponent)) < _POWER_ERROR) >= _AGREEING
        if steady and round(exponent) != 0:
            return "power", float(round(exponent))
        spreads.append(float(spread.max()))
        # Rays whose exponents agree grow by some other law; those of an oscillation are random.
        moves.append(float(np.median(near)) if np.ptp(exponents) > 0.5 else 0.0)
    bounded = len(spreads) > 0 and max(spreads) < _BOUNDED * min(spreads)
    return ("oscillates" if bounded and min(moves) > _OSCILLATION else "unclear"), exponent


def polynomial_degree(oracle, rng, degrees, noise=0.0):
    """The first of some degrees of which the outputs are polynomials on lines through the center; None if none."""
    E, t = rng.standard_normal((_LINES, oracle.n_inputs)), np.cos(np.pi * (np.arange(LINE_POINTS) + 0.5) / LINE_POINTS)
    Y = oracle((_POLYNOMIAL_RANGE * t[:, None, None] * E).reshape(-1, oracle.n_inputs)).reshape(LINE_POINTS, -1)
    for degree in degrees:
        Q, _ = lapack.qr(chebyshev.chebvander(t, degree))
        tol = _POLYNOMIAL_TOL * np.abs(Y).max() + NOISE_SIGMAS * np.max(noise)
        if np.abs(Y - Q @ (Q.T @ Y)).max() <= tol:
            return degree
    return None


def is_linear_far_out(oracle, rng, noise=0.0, farthest=1e5):
    """Whether outputs at the middles of chords of all lengths, up to `farthest`, are the means of those at their ends.

    Errors of standard deviation `noise` at the center may grow with the distance, as those of rounded inputs do.
    192 queries.
    """
    U, E = rng.standard_normal((2, _CHORDS, oracle.n_inputs))
    radii = np.geomspace(1.0, _RADII[1] * farthest, _CHORDS)[:, None]
    Y = query_block(oracle, radii[:, None] * np.stack([U - E, U, U + E], axis=1))
    tol = _POLYNOMIAL_TOL * np.abs(Y).max(axis=1) + NOISE_SIGMAS * noise * radii
    return bool(np.mean(np.all(np.abs(Y[:, 0] - 2.0 * Y[:, 1] + Y[:, 2]) <= tol, axis=1)) >= _STRAIGHT_CHORDS)


def classify_near_center(pre_activation, rng):
    """Whether values of a `PreActivationOracle` on lines near the center are "linear", "piecewise" linear or "curved".

    "curved" also if too few values are precise. 644 queries, and 600 more for rounded outputs. 644 further ones if
    exact outputs bend nearly everywhere, as those of hundreds of units do: then on shorter lines.
    """
    if pre_activation.is_rounded:
        return _classify_on_lines(pre_activation, rng, _NEAR_RANGE_ROUNDED, _error_scale(pre_activation, rng))
    shape = _classify_on_lines(pre_activation, rng, _NEAR_RANGE, 1.0)
    return _classify_on_lines(pre_activation, rng, _NEAR_RANGE_CROWDED, 1.0) if shape == "curved" else shape


def _classify_on_lines(pre_activation, rng, reach, scale):
    """See `classify_near_center`: on lines of half length `reach`, with errors that are `scale` times their bounds."""
    n_zero = n_precise = n_bent = n_lines = 0
    while n_lines < _NEAR_LINES or (n_precise < _MIN_PRECISE and n_lines < _LINES_IF_LOST):
        n_lines, (start, direction) = n_lines + 1, rng.standard_normal((2, pre_activation.n_inputs))
        # Lines end at the border of an input range: points moved there one by one would bend them.
        ends = pre_activation.clip_to_range(np.stack([start - reach * direction, start + reach * direction]))
        Z, error = pre_activation.query(np.linspace(*ends, _NEAR_POINTS))
        bend, tol = np.abs(np.diff(Z, 2, axis=0)), scale * (error[:-2] + 2.0 * error[1:-1] + error[2:])
        kept = np.isfinite(error).all(axis=1)
        spread = (
            np.maximum(1.0, np.std(Z[kept], axis=0)) if kept.any() else 1.0
        )  # bends of steep values are larger, too
        precise = np.isfinite(tol) & (tol < pre_activation.precise * spread)
        n_precise += int(precise.sum())
        tol = tol + ROUNDINGS * np.finfo(float).eps * np.abs(Z[1:-1])
        n_zero += int(np.sum(precise & (bend <= tol)))
        n_bent += int(np.sum(precise & (bend > _BEND * tol)))
    if n_precise < _MIN_PRECISE or n_zero < _PIECEWISE_STRAIGHT * n_precise:
        return "curved"
    return "piecewise" if n_bent else "linear" if n_zero > _LINEAR_STRAIGHT * n_precise else "curved"


def _error_scale(pre_activation, rng):
    """Largest second differences of rounded values in tiny windows, over what the bounds of their errors allow."""
    U, E = rng.standard_normal((2, _TINY_WINDOWS, pre_activation.n_inputs))
    parts = [pre_activation.query(U + side * _TINY_STEP * E) for side in (-1.0, 0.0, 1.0)]
    (before, e_1), (middle, e_2), (after, e_3) = parts
    ratio = np.abs(before - 2.0 * middle + after) / (e_1 + 2.0 * e_2 + e_3)
    ratio = ratio[np.isfinite(e_1 + e_2 + e_3)]
    return min(1.0, _TINY_MARGIN * float(np.median(ratio))) if len(ratio) else 1.0
