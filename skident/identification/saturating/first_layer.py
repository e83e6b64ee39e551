"""The first layer at large inputs: hyperplanes of its units as steps of the outputs, and the given widths."""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from skident.base.parameters import check_layer_widths
from skident.fitting.design import design_points
from skident.linalg import lapack
from skident.network import Architecture, get_activation
from skident.oracle import BlackBoxError, NotIdentified, above_rounding

from ..query_points import random_sphere
from .circles import Circle, grid_without, known_steps, scan
from .directions import resolve_steps
from .groups import group_size, resolve_in_groups
from .norms import refine_norms
from .step_fraction import as_of_tanh

_RADIUS = 3e4  # of circles, in units of sqrt(D), for exact outputs: steps are 1e-4 of a half circle wide
_ATTEMPTS = 4  # circles of growing radius
_GROWTH = 30.0  # of the radius per attempt, or where overlapping steps are resolved
_GROWTH_NOISY = 5.0  # `_GROWTH` with noise, where the errors of rounded inputs grow with the radius
_MAX_CIRCLES = 24  # half circles of one radius; budget
_IDLE_CIRCLES = 3  # half circles without a new unit after which an unknown m_1 is complete, or outputs are constant
_PATIENCE_NOISY = 6  # `_IDLE_CIRCLES` with noise, where one circle misses low steps that another one shows
_ONE_UNIT = 1e-8  # 1 - cosine below which two directions are one unit: angle 1e-4, their errors are 1e-9
_SAME_GROUPED = 1e-6  # `_ONE_UNIT` for directions from groups, whose errors are 1e-4
_MAX_SAME = 0.1  # `_ONE_UNIT` with noise, however large the errors
_SIGMAS = 6.0  # standard errors of a direction within which it may be another one
_REMEASURE = 30.0  # times the median error, beyond which a direction is measured again on another circle
_MAX_ZOOMS = 2  # such circles: 900 times the distance between two steps
_ZOOM_EDGES = 13  # of the initial intervals about a step on a larger circle
_RANGE_SAMPLES = 8  # queries that measure the outputs' range far out
_UNITS_PER_INPUT = 2  # m_1 / D that the radius allows for if m_1 is unknown
_STEP_DISTANCE = 4.5  # radius per unit and tail, so that nine steps in ten do not overlap


@dataclass
class FirstLayer:
    """First-layer units from saturation, in the oracle's coordinates; the signs of units are undetermined.

    Attributes
    ----------
    weights : ndarray of shape (D, m_1)
        Columns; the directions are good to 1e-9, the norms as `refine_norms` gives them.
    biases : ndarray of shape (m_1,)
        A start value: with more than one layer an offset of z can be absorbed by the layers above (``tanh(x + z)`` is a
        Moebius map of ``tanh x``), and the profile leaves an uncertainty of some tenths.
    points : ndarray of shape (m_1, D)
        A far point on every unit's hyperplane, where all other units are saturated.
    radius : float
        Of the circles.
    n_circles, n_unexplained : int
        Half circles searched, and steps on them that are neither resolved nor known: overlapping units, mostly.
    queries : dict
        Per stage: ``scan`` (steps on circles), ``profile``, ``matching``, ``check`` (of single units), ``norms``.
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
        """Points (m_1, D) on or near the units' hyperplanes and near the center."""
        m = len(self.biases)
        return design_points(self.weights, self.biases, 2 * m, 1.0, rng)[:m]


