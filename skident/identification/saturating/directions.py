"""Direction and hyperplane of one first-layer unit per step, from outputs where all other units are saturated."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial import chebyshev
from scipy.stats import chi2

from skident.budget import check_deadline
from skident.budget.constants import BLOCK_ENTRIES
from skident.linalg import lapack

from ..constants import CHECK_DISTANCE, SHORTER
from ..query_points import random_tangents
from .step_fraction import StepFraction, solve_series

_PROFILE_NODES = 16  # queries per profile; enough for 1e-12 of tanh on |z| <= 0.5: its poles +-i pi/2 give rho = 6.4
_EXACT_RANGE = 0.5  # |z| on the profile of exact outputs: the polynomial converges fast there
_NOISY_RANGE = 1.5  # |z| with noise: a longer lever, where noise is more than the error of the polynomial
_NOISY_DEGREES = (3, 5, 7, 9)  # of the polynomial with noise: the lowest one that leaves noise only
_LACK_OF_FIT = 0.05  # probability that noise alone refutes a degree that is sufficient
_BETTER_FIT = 0.7  # part of the residual's standard deviation that a higher degree must reach to be taken
_MONOTONE_SIGMAS = 9.0  # noises by which neighboring nodes of a profile may fall: 9 / sqrt(2) standard deviations
_CENTERED = 0.4  # largest distance from 1/2 of the fraction at z = 0; else a tail, or a step cut by the circle's end
_STATED_NOISE = 4.0  # times the stated noise that the residual of a profile may have; rounded inputs add to it
_USUAL_NOISE = 6.0  # times the median uncertainty of z among profiles that one of them may have
_MAX_Z_NOISE = 1e-2  # uncertainty of z, from rounded inputs, beyond which a profile determines no direction
_MIN_SLOPE = 1e-3  # of a profile at z = 0, by which its noise is divided at least
_PILOT_DIRECTIONS = 6  # matched first; their slopes set the distance for all other directions
_EXACT_SHIFT = 0.2  # change of z aimed at in a typical direction: well inside the range of the profile
_NOISY_SHIFT = 0.7  # with noise, as above
_MIN_TYPICAL_SLOPE = 0.1  # of the slope along the circle: below it, the pilot directions say nothing of the others
_MATCH_ATTEMPTS = 8  # distances tried per direction
_TWO_SIDED_ABOVE = 1e-4  # noise of the fraction from which matches are made on both sides; twice the queries
_EXACT_CHECKS = 2  # random directions along the hyperplane in which the outputs must not change
_NOISY_CHECKS = 6  # with noise, as above
_CHECK_SHIFT = 0.03  # change of z over that distance that the error of the direction may cause
# Change of exact outputs along the hyperplane, of a step's height: an error of 1e-9 of the direction causes 3e-8.
_TANGENTIAL_TOL = 1e-6
_CHECK_FALSE_ALARMS = 1e-4  # probability that noise alone exceeds the tolerance of a check
_DIRECTION_SIGMAS = 2.5  # standard errors of the direction allowed for in the tolerance of a check
_MAX_TANGENTIAL = 0.15  # largest tolerance of a check, whatever the noise: another unit changes the outputs by more
_RATE_STEP = 0.05  # in z, of the central difference that measures the slope along the circle: error 1e-3
_CLIPPED_FRACTION = 1e-2  # fractions of a step are clipped to this distance from 0 and 1 where a logarithm follows
_CLIPPED_HEIGHT = 1e-3  # `_CLIPPED_FRACTION` for the fraction at z = 0 of a whole profile, which is known better


@dataclass
class UnitEstimate:
    """One first-layer unit as estimated from one step; `point` (D,) lies on its hyperplane.

    `error` is the standard error of the entries of `weights` (D,) relative to their norm, roughly; `tangential_change`
    the change of the outputs along the hyperplane relative to the step's height; `z_noise` the noise of the profile as
    an uncertainty of the pre-activation. The norm of the weights is that of tanh, roughly, unless `has_norm`.
    """

    weights: np.ndarray
    bias: float
    point: np.ndarray
    error: float
    tangential_change: float
    z_noise: float = 0.0
    has_norm: bool = False


@dataclass(frozen=True)
class _Middles:
    """Middles of t steps: their indices, points (t, D), tangents of the circle (t, D), slopes dz/ds along them (t,)."""

    index: np.ndarray
    base: np.ndarray
    tangent: np.ndarray
    rate: np.ndarray

    def take(self, good):
        return _Middles(self.index[good], self.base[good], self.tangent[good], self.rate[good])

    @property
    def radial(self):
        """Unit vectors away from the center, (t, D)."""
        return self.base / np.linalg.norm(self.base, axis=1, keepdims=True)


class _Profile:
    """Fraction of each step along the circle as a polynomial in tanh z, z the pre-activation."""

    def __init__(self, fraction, middles, noisy):
        self.range = _NOISY_RANGE if noisy else _EXACT_RANGE
        x = np.cos(np.pi * (np.arange(_PROFILE_NODES) + 0.5) / _PROFILE_NODES)
        s = np.arctanh(x * np.tanh(self.range)) / middles.rate[:, None]
        p = fraction(middles.index, middles.base[:, None] + s[:, :, None] * middles.tangent[:, None])
        heights = fraction.heights[middles.index]  # in units of the noise, if there is some
        noise = self._stated = 1.0 / heights if noisy else np.zeros(len(heights))
        exact = chebyshev.chebfit(x, p.T, _PROFILE_NODES - 1), noise
        self.coefficients, self.noise = _fit_lowest_degree(x, p, noise) if noisy else exact
        self.monotone = np.all(np.diff(p, axis=1) < (_MONOTONE_SIGMAS * self.noise)[:, None], axis=1)

    @property
    def z_noise(self):
        """Noise as an uncertainty of z, (t,)."""
        return self.noise / np.maximum(self.height_and_slope()[1], _MIN_SLOPE)

    def is_plausible(self, others):
        """Whether profiles are centered, and not much noisier than stated or than the others (z_noise) are, (t,).

        A black box that rounds its inputs has more noise than stated, but then in all profiles.
        """
        z_noise, height = self.z_noise, self.height_and_slope()[0]
        centered = np.abs(height - 0.5) < _CENTERED
        usual = min(_USUAL_NOISE * np.median([*z_noise, *others]), _MAX_Z_NOISE)
        return centered & ((self.noise <= _STATED_NOISE * self._stated) | (z_noise <= usual))

    def keep(self, good):
        """Drop all units but these."""
        self.coefficients, self.noise = self.coefficients[:, good], self.noise[good]

    def height_and_slope(self):
        """Fraction at z = 0 and its derivative by z there, (t,) each."""
        slope = chebyshev.chebval(0.0, chebyshev.chebder(self.coefficients)) / np.tanh(self.range)
        return chebyshev.chebval(0.0, self.coefficients), slope

    def invert(self, index, p):
        """Pre-activations z (t, k) at which the fractions are p (t, k), and dp/dz there."""
        c = self.coefficients[:, index]
        x = solve_series(c, p, 1.05)  # a little beyond the interval of the fit, so that its end is recognized
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            y = x * np.tanh(self.range)
            slope = chebyshev.chebval(x, chebyshev.chebder(c)[:, :, None], tensor=False)
            rise = slope * (1.0 - y**2) / np.tanh(self.range)
        y = np.clip(y, -1.0 + 1e-9, 1.0 - 1e-9)
        return np.arctanh(y), rise


def _fit_lowest_degree(x, p, noise):
    """Coefficients of the lowest degree that leaves noise only, and the noise estimated from the residual, (t,)."""
    best = np.zeros((_NOISY_DEGREES[-1] + 1, len(p)))
    estimate, unfinished = np.full(len(p), np.inf), np.ones(len(p), dtype=bool)
    for degree in _NOISY_DEGREES:
        c = chebyshev.chebfit(x, p.T, degree)
        freedom = len(x) - degree - 1
        left = np.sqrt(np.sum((p - chebyshev.chebval(x, c)) ** 2, axis=1) / freedom)
        better = unfinished & (left < _BETTER_FIT * estimate)
        best[:, better] = 0.0
        best[: degree + 1, better], estimate[better] = c[:, better], left[better]
        unfinished &= estimate > noise * np.sqrt(chi2.isf(_LACK_OF_FIT, freedom) / freedom)
    return best, np.maximum(estimate, noise)


def resolve_steps(query, circle, steps, rng, noisy, count, z_noises=()):
    """One `UnitEstimate` per step, None for a step that is not a single unit's.

    Samples the step's profile, matches it in all directions, and checks that the outputs are constant along the
    hyperplane. `query` maps points (n, D) to outputs (n, m_L), in units of the noise if there is any; ``count(name)``
    is a context that counts queries; `z_noises` are those of units estimated before.
    Per step 16 queries (18 if exact) for the profile, D - 1 or more for the directions, 3 (with noise 7) for the check.
    """
    estimates = [None] * len(steps)
    fraction = StepFraction(query, steps)
    with count("profile"):
        middles, profile = _profiles(fraction, circle, steps, noisy, z_noises)
    if len(middles.index) == 0:
        return estimates
    with count("matching"):
        weights, errors = _weights(fraction, profile, middles, circle, rng, noisy)
    units = _in_units_of_z(profile, middles.base, weights, errors)
    with count("check"):
        change, tolerance = _tangential_changes(fraction, profile, middles, units, rng, noisy)
    z_noise = profile.z_noise
    for k in np.flatnonzero(units.good & (change < tolerance)):
        unit = units.weights[k], units.biases[k], middles.base[k]
        estimates[middles.index[k]] = UnitEstimate(*unit, units.errors[k], change[k], z_noise[k])
    return estimates


def _profiles(fraction, circle, steps, noisy, z_noises):
    """Middles and profiles of the steps that may be a single unit's; without any of them, no profile."""
    index = np.flatnonzero(np.isfinite([s.rate for s in steps]) & (fraction.heights > 0))
    angles = np.array([steps[i].center for i in index])
    rate = np.array([steps[i].rate for i in index]) / circle.radius
    middles = _Middles(index, circle.at(angles), circle.tangents(angles), rate)
    if len(index) and not noisy:
        middles = replace(middles, rate=_measured_rate(fraction, middles))
    middles = middles.take(np.isfinite(middles.rate) & (middles.rate > 0))
    if len(middles.index) == 0:
        return middles, None
    profile = _Profile(fraction, middles, noisy)
    good = profile.monotone & profile.is_plausible(z_noises)
    profile.keep(good)
    return middles.take(good), profile


