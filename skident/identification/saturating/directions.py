"""What one first-layer unit does to the answers far away, where all others are saturated: its direction."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial import chebyshev
from scipy.stats import chi2

from ..query_points import random_tangents
from .step_fraction import StepFraction, solve_series

__all__ = ["UnitEstimate", "resolve_steps"]

_PROFILE_NODES = 16  # enough for 1e-12 of tanh on |z| <= 0.5: its poles at +-i pi/2 give rho = 6.4
_EXACT_RANGE, _NOISY_RANGE = 0.5, 1.5  # |z| on the profile
_NOISY_DEGREES = (3, 5, 7, 9)
_FIRST_LOOK = 6  # directions matched before the step is set for all others
_EXACT_SHIFT, _NOISY_SHIFT = 0.2, 0.7  # pre-activation aimed at by a step in a typical direction
_RESTLESS = 1e-2  # uncertainty of z, from rounded inputs, beyond which a profile tells nothing
_BOTH_WAYS = 1e-4  # noise of the progress above which steps are made in both senses
_EXACT_SIDES, _NOISY_SIDES = 2, 6  # directions of the check along a hyperplane
_ASIDE = 30.0  # length of that check, times the unit's weight, and what the weight's error may make of it
_ASIDE_ERROR = 0.03
_RIDGE_TOLERANCE = 1e-6


@dataclass
class UnitEstimate:
    """One unit as one step shows it.

    Attributes
    ----------
    weights : ndarray of shape (D,)
    bias : float
    point : ndarray of shape (D,)
        On the unit's hyperplane.
    error : float
        Standard error of the weights' entries, relative to their length; of no more than rough size.
    ridge : float
        By how much of the step's height the answer changes along the hyperplane.
    unrest : float
        Noise of the profile as an uncertainty of the pre-activation.
    sized : bool
        Whether the weights have their true length; else it is roughly that for tanh.
    """

    weights: np.ndarray
    bias: float
    point: np.ndarray
    error: float
    ridge: float
    unrest: float = 0.0
    sized: bool = False


@dataclass(frozen=True)
class _Middles:
    """Middles of steps: which steps, points (t, D), unit vectors along the circle (t, D), slopes of z along these."""

    index: np.ndarray
    base: np.ndarray
    tangent: np.ndarray
    rate: np.ndarray

    def take(self, good):
        return _Middles(self.index[good], self.base[good], self.tangent[good], self.rate[good])

    @property
    def radial(self):
        """Unit vectors away from the centre, (t, D)."""
        return self.base / np.linalg.norm(self.base, axis=1, keepdims=True)


class _Profile:
    """StepFraction along the circle against the pre-activation z, as a polynomial in tanh z, unit by unit."""

    def __init__(self, progress, middles, noisy):
        self.range = _NOISY_RANGE if noisy else _EXACT_RANGE
        x = np.cos(np.pi * (np.arange(_PROFILE_NODES) + 0.5) / _PROFILE_NODES)
        s = np.arctanh(x * np.tanh(self.range)) / middles.rate[:, None]
        p = progress(middles.index, middles.base[:, None] + s[:, :, None] * middles.tangent[:, None])
        heights = progress.heights[middles.index]  # in units of the noise, if there is some
        noise = self._stated = 1.0 / heights if noisy else np.zeros(len(heights))
        exact = _fit(x, p, _PROFILE_NODES - 1), noise
        self.coefficients, self.noise = _fit_profiles(x, p, noise) if noisy else exact
        self.monotone = np.all(np.diff(p, axis=1) < (9.0 * self.noise)[:, None], axis=1)

    @property
    def unrest(self):
        """Noise as an uncertainty of z, (t,)."""
        return self.noise / np.maximum(self.height_and_slope()[1], 1e-3)

    def as_calm_as(self, others):
        """Whether a profile is about centred and not much noisier than stated, or no more so than others are.

        More noise than stated shows where the black box rounds its inputs, and then in all profiles.
        """
        unrest, height = self.unrest, self.height_and_slope()[0]
        centred = np.abs(height - 0.5) < 0.4  # else it is a tail, or a step cut by the end of the half circle
        usual = min(6.0 * np.median([*unrest, *others]), _RESTLESS)
        return centred & ((self.noise <= 4.0 * self._stated) | (unrest <= usual))

    def keep(self, good):
        """Forget all units but these."""
        self.coefficients, self.noise = self.coefficients[:, good], self.noise[good]

    def height_and_slope(self):
        """StepFraction at z = 0 and its slope there."""
        slope = chebyshev.chebval(0.0, chebyshev.chebder(self.coefficients)) / np.tanh(self.range)
        return chebyshev.chebval(0.0, self.coefficients), slope

    def invert(self, index, p):
        """z (t, k) with progress p (t, k), and dp/dz there."""
        c = self.coefficients[:, index]
        x = solve_series(c, p, 1.05)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            y = x * np.tanh(self.range)
            slope = chebyshev.chebval(x, chebyshev.chebder(c)[:, :, None], tensor=False)
            rise = slope * (1.0 - y**2) / np.tanh(self.range)
        y = np.clip(y, -1.0 + 1e-9, 1.0 - 1e-9)
        return np.arctanh(y), rise


def _fit(x, p, degree):
    return chebyshev.chebfit(x, p.T, degree)


def _fit_profiles(x, p, noise):
    """Coefficients of the lowest degree that leaves no more than noise, and the noise that is seen, (t,)."""
    best = np.zeros((_NOISY_DEGREES[-1] + 1, len(p)))
    seen, open_ = np.full(len(p), np.inf), np.ones(len(p), dtype=bool)
    for degree in _NOISY_DEGREES:
        c = _fit(x, p, degree)
        freedom = len(x) - degree - 1
        left = np.sqrt(np.sum((p - chebyshev.chebval(x, c)) ** 2, axis=1) / freedom)
        better = open_ & (left < 0.7 * seen)
        best[:, better] = 0.0
        best[: degree + 1, better], seen[better] = c[:, better], left[better]
        open_ &= seen > noise * np.sqrt(chi2.isf(0.05, freedom) / freedom)
    return best, np.maximum(seen, noise)


def resolve_steps(ask, circle, steps, rng, noisy, count, unrest=()):
    """One unit a step: sample the step's profile, compare with steps in all directions, check.

    Parameters
    ----------
    ask : callable
        Points (n, D) to answers (n, m_L), in units of the noise if there is some.
    circle : Circle
        On which the steps were seen.
    steps : list of Step
    rng : numpy.random.RandomState
    noisy : bool
    count : callable
        ``count(name)`` is a context in which queries are counted under that name.
    unrest : sequence of float, default=()
        Of units seen before.

    Returns
    -------
    list of UnitEstimate or None
        One a step; None where the step is not one unit's.

    Notes
    -----
    16 queries a step for its profile (two more if answers are exact), ``D - 1`` or more for the directions, and 3 (with
    noise 7) for the check.
    """
    found = [None] * len(steps)
    progress = StepFraction(ask, steps)
    with count("profile"):
        middles, profile = _profiles(progress, circle, steps, noisy, unrest)
    if len(middles.index) == 0:
        return found
    with count("matching"):
        weights, errors = _weights(progress, profile, middles, circle, rng, noisy)
    seen = _in_units_of_z(profile, middles.base, weights, errors)
    with count("check"):
        ridge, tolerance = _ridge_error(progress, profile, middles, seen, rng, noisy)
    unrest = profile.unrest
    for k in np.flatnonzero(seen.good & (ridge < tolerance)):
        unit = seen.weights[k], seen.biases[k], middles.base[k]
        found[middles.index[k]] = UnitEstimate(*unit, seen.errors[k], ridge[k], unrest[k])
    return found


def _profiles(progress, circle, steps, noisy, unrest):
    """Middles and profiles of the steps that look like one unit's; there may be none, and then no profile."""
    index = np.flatnonzero(np.isfinite([s.rate for s in steps]) & (progress.heights > 0))
    angles = np.array([steps[i].centre for i in index])
    rate = np.array([steps[i].rate for i in index]) / circle.radius
    middles = _Middles(index, circle.at(angles), circle.tangents(angles), rate)
    if len(index) and not noisy:
        middles = replace(middles, rate=_local_rate(progress, middles))
    middles = middles.take(np.isfinite(middles.rate) & (middles.rate > 0))
    if len(middles.index) == 0:
        return middles, None
    profile = _Profile(progress, middles, noisy)
    good = profile.monotone & profile.as_calm_as(unrest)
    profile.keep(good)
    return middles.take(good), profile