def find_first_layer(
    oracle, *, activation="tanh", n_units=None, radius=None, rng=None, callback=None, noise=None, precise=True
):
    """The `FirstLayer` of a network with a saturating activation, from outputs alone: any depth, any m_1.

    `n_units` is m_1 if known: the search ends when all are detected, otherwise after three half circles without a
    new one. `radius` is in units of ``sqrt(D)``; it grows up to three times while the outputs change on large parts of
    the circle. Default 3e4; with noise, which hides the far ends of steps, the smallest that keeps 90 % of steps apart,
    since the errors of black boxes that round their inputs grow with it. `noise` (m_L,) is the standard deviation of
    the outputs' noise, as `measure_noise` gives it. Without `precise`, units are resolved in groups if exact outputs
    are more than two, with half the queries or less and directions good to 1e-4: enough to start a fit.
    ``callback(n_found, n_steps)`` is called after every half circle.

    About 32 queries per half circle, and per new step 15 to find it, 16 for its profile, D - 1 for its direction, 3 to
    check and 24 for its norm. With noise of a part q of a step's height the entries of directions are good to about q;
    above 1e-4, twice the queries are spent. In groups (`resolve_in_groups`), a step takes 28 plus about ``sqrt(D)``
    plus ``D / k``. Two parallel units count as one.
    Raises NotIdentified if the outputs change everywhere at the largest radius, or nowhere; if no step is that of a
    sigmoidal unit; or if the activation does not saturate.
    """
    rng = np.random.RandomState(0) if rng is None else rng
    if oracle.n_inputs < 2:
        raise ValueError("n_features=1: hyperplanes of different units cannot be distinguished; at least 2 are needed.")
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
            with search.count("norms"):
                rough = np.flatnonzero([not unit.has_norm for unit in search.units])
                return _shrunk_biases(_with_norms(oracle, first, g, sigma, rough))
        except NotIdentified:
            if last:
                raise
        except BlackBoxError as error:
            raise BlackBoxError(
                f"{error} The search for saturation queries up to {reach:.1e} standard deviations from the center."
            ) from error


def _with_norms(oracle, first, g, sigma, rough):
    """The same units, with the norms of the `rough` ones measured."""
    if len(rough) == 0:
        return first
    # Rough norms are those as if g were tanh; another sigmoid has another slope at its center.
    scale = as_of_tanh(1.0, g)
    part = replace(first, weights=scale * first.weights[:, rough], biases=scale * first.biases[rough])
    part = refine_norms(oracle, replace(part, points=first.points[rough]), g, noise=sigma)
    weights, biases = first.weights.copy(), first.biases.copy()
    weights[:, rough], biases[rough] = part.weights, part.biases
    return replace(first, weights=weights, biases=biases)


def _shrunk_biases(first):
    """Biases shrunk towards 0 in proportion to their errors: far out a direction's error is a large one of the bias.

    The posterior mean for a prior N(0, 1) in standardized coordinates.
    """
    if first.errors is None:
        return first
    errors = first.errors * first.norms * np.linalg.norm(first.points, axis=1)
    return replace(first, biases=first.biases / (1.0 + errors**2))


def _noise_and_radius(oracle, exact, is_default, noise, n_units, rng):
    """Noise (m_L,) or None, radius of the circles, and its growth per attempt."""
    if noise is None:
        return None, exact, _GROWTH
    D = oracle.n_inputs
    Y = oracle(random_sphere(_RANGE_SAMPLES, D, exact, rng))
    sigma = above_rounding(noise, Y)
    if sigma is None or not is_default:
        return sigma, exact, _GROWTH
    sigma = np.maximum(sigma, oracle.accuracy.std_at(Y))
    # A step ends where its tail is lost in the noise. On the circle units have slopes of about radius sqrt(2 / D).
    tail = 1.0 + 0.5 * np.log(max(np.max(np.ptp(Y, axis=0) / sigma), 10.0))
    m = _UNITS_PER_INPUT * D if n_units is None else max(n_units, 5)
    return sigma, np.sqrt(D) * min(_STEP_DISTANCE * tail * m, _RADIUS), _GROWTH_NOISY