def _weights(fraction, profile, middles, circle, rng, noisy):
    """Weights (t, D) from the slopes of z along circle, radius and all other directions, and their errors (t,)."""
    frame, D = circle.frame, len(circle.frame)
    others = lapack.qr(np.column_stack([frame, rng.standard_normal((D, D - 2))]))[0][:, 2:]
    slopes, errors = _match(fraction, profile, middles, others, noisy)
    weights = middles.rate[:, None] * middles.tangent + slopes[:, :1] * middles.radial + slopes[:, 1:] @ others.T
    return weights, errors


@dataclass(frozen=True)
class _Units:
    """Weights (t, D) and biases (t,) in the unit of z, relative errors of the weights (t,), and which are sound."""

    weights: np.ndarray
    biases: np.ndarray
    errors: np.ndarray
    good: np.ndarray


def _in_units_of_z(profile, base, weights, errors):
    """Rescale the weights: z was measured by a rough rate, corrected by the profile's slope, (1 + tanh z) / 2."""
    norms = np.linalg.norm(weights, axis=1)
    good = np.isfinite(norms) & (norms > 0)
    height, slope = profile.height_and_slope()
    height = np.clip(height, _CLIPPED_HEIGHT, 1 - _CLIPPED_HEIGHT)
    scale = np.where(slope > 0, slope, 1.0) / (2.0 * height * (1.0 - height))
    weights = np.where(good[:, None], weights, 1.0)
    errors = np.where(good & np.isfinite(errors), errors, 1.0) / np.linalg.norm(weights, axis=1)
    weights = weights * scale[:, None]
    biases = 0.5 * np.log(height / (1.0 - height)) - np.sum(weights * base, axis=1)
    return _Units(weights, biases, errors, good & (slope > 0))


