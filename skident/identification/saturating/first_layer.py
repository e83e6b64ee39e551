"""The first layer from far away: hyperplanes where a saturated network moves.

Far from the origin every sigmoidal first-layer unit is saturated except near its own hyperplane, so on a large circle
the answer is a step function, and near a step it depends on one unit only: ``f(x) = phi(w_i . x + b_i)``. Moving along
that profile and comparing with steps in other directions gives ``w_i`` without derivatives.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from skident.fitting.design import design_points
from skident.network import get_activation
from skident.oracle import BlackBoxError, NotIdentified, above_rounding

from ..query_points import random_sphere
from .circles import Circle, grid_without, known_steps, scan
from .directions import resolve_steps
from .groups import group_size, resolve_in_groups
from .norms import refine_norms
from .step_fraction import as_of_tanh

__all__ = ["FirstLayer", "find_first_layer"]

_RADIUS = 3e4  # in units of sqrt(D), for exact answers
_ATTEMPTS = 4  # circles of growing radius
_MAX_CIRCLES = 24  # half circles of one radius
_PATIENCE, _PATIENCE_NOISY = 3, 6  # half circles without a new unit after which an unknown m_1 is taken as complete
_SAME, _SAME_GROUPED = 1e-8, 1e-6  # 1 - cosine below which two directions are one unit
_SIGMAS = 6.0
_POOR = 30.0  # times the usual error of a direction
_ZOOM = 30.0
_N_ZOOMS = 2


@dataclass
class FirstLayer:
    """First-layer units found from saturation, in the oracle's coordinates.

    Attributes
    ----------
    weights : ndarray of shape (D, m_1)
        Columns: the direction (1e-9) times the length (see `refine_norms`). The sign is not determined.
    biases : ndarray of shape (m_1,)
        So that the unit's hyperplane is about ``weights.T u + biases = 0``. A start value: with more than one layer
        a shift of z can be absorbed by the layers above (``tanh(x + z)`` is a Moebius map of ``tanh x``), and the
        profile leaves an uncertainty of some tenths.
    points : ndarray of shape (m_1, D)
        A far point on every unit's hyperplane, where all other units are saturated.
    radius : float
        Radius of the circles.
    n_circles : int
        Half circles searched.
    n_unexplained : int
        Steps on those circles that were neither resolved nor on a known hyperplane (overlapping units, mostly).
    queries : dict
        Rows asked for ``scan`` (steps on circles), ``profile``, ``matching``, ``check`` (of single units) and
        ``lengths``.
    errors : ndarray of shape (m_1,) or None
        With noise: standard error of the entries of every unit's direction, roughly.
    """

    weights: np.ndarray
    biases: np.ndarray
    points: np.ndarray
    radius: float
    n_circles: int
    n_unexplained: int
    queries: dict = field(default_factory=dict)
    errors: np.ndarray | None = None

    @property
    def norms(self):
        """Norms of the weights, (m_1,)."""
        return np.linalg.norm(self.weights, axis=0)

    @property
    def directions(self):
        """Unit vectors, (D, m_1)."""
        return self.weights / self.norms

    def points_near_center(self, rng):
        """A point on or near every unit's hyperplane, not far away: where the answers move if they move at all.

        Parameters
        ----------
        rng : numpy.random.RandomState

        Returns
        -------
        ndarray of shape (m_1, D)
        """
        m = len(self.biases)
        return design_points(self.weights, self.biases, 2 * m, 1.0, rng)[:m]


def find_first_layer(
    oracle, *, activation="tanh", n_units=None, radius=None, rng=None, callback=None, noise=None, precise=True
):
    """Weights (up to sign and, roughly, length) and hyperplanes of a saturating first layer, from function values.

    Parameters
    ----------
    oracle : Oracle
        Asked in its standardised coordinates.
    activation : str, default="tanh"
        A saturating activation; it only sets the unit in which lengths are estimated.
    n_units : int, default=None
        m_1 if known: the search ends when as many are found. Otherwise after three half circles without news. There
        are 24 half circles at most; every hyperplane crosses each of them once.
    radius : float, default=None
        Radius of the circles in units of ``sqrt(D)``; grows thirtyfold, up to three times, while the answers still
        move on large parts of the circle. None: 3e4; with noise, which hides the far ends of steps, as small as keeps
        nine steps in ten apart, since black boxes that round their inputs err in proportion to it.
    rng : numpy.random.RandomState, default=None
    callback : callable, default=None
        ``callback(n_found, n_seen)`` after every half circle: units, and most steps on a half circle so far.
    noise : float or ndarray of shape (m_L,), default=None
        Standard deviation of the noise in every output, absolute, as `measure_noise` gives it. All thresholds follow
        from it.
    precise : bool, default=True
        False: where exact answers have more than two outputs, several units at a time, in half the queries or less;
        directions are good to about 1e-4 then, which is enough to start a fit of all parameters.

    Returns
    -------
    FirstLayer

    Raises
    ------
    NotIdentified
        (a ValueError) If the answers move everywhere at the largest radius, or nowhere at all; if no step is one of a
        sigmoidal unit; or if the activation does not saturate.
    ValueError
        If there is one input only.
    BlackBoxError
        (a ValueError) If the black box cannot be asked that far away.

    Notes
    -----
    About 32 queries a half circle and, for every new step on it, 15 to find it, 16 for its profile, D - 1 to compare
    it with steps in other directions, 3 to check and 24 for its length. Works at any depth and for any m_1, also above
    D; two parallel units are found as one. With noise of a fraction q of a step's height the directions' entries are
    good to about q; above 1e-4, twice the queries are spent on them. Without `precise` a new step takes 15 queries, 10,
    2 to check and about the root of D plus ``D / k``, see `resolve_in_groups`.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle
    >>> from skident.identification.saturating.first_layer import find_first_layer
    >>> W = np.array([[3.0, 0.0], [4.0, -2.0]])
    >>> first = find_first_layer(Oracle(lambda X: np.tanh(X @ W).sum(axis=1), 2), rng=np.random.RandomState(0))
    >>> print(round(float(np.abs(first.directions).max()), 6))
    1.0
    """
    rng = np.random.RandomState(0) if rng is None else rng
    if oracle.n_inputs < 2:
        raise ValueError("n_features=1: hyperplanes of different units cannot be told apart; at least 2 are needed.")
    g = get_activation(activation)
    if not g.saturating:
        raise NotIdentified(
            "saturation", "unbounded", f"activation={g.name!r} does not saturate; use first_layer='hessian'."
        )
    search = _Search(oracle, n_units, rng, callback, None if precise else g)
    exact = np.sqrt(oracle.n_inputs) * (_RADIUS if radius is None else radius)
    for attempt in range(_ATTEMPTS):
        reach, last = exact, attempt == _ATTEMPTS - 1
        try:
            sigma, reach, growth = _noise_and_radius(oracle, exact, radius is None, noise, n_units, rng)
            reach *= growth**attempt
            first = search.run(reach, sigma)
            few = n_units is not None and len(first.biases) < n_units and first.n_unexplained > n_units
            if few and not last:
                continue
            with search.count("lengths"):
                first = _with_lengths(oracle, first, g, sigma, [not s.sized for s in search.sightings])
                return _near_the_centre(first)
        except NotIdentified:
            if last:
                raise
        except BlackBoxError as error:
            raise BlackBoxError(
                f"{error} The search for saturation asks up to {reach:.1e} standard deviations from the centre; where "
                "the black box cannot be asked there, EntangledWeightExtractor(first_layer='hessian') stays near it."
            ) from error


def _with_lengths(oracle, first, g, sigma, rough):
    """The same units, with the lengths of the rough ones measured."""
    some = np.flatnonzero(rough)
    if len(some) == 0:
        return first
    # Rough lengths are those as if g were tanh; another sigmoid has another slope at its centre.
    unit = as_of_tanh(1.0, g)
    part = replace(first, weights=unit * first.weights[:, some], biases=unit * first.biases[some])
    part = refine_norms(oracle, replace(part, points=first.points[some]), g, noise=sigma)
    weights, biases = first.weights.copy(), first.biases.copy()
    weights[:, some], biases[some] = part.weights, part.biases
    return replace(first, weights=weights, biases=biases)


def _near_the_centre(first):
    """Biases drawn towards 0 as far as noise leaves them open, since that far out a direction's error is a large one.

    The mean after seeing a bias with this error, if before it was from N(0, 1) in standardised coordinates.
    """
    if first.errors is None:
        return first
    errors = first.errors * first.norms * np.linalg.norm(first.points, axis=1)
    return replace(first, biases=first.biases / (1.0 + errors**2))


def _noise_and_radius(oracle, exact, is_default, noise, n_units, rng):
    """Noise (m_L,) or None, radius of the circles, and its growth from attempt to attempt."""
    if noise is None:
        return None, exact, 30.0
    D = oracle.n_inputs
    Y = oracle(random_sphere(8, D, exact, rng))
    sigma = above_rounding(noise, Y)
    if sigma is None or not is_default:
        return sigma, exact, 30.0
    sigma = np.maximum(sigma, oracle.accuracy.std_at(Y))
    # A step ends where its tail is lost in the noise. On the circle units have slopes of about radius sqrt(2 / D).
    tail = 1.0 + 0.5 * np.log(max(np.max(np.ptp(Y, axis=0) / sigma), 10.0))
    m = 2 * D if n_units is None else max(n_units, 5)
    return sigma, np.sqrt(D) * min(4.5 * tail * m, _RADIUS), 5.0


class _Search:
    """Half circles one after another, and the units seen on them."""

    def __init__(self, oracle, n_units, rng, callback, grouped=None):
        self.oracle, self.n_units, self.rng, self.callback = oracle, n_units, rng, callback
        self.grouped = grouped  # the activation, where units may be treated in groups
        self.queries = dict.fromkeys(("scan", "profile", "matching", "check", "lengths"), 0)

    @contextmanager
    def count(self, name):
        """Count the queries of a block under a name."""
        before = self.oracle.n_queries
        yield
        self.queries[name] += self.oracle.n_queries - before

    def run(self, radius, sigma):
        """The first layer, with lengths only roughly."""
        self.noisy = sigma is not None
        self.unit = sigma if self.noisy else 1.0
        self.sightings, self.n_seen, idle, unexplained, moved, circle = [], 0, 0, 0, False, 0
        while circle < _MAX_CIRCLES:
            circle += 1
            before = len(self.sightings)
            n_steps, failed = self._circle(radius)
            moved, unexplained = moved or n_steps > 0, unexplained + failed
            idle = idle + 1 if len(self.sightings) == before else 0
            if self.callback is not None:
                self.callback(len(self.sightings), max(self.n_seen, len(self.sightings)))
            if self._is_done(idle >= (_PATIENCE_NOISY if self.noisy else _PATIENCE)) or (circle == 3 and not moved):
                break
        if not moved:
            raise NotIdentified("saturation", "constant", "the answers do not change at all on large circles.")
        if not self.sightings:
            raise NotIdentified(
                "saturation",
                "steps",
                f"the answers step on large circles ({unexplained} steps), but no step is a smooth sigmoid of one "
                "linear function: the black box is no network with a saturating first layer (a tree, a sign?).",
            )
        weights, biases, errors = self._known()
        points = np.array([s.point for s in self.sightings])
        errors = errors if self.noisy else None
        return FirstLayer(weights, biases, points, radius, circle, unexplained, self.queries, errors)

    def _is_done(self, idle):
        """Whether all units are seen, and none of them so badly that it is worth another look."""
        if self.n_units is None:
            return idle
        return len(self.sightings) >= self.n_units and (idle or not self._poor().any())

    def _poor(self):
        """Which units were seen so badly, by the tail of a step or so, that another look is worth its queries."""
        errors = np.array([s.error for s in self.sightings])
        return (errors > _POOR * np.median(errors)) if self.noisy and len(errors) else np.zeros(len(errors), dtype=bool)

    def _ask(self, U):
        return self.oracle(U) / self.unit

    def _known(self):
        """Weights (D, m), biases (m,) and errors (m,) of the units seen so far."""
        weights = np.array([s.weights for s in self.sightings]).reshape(-1, self.oracle.n_inputs).T
        return weights, np.array([s.bias for s in self.sightings]), np.array([s.error for s in self.sightings])

    def _circle(self, radius):
        """Number of steps on a new half circle, of which the number that stays unexplained."""
        circle = Circle(np.linalg.qr(self.rng.standard_normal((self.oracle.n_inputs, 2)))[0], radius)
        sharp = ~self._poor()
        weights, biases, errors = (known[..., sharp] for known in self._known())
        angles, slopes = circle.crossings(weights, biases)
        errors = errors * np.linalg.norm(weights, axis=0) * radius
        rough = self.noisy or self.grouped is not None
        margins = _SIGMAS * errors / np.maximum(slopes, np.finfo(float).tiny) if rough else 0.0 * angles
        steps = self._scan(circle, *grid_without(angles, slopes, margins))
        fresh = [s for s, known in zip(steps, known_steps(steps, angles, margins)) if not known]
        self.n_seen = max(self.n_seen, len(fresh) + len(angles))
        failed = self._resolve(circle, fresh)
        # Steps that overlap come apart on a larger circle, as far as noise and rounded inputs let them.
        for _ in range(0 if self.noisy else _N_ZOOMS):
            if not failed:
                break
            circle = circle.larger(_ZOOM)
            failed = self._resolve(circle, [s for f in failed for s in self._closer(circle, f)])
        return len(steps) + len(angles), len(failed)

    def _scan(self, circle, edges, skipped):
        with self.count("scan"):
            return scan(lambda angles: self._ask(circle.at(angles)), edges, skipped, self.noisy)

    def _closer(self, circle, step):
        """The steps near one that could not be resolved, on a larger circle; a jump stays one."""
        if not np.isfinite(step.rate):
            return [step]
        width = step.right - step.left
        edges = np.linspace(step.left - width, step.right + width, 13)
        return self._scan(circle, edges, np.zeros(12, dtype=bool))

    def _resolve(self, circle, steps):
        """Add the units that steps show; returns the steps that show none."""
        if not steps:
            return []
        size = group_size(self.oracle.n_inputs, len(steps[0].before), len(steps))
        # Only where all units are there: where a group moves, all others have to be known to be saturated.
        if self.grouped is not None and not self.noisy and not self.sightings and size and len(steps) > 2:
            found = resolve_in_groups(self._ask, circle, steps, size, self.grouped, self.rng, self.count)
        else:
            unrest = [s.unrest for s in self.sightings]
            found = resolve_steps(self._ask, circle, steps, self.rng, self.noisy, self.count, unrest)
        for sighting in found:
            if sighting is not None:
                self._merge(sighting)
        return [s for s, sighting in zip(steps, found) if sighting is None]

    def _merge(self, new):
        """Add a unit whose direction is new; of two sightings keep the better one."""
        for k, old in enumerate(self.sightings):
            cosine = abs(new.weights @ old.weights) / (np.linalg.norm(new.weights) * np.linalg.norm(old.weights))
            angle = _SIGMAS * np.hypot(new.error, old.error) * np.sqrt(len(new.weights)) if self.noisy else 0.0
            same = _SAME if self.grouped is None else _SAME_GROUPED
            if cosine > 1.0 - max(same, min(0.5 * angle**2, 0.1)):
                if (new.error, new.ridge) < (old.error, old.ridge):
                    self.sightings[k] = new
                return
        self.sightings.append(new)
