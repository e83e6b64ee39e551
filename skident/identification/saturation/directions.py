"""What one first-layer unit does to the answers far away, where all others are saturated: its direction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev
from scipy.stats import chi2

from .circles import on_circle

__all__ = ["Sighting", "resolve_steps"]

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
class Sighting:
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


class _Progress:
    """Where answers stand between the two ends of their steps: 0 before, 1 after."""

    def __init__(self, ask, steps, noisy):
        jump = np.array([s.after - s.before for s in steps])
        height = np.linalg.norm(jump, axis=1)
        self._ask, self._before = ask, np.array([s.before for s in steps])
        self._jump, self._height = jump / height[:, None] ** 2, height
        self.n_outputs = jump.shape[1]
        self.noise = 1.0 / height if noisy else np.zeros(len(steps))  # answers come in units of the noise

    def _answers(self, U):
        return self._ask(U.reshape(-1, U.shape[2])).reshape(*U.shape[:2], -1)

    def __call__(self, index, U):
        """Progress (t, k) of steps `index` (t,) at U (t, k, D)."""
        return np.einsum("tkp,tp->tk", self._answers(U) - self._before[index][:, None], self._jump[index])

    def change(self, index, U):
        """Distances (t, k - 1) of answers at ``U[:, 1:]`` from those at ``U[:, 0]``, relative to the step's height.

        In all outputs: of two units that cross together the progress can stay while the answers do not.
        """
        F = self._answers(U)
        return np.linalg.norm(F[:, 1:] - F[:, :1], axis=2) / self._height[index][:, None]


class _Profile:
    """Progress along the circle against the pre-activation z, as a polynomial in tanh z, unit by unit."""

    def __init__(self, progress, index, base, tangent, rate, noisy):
        self.range = _NOISY_RANGE if noisy else _EXACT_RANGE
        x = np.cos(np.pi * (np.arange(_PROFILE_NODES) + 0.5) / _PROFILE_NODES)
        s = np.arctanh(x * np.tanh(self.range)) / rate[:, None]
        p = progress(index, base[:, None] + s[:, :, None] * tangent[:, None])
        noise = self._stated = progress.noise[index]
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
        """Progress at z = 0 and its slope there."""
        slope = chebyshev.chebval(0.0, chebyshev.chebder(self.coefficients)) / np.tanh(self.range)
        return chebyshev.chebval(0.0, self.coefficients), slope

    def invert(self, index, p):
        """z (t, k) with progress p (t, k), by Newton's iteration, and dp/dz there."""
        c = self.coefficients[:, index]
        value, slope = c[:, :, None], chebyshev.chebder(c)[:, :, None]
        x = np.zeros_like(p)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            for _ in range(12):
                f = chebyshev.chebval(x, value, tensor=False) - p
                x = np.clip(x - f / chebyshev.chebval(x, slope, tensor=False), -1.05, 1.05)
            y = x * np.tanh(self.range)
            rise = chebyshev.chebval(x, slope, tensor=False) * (1.0 - y**2) / np.tanh(self.range)
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


def resolve_steps(ask, frame, radius, steps, rng, noisy, count, unrest=()):
    """One unit a step: sample the step's profile, compare with steps in all directions, check.

    Parameters
    ----------
    ask : callable
        Points (n, D) to answers (n, m_L), in units of the noise if there is some.
    frame : ndarray of shape (D, 2)
    radius : float
    steps : list of Step
    rng : numpy.random.RandomState
    noisy : bool
    count : callable
        ``count(name)`` is a context in which queries are counted under that name.
    unrest : sequence of float, default=()
        Of units seen before.

    Returns
    -------
    list of Sighting or None
        One a step; None where the step is not one unit's.
    """
    D, found = len(frame), [None] * len(steps)
    index = np.flatnonzero([np.isfinite(s.rate) for s in steps])
    if len(index) == 0:
        return found
    progress = _Progress(ask, steps, noisy)
    angles = np.array([steps[i].centre for i in index])
    base = on_circle(frame, radius, angles)
    tangent = on_circle(frame, 1.0, angles + 0.5 * np.pi)
    rate = np.array([steps[i].rate for i in index]) / radius
    with count("profile"):
        rate = rate if noisy else _local_rate(progress, index, base, tangent, rate)
        good = np.isfinite(rate) & (rate > 0)
        index, base, tangent, rate = (v[good] for v in (index, base, tangent, rate))
        if len(index) == 0:
            return found
        profile = _Profile(progress, index, base, tangent, rate, noisy)
        good = profile.monotone & profile.as_calm_as(unrest)
        index, base, tangent, rate = (v[good] for v in (index, base, tangent, rate))
        profile.keep(good)
        if len(index) == 0:
            return found
    with count("matching"):
        aside = np.linalg.qr(np.column_stack([frame, rng.standard_normal((D, D - 2))]))[0][:, 2:]
        radial = base / np.linalg.norm(base, axis=1, keepdims=True)
        slopes, errors = _match(progress, profile, index, base, radial, aside, rate, noisy)
        weights = rate[:, None] * tangent + slopes[:, :1] * radial + slopes[:, 1:] @ aside.T
    return _judged(progress, profile, index, base, weights, errors, rng, noisy, count, found)