class _Search:
    """Half circles one after another, and the units estimated on them."""

    def __init__(self, oracle, n_units, rng, callback, grouped=None):
        self.oracle, self.n_units, self.rng, self.callback = oracle, n_units, rng, callback
        self.grouped = grouped  # the activation, if units may be resolved in groups
        self.queries = dict.fromkeys(("scan", "profile", "matching", "check", "norms"), 0)

    @contextmanager
    def count(self, name):
        """Count the queries of a block under a name."""
        before = self.oracle.n_queries
        yield
        self.queries[name] += self.oracle.n_queries - before

    def run(self, radius, sigma):
        """The first layer on circles of one radius, with rough norms."""
        self.noisy = sigma is not None
        self.output_scale = sigma if self.noisy else 1.0
        self.units, self.n_steps, idle, unexplained, moved, circle = [], 0, 0, 0, False, 0
        while circle < _MAX_CIRCLES:
            circle += 1
            before = len(self.units)
            n_steps, failed = self._circle(radius)
            moved, unexplained = moved or n_steps > 0, unexplained + failed
            idle = idle + 1 if len(self.units) == before else 0
            if self.callback is not None:
                self.callback(len(self.units), max(self.n_steps, len(self.units)))
            done = self._is_done(idle >= (_PATIENCE_NOISY if self.noisy else _IDLE_CIRCLES))
            if done or (circle == _IDLE_CIRCLES and not moved):
                break
        if not moved:
            raise NotIdentified("saturation", "constant", "the outputs do not change at all on large circles.")
        if not self.units:
            raise NotIdentified(
                "saturation",
                "steps",
                f"the outputs step on large circles ({unexplained} steps), but no step is a smooth sigmoid of one "
                "linear function: the black box is no network with a saturating first layer (a tree, a sign?).",
            )
        weights, biases, errors = self._known()
        points = np.array([unit.point for unit in self.units])
        errors = errors if self.noisy else None
        return FirstLayer(weights, biases, points, radius, circle, unexplained, self.queries, errors)

    def _is_done(self, idle):
        """Whether all units are detected, and none is worth another measurement."""
        if self.n_units is None:
            return idle
        return len(self.units) >= self.n_units and (idle or not self._inaccurate().any())

    def _inaccurate(self):
        """Which units have errors so large, as from the tail of a step, that they are measured again, (m,)."""
        errors = np.array([unit.error for unit in self.units])
        if not self.noisy or not len(errors):
            return np.zeros(len(errors), dtype=bool)
        return errors > _REMEASURE * np.median(errors)

    def _query(self, U):
        return self.oracle(U) / self.output_scale

    def _known(self):
        """Weights (D, m), biases (m,) and errors (m,) of the units detected so far."""
        weights = np.array([unit.weights for unit in self.units]).reshape(-1, self.oracle.n_inputs).T
        return weights, np.array([unit.bias for unit in self.units]), np.array([unit.error for unit in self.units])

    def _circle(self, radius):
        """Search a new half circle: number of its steps, and how many of them stay unexplained."""
        circle = Circle(lapack.qr(self.rng.standard_normal((self.oracle.n_inputs, 2)))[0], radius)
        accurate = ~self._inaccurate()
        weights, biases, errors = (known[..., accurate] for known in self._known())
        angles, slopes = circle.crossings(weights, biases)
        errors = errors * np.linalg.norm(weights, axis=0) * radius
        rough = self.noisy or self.grouped is not None
        margins = _SIGMAS * errors / np.maximum(slopes, np.finfo(float).tiny) if rough else 0.0 * angles
        steps = self._scan(circle, *grid_without(angles, slopes, margins))
        new = [s for s, known in zip(steps, known_steps(steps, angles, margins)) if not known]
        self.n_steps = max(self.n_steps, len(new) + len(angles))
        failed = self._resolve(circle, new)
        # Steps that overlap come apart on a larger circle, as far as noise and rounded inputs let them.
        for _ in range(0 if self.noisy else _MAX_ZOOMS):
            if not failed:
                break
            circle = circle.larger(_GROWTH)
            failed = self._resolve(circle, [s for f in failed for s in self._zoom(circle, f)])
        return len(steps) + len(angles), len(failed)

    def _scan(self, circle, edges, skipped):
        with self.count("scan"):
            return scan(lambda angles: self._query(circle.at(angles)), edges, skipped, self.noisy)

    def _zoom(self, circle, step):
        """The steps near an unresolved one on a larger circle; a jump stays one."""
        if not np.isfinite(step.rate):
            return [step]
        width = step.right - step.left
        edges = np.linspace(step.left - width, step.right + width, _ZOOM_EDGES)
        return self._scan(circle, edges, np.zeros(_ZOOM_EDGES - 1, dtype=bool))

    def _resolve(self, circle, steps):
        """Add the units of steps; returns the steps that are not a single unit's."""
        if not steps:
            return []
        size = group_size(self.oracle.n_inputs, len(steps[0].before), len(steps))
        # Only with the steps of all units: where a group moves, all others have to be known to be saturated.
        if self.grouped is not None and not self.noisy and not self.units and size and len(steps) > 2:
            estimates = resolve_in_groups(self._query, circle, steps, size, self.grouped, self.rng, self.count)
        else:
            z_noises = [unit.z_noise for unit in self.units]
            estimates = resolve_steps(self._query, circle, steps, self.rng, self.noisy, self.count, z_noises)
        for estimate in estimates:
            if estimate is not None:
                self._merge(estimate)
        return [s for s, estimate in zip(steps, estimates) if estimate is None]

    def _merge(self, new):
        """Add a unit if its direction is new; of two estimates of one unit keep the better one."""
        for k, old in enumerate(self.units):
            cosine = abs(new.weights @ old.weights) / (np.linalg.norm(new.weights) * np.linalg.norm(old.weights))
            angle = _SIGMAS * np.hypot(new.error, old.error) * np.sqrt(len(new.weights)) if self.noisy else 0.0
            same = _ONE_UNIT if self.grouped is None else _SAME_GROUPED
            if cosine > 1.0 - max(same, min(0.5 * angle**2, _MAX_SAME)):
                if (new.error, new.tangential_change) < (old.error, old.tangential_change):
                    self.units[k] = new
                return
        self.units.append(new)