def _weights(progress, profile, middles, circle, rng, noisy):
    """Weights (t, D) from slopes of z along the circle, the radius and all directions aside, and their errors (t,)."""
    frame, D = circle.frame, len(circle.frame)
    aside = np.linalg.qr(np.column_stack([frame, rng.standard_normal((D, D - 2))]))[0][:, 2:]
    slopes, errors = _match(progress, profile, middles, aside, noisy)
    radial = middles.radial
    weights = middles.rate[:, None] * middles.tangent + slopes[:, :1] * radial + slopes[:, 1:] @ aside.T
    return weights, errors


@dataclass(frozen=True)
class _Units:
    """Weights (t, D) and biases (t,) in the unit of z, relative errors of the weights (t,), and which are sound."""

    weights: np.ndarray
    biases: np.ndarray
    errors: np.ndarray
    good: np.ndarray


def _in_units_of_z(profile, base, weights, errors):
    """The unit of z was a rough rate; the profile's slope at its middle, as of (1 + tanh z) / 2, mends it."""
    norms = np.linalg.norm(weights, axis=1)
    good = np.isfinite(norms) & (norms > 0)
    height, slope = profile.height_and_slope()
    height = np.clip(height, 1e-3, 1 - 1e-3)
    unit = np.where(slope > 0, slope, 1.0) / (2.0 * height * (1.0 - height))
    weights = np.where(good[:, None], weights, 1.0)
    errors = np.where(good & np.isfinite(errors), errors, 1.0) / np.linalg.norm(weights, axis=1)
    weights = weights * unit[:, None]
    biases = 0.5 * np.log(height / (1.0 - height)) - np.sum(weights * base, axis=1)
    return _Units(weights, biases, errors, good & (slope > 0))