def _judged(progress, profile, index, base, weights, errors, rng, noisy, count, found):
    """Weights in the unit of z, biases, and the check along the hyperplane."""
    norms = np.linalg.norm(weights, axis=1)
    good = np.isfinite(norms) & (norms > 0)
    # The unit of z was a rough rate; the profile's slope at its middle, as of (1 + tanh z) / 2, mends it.
    height, slope = profile.height_and_slope()
    height = np.clip(height, 1e-3, 1 - 1e-3)
    unit = np.where(slope > 0, slope, 1.0) / (2.0 * height * (1.0 - height))
    weights = np.where(good[:, None], weights, 1.0)
    errors = np.where(good & np.isfinite(errors), errors, 1.0) / np.linalg.norm(weights, axis=1)
    weights = weights * unit[:, None]
    biases = 0.5 * np.log(height / (1.0 - height)) - np.sum(weights * base, axis=1)
    # Far enough to disturb any other unit, not so far that an error of the direction shows for more than a tenth.
    D = base.shape[1]
    way = np.clip(_ASIDE_ERROR / errors, 2.0 * np.sqrt(D), _ASIDE) if noisy else np.full(len(index), _ASIDE)
    with count("check"):
        ridge = _ridge_error(progress, index, base, weights, way, rng, _NOISY_SIDES if noisy else _EXACT_SIDES)
    from_noise = np.sqrt(2.0 * chi2.isf(1e-4, progress.n_outputs)) * profile.noise
    tolerance = np.minimum(_RIDGE_TOLERANCE + np.hypot(from_noise, 2.5 * way * errors), 0.15)
    unrest = profile.unrest
    for k in np.flatnonzero(good & (slope > 0) & (ridge < tolerance)):
        found[index[k]] = Sighting(weights[k], biases[k], base[k], errors[k], ridge[k], unrest[k])
    return found


def _local_rate(progress, index, base, tangent, rate):
    """Slope dz/ds along the tangent of the pre-activation, from the logistic form (1 + tanh z) / 2 of the profile."""
    step = 0.05 / rate[:, None]
    p = progress(index, np.stack([base - step * tangent, base + step * tangent], axis=1))
    slope = (p[:, 1] - p[:, 0]) / (2.0 * step[:, 0])
    height = np.clip(p.mean(axis=1), 1e-2, 1 - 1e-2)
    return slope / (2.0 * height * (1.0 - height))


def _match(progress, profile, index, base, radial, aside, rate, noisy):
    """dz/ds along the radius and every column of `aside`, (t, D - 1), and their standard errors, (t,)."""
    t, D = base.shape
    aim, both = (_NOISY_SHIFT, np.any(profile.noise > _BOTH_WAYS)) if noisy else (_EXACT_SHIFT, False)
    slopes, errors = np.full((t, D - 1), np.nan), np.full((t, D - 1), np.nan)
    first = np.arange(min(_FIRST_LOOK, D - 1))
    step = aim / rate
    for columns in (first, np.arange(len(first), D - 1)):
        for rows in _blocks(np.arange(t), D):
            others = np.broadcast_to(aside.T, (len(rows), D - 2, D))
            directions = np.concatenate([radial[rows][:, None], others], axis=1)
            args = progress, profile, index, base, directions[:, columns], step, both, rows
            slopes[np.ix_(rows, columns)], errors[np.ix_(rows, columns)] = _match_some(*args)
        with np.errstate(invalid="ignore", divide="ignore"):
            seen = np.where(np.isnan(slopes[:, 1 : len(first)]), 0.0, slopes[:, 1 : len(first)])
            typical = np.sqrt(np.mean(seen**2, axis=1)) if len(first) > 1 else rate
        step = aim / np.where(np.isfinite(typical) & (typical > 0.1 * rate), typical, rate)
    return slopes, np.sqrt(np.mean(errors**2, axis=1))


def _match_some(progress, profile, index, base, directions, step, both, rows):
    """Slopes and errors (r, k) along directions (r, k, D): the move along the circle with the same progress."""
    step = np.broadcast_to(step[rows, None], directions.shape[:2]).copy()
    slopes, errors = np.full(step.shape, np.nan), np.full(step.shape, np.nan)
    for _ in range(8):
        r, k = np.nonzero(np.isnan(slopes))
        if len(r) == 0:
            break
        moves = step[r, k][:, None] * directions[r, k]
        where, points = rows[r], base[rows[r]]
        U = np.stack([points + moves, points - moves] if both else [points + moves], axis=1)
        z, rise = profile.invert(where, progress(index[where], U))
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


def _ridge_error(progress, index, base, weights, way, rng, n_sides):
    """How much the answers change on moving along the unit's hyperplane far enough to disturb any other unit."""
    norms = np.linalg.norm(weights, axis=1)[:, None, None]
    normals = weights[:, None] / norms
    aside = rng.standard_normal((len(base), n_sides, base.shape[1]))
    aside -= np.sum(aside * normals, axis=2, keepdims=True) * normals
    aside /= np.linalg.norm(aside, axis=2, keepdims=True)
    U = np.concatenate([base[:, None], base[:, None] + way[:, None, None] / norms * aside], axis=1)
    return progress.change(index, U).max(axis=1)