# Relative error of the outputs below which the search takes them as exact: a tenth of the part of their range below
# which a change is the tail of a step (`circles`).
_EXACT = 1e-10


def stated_architecture(layer_widths, names, n_outputs, first_layer):
    """The `Architecture` of `layer_widths` and the hidden and output activation `names`; no widths if they are None.

    Raises NotIdentified if they are None and saturation cannot find them, ValueError if they are impossible.
    """
    names = [get_activation(name).name for name in names]
    if layer_widths is not None:
        return Architecture(check_layer_widths(layer_widths, n_outputs), *names)
    if get_activation(names[0]).saturating and first_layer != "hessian":
        return Architecture((), *names)
    raise NotIdentified(
        "first layer",
        "options",
        "layer_widths=None needs a first layer that saturates (tanh, sigmoid, erf) and first_layer='saturation', got "
        f"activation={names[0]!r}, first_layer={first_layer!r}; give layer_widths.",
    )


def first_layer_as_stated(oracle, stated, first_layer, rng, log):
    """The first layer from saturation, or None if Hessians are to recover it; and the architecture with widths.

    `first_layer` is "saturation", "hessian", or "auto": saturation if the activation has limits, and then the result
    counts only if it is complete or Hessians could do no better. Without stated widths, one hidden layer is assumed.
    Raises NotIdentified if nothing saturates and there is no other way, or if there are more units than stated.
    """
    hidden, widths = get_activation(stated.activation), stated.widths
    if len(widths) == 1 or first_layer == "hessian" or (first_layer == "auto" and not hidden.saturating):
        return None, stated
    wanted = widths[0] if widths else None
    with log.stage("first layer (saturation)", oracle, wanted, "units") as entry:
        try:
            first = find_first_layer(
                oracle,
                activation=hidden.name,
                n_units=wanted,
                rng=rng,
                callback=entry["progress"],
                noise=_relevant_noise(oracle.accuracy),
            )
        except NotIdentified as error:
            if wanted is None:
                raise NotIdentified(
                    "saturation", error.reason, f"{error} Give layer_widths to use Hessians instead."
                ) from error
            if first_layer == "saturation":
                raise
            return None, stated
    if wanted is None:
        return first, stated.with_widths((len(first.biases), oracle.n_outputs))
    refuse_surplus(first, widths, "use first_layer='hessian'.")
    hessians_may_find_more = first_layer == "auto" and hidden.smooth and len(widths) > 2
    return (None if len(first.biases) < wanted and hessians_may_find_more else first), stated


def _relevant_noise(accuracy):
    """Noise (m_L,) that the search must allow for; None if it is too small, or too large to be noise."""
    return accuracy.noise_std if accuracy.is_plausible and accuracy.relative_error > _EXACT else None


def refuse_surplus(first, widths, advice):
    """Raise NotIdentified if there are more first-layer units than stated; `advice` is for clipped inputs."""
    n_units = len(first.biases)
    if n_units > widths[0]:
        raise NotIdentified(
            "first layer",
            "units",
            f"layer_widths says {widths[0]} first-layer units, but {n_units} different ones were detected where the "
            f"black box saturates; try layer_widths={(n_units, *widths[1:])}. If it clips its inputs, the clipping "
            f"shows as units: {advice}",
        )