def _local_rate(progress, middles):
    """Slope dz/ds along the tangent of the pre-activation, from the logistic form (1 + tanh z) / 2 of the profile."""
    step = 0.05 / middles.rate[:, None]
    move = step * middles.tangent
    p = progress(middles.index, np.stack([middles.base - move, middles.base + move], axis=1))
    slope = (p[:, 1] - p[:, 0]) / (2.0 * step[:, 0])
    height = np.clip(p.mean(axis=1), 1e-2, 1 - 1e-2)
    return slope / (2.0 * height * (1.0 - height))


def _match(progress, profile, middles, aside, noisy):
    """dz/ds along the radius and every column of `aside`, (t, D - 1), and their standard errors, (t,)."""
    t, D = middles.base.shape
    aim, both = (_NOISY_SHIFT, np.any(profile.noise > _BOTH_WAYS)) if noisy else (_EXACT_SHIFT, False)
    slopes, errors = np.full((t, D - 1), np.nan), np.full((t, D - 1), np.nan)
    first, radial, rate = np.arange(min(_FIRST_LOOK, D - 1)), middles.radial, middles.rate
    step = aim / rate
    for columns in (first, np.arange(len(first), D - 1)):
        for rows in _blocks(np.arange(t), D):
            others = np.broadcast_to(aside.T, (len(rows), D - 2, D))
            directions = np.concatenate([radial[rows][:, None], others], axis=1)[:, columns]
            found = _match_some(progress, profile, middles, rows, directions, step, both)
            slopes[np.ix_(rows, columns)], errors[np.ix_(rows, columns)] = found
        with np.errstate(invalid="ignore", divide="ignore"):
            seen = np.where(np.isnan(slopes[:, 1 : len(first)]), 0.0, slopes[:, 1 : len(first)])
            typical = np.sqrt(np.mean(seen**2, axis=1)) if len(first) > 1 else rate
        step = aim / np.where(np.isfinite(typical) & (typical > 0.1 * rate), typical, rate)
    return slopes, np.sqrt(np.mean(errors**2, axis=1))


def _match_some(progress, profile, middles, rows, directions, step, both):
    """Slopes and errors (r, k) along directions (r, k, D): the move along the circle with the same progress."""
    step = np.broadcast_to(step[rows, None], directions.shape[:2]).copy()
    slopes, errors = np.full(step.shape, np.nan), np.full(step.shape, np.nan)
    for _ in range(8):
        r, k = np.nonzero(np.isnan(slopes))
        if len(r) == 0:
            break
        moves = step[r, k][:, None] * directions[r, k]
        where, points = rows[r], middles.base[rows[r]]
        U = np.stack([points + moves, points - moves] if both else [points + moves], axis=1)
        z, rise = profile.invert(where, progress(middles.index[where], U))
        fine = np.all(np.abs(z) < profile.range, axis=1)
        shift = 0.5 * (z[:, 0] - z[:, 1]) if both else z[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            sigma = profile.noise[where] * np.sqrt(np.sum(1.0 / rise**2, axis=1)) / U.shape[1]
        slopes[r[fine], k[fine]] = (shift / step[r, k])[fine]
        errors[r[fine], k[fine]] = (sigma / step[r, k])[fine]
        step[r, k] *= np.where(fine, 1.0, 0.3)
    return slopes, errors


def _blocks(rows, D):
    size = max(1, 2**22 // (D * D))
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def _ridge_error(progress, profile, middles, seen, rng, noisy):
    """How much the answers change along the units' hyperplanes, and how much they may, both (t,).

    Far enough to disturb any other unit, not so far that an error of the direction shows for more than a tenth.
    """
    D, n_sides = middles.base.shape[1], _NOISY_SIDES if noisy else _EXACT_SIDES
    way = np.clip(_ASIDE_ERROR / seen.errors, 2.0 * np.sqrt(D), _ASIDE) if noisy else np.full(len(seen.errors), _ASIDE)
    norms = np.linalg.norm(seen.weights, axis=1)[:, None, None]
    normals = np.broadcast_to(seen.weights[:, None] / norms, (len(norms), n_sides, D))
    base = middles.base[:, None]
    U = np.concatenate([base, base + random_tangents(normals, way[:, None, None] / norms, rng)], axis=1)
    from_noise = np.sqrt(2.0 * chi2.isf(1e-4, progress.n_outputs)) * profile.noise
    tolerance = np.minimum(_RIDGE_TOLERANCE + np.hypot(from_noise, 2.5 * way * seen.errors), 0.15)
    return progress.change(middles.index, U).max(axis=1), tolerance