def _measured_rate(fraction, middles):
    """Slopes dz/ds (t,) along the tangents, by a central difference of the fraction (1 + tanh z) / 2."""
    step = _RATE_STEP / middles.rate[:, None]
    move = step * middles.tangent
    p = fraction(middles.index, np.stack([middles.base - move, middles.base + move], axis=1))
    slope = (p[:, 1] - p[:, 0]) / (2.0 * step[:, 0])
    height = np.clip(p.mean(axis=1), _CLIPPED_FRACTION, 1 - _CLIPPED_FRACTION)
    return slope / (2.0 * height * (1.0 - height))


def _match(fraction, profile, middles, others, noisy):
    """dz/ds along the radius and the columns of `others` (D, D - 2), (t, D - 1), and their standard errors, (t,)."""
    t, D = middles.base.shape
    aim, two_sided = (_NOISY_SHIFT, np.any(profile.noise > _TWO_SIDED_ABOVE)) if noisy else (_EXACT_SHIFT, False)
    slopes, errors = np.full((t, D - 1), np.nan), np.full((t, D - 1), np.nan)
    pilot, radial, rate = np.arange(min(_PILOT_DIRECTIONS, D - 1)), middles.radial, middles.rate
    step = aim / rate
    for columns in (pilot, np.arange(len(pilot), D - 1)):
        for some in _blocks(np.arange(t), D):
            rest = np.broadcast_to(others.T, (len(some), D - 2, D))
            directions = np.concatenate([radial[some][:, None], rest], axis=1)[:, columns]
            result = _match_some(fraction, profile, middles, some, directions, step, two_sided)
            slopes[np.ix_(some, columns)], errors[np.ix_(some, columns)] = result
        with np.errstate(invalid="ignore", divide="ignore"):
            known = np.where(np.isnan(slopes[:, 1 : len(pilot)]), 0.0, slopes[:, 1 : len(pilot)])
            typical = np.sqrt(np.mean(known**2, axis=1)) if len(pilot) > 1 else rate
        usable = np.isfinite(typical) & (typical > _MIN_TYPICAL_SLOPE * rate)
        step = aim / np.where(usable, typical, rate)
    return slopes, np.sqrt(np.mean(errors**2, axis=1))


def _match_some(fraction, profile, middles, some, directions, step, two_sided):
    """Slopes and errors (r, k) along directions (r, k, D), from the z on the profile with the same fraction."""
    step = np.broadcast_to(step[some, None], directions.shape[:2]).copy()
    slopes, errors = np.full(step.shape, np.nan), np.full(step.shape, np.nan)
    for _ in range(_MATCH_ATTEMPTS):
        check_deadline()
        r, k = np.nonzero(np.isnan(slopes))
        if len(r) == 0:
            break
        moves = step[r, k][:, None] * directions[r, k]
        where, points = some[r], middles.base[some[r]]
        U = np.stack([points + moves, points - moves] if two_sided else [points + moves], axis=1)
        z, rise = profile.invert(where, fraction(middles.index[where], U))
        inside = np.all(np.abs(z) < profile.range, axis=1)
        shift = 0.5 * (z[:, 0] - z[:, 1]) if two_sided else z[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            sigma = profile.noise[where] * np.sqrt(np.sum(1.0 / rise**2, axis=1)) / U.shape[1]
        slopes[r[inside], k[inside]] = (shift / step[r, k])[inside]
        errors[r[inside], k[inside]] = (sigma / step[r, k])[inside]
        step[r, k] *= np.where(inside, 1.0, SHORTER)
    return slopes, errors


def _blocks(index, D):
    size = max(1, BLOCK_ENTRIES // (D * D))
    return [index[i : i + size] for i in range(0, len(index), size)]


def _tangential_changes(fraction, profile, middles, units, rng, noisy):
    """Changes of the outputs along the units' hyperplanes relative to the steps' heights, and tolerances, both (t,).

    Far enough to disturb any other unit, not so far that an error of the direction causes more than a tenth.
    """
    D, n_checks = middles.base.shape[1], _NOISY_CHECKS if noisy else _EXACT_CHECKS
    distance = np.full(len(units.errors), CHECK_DISTANCE)
    if noisy:
        distance = np.clip(_CHECK_SHIFT / units.errors, 2.0 * np.sqrt(D), CHECK_DISTANCE)
    norms = np.linalg.norm(units.weights, axis=1)[:, None, None]
    normals = np.broadcast_to(units.weights[:, None] / norms, (len(norms), n_checks, D))
    base = middles.base[:, None]
    U = np.concatenate([base, base + random_tangents(normals, distance[:, None, None] / norms, rng)], axis=1)
    from_noise = np.sqrt(2.0 * chi2.isf(_CHECK_FALSE_ALARMS, fraction.n_outputs)) * profile.noise
    tolerance = _TANGENTIAL_TOL + np.hypot(from_noise, _DIRECTION_SIGMAS * distance * units.errors)
    return fraction.change(middles.index, U).max(axis=1), np.minimum(tolerance, _MAX_TANGENTIAL)
