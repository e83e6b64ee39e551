"""First-layer directions to rounding error, from how little a unit's profile moves along rays inside one region."""

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import lapack

from ..constants import RANK_TOL
from ..query_points import query_block
from .cube import SATURATED, rays_of_one_unit, saturated

_FAR = 1e5  # distance of the far ends of rays: rounding of 1e-16 there is 1e-11 of a pre-activation
_MAX_NEAR = 0.3  # part of that where rays begin, at most
_MARGIN = 6.0  # times the pre-activation of a saturated unit: weight norms may be wrong by that factor
_NOISY_MARGIN = 1.3  # `_MARGIN` with noise, where norms are good to some per mille and rays are short
_MORE_RAYS = 2  # than inputs: overdetermined
_NODES = np.array([-0.7, 0.7])  # pre-activations where the profile is compared: steep, on both sides
_SLOPE_STEP = 0.05  # of the differences that give the profile's slopes there
_NOISY_SLOPE_STEP = 0.2  # `_SLOPE_STEP` with noise
_MIN_STEEPNESS = 1e-6  # squared slope of a node, relative to the steepest one: flatter ones are rounding
_MAX_CORRECTION = 1e-5  # relative, up to which the first order holds
_NOISY_CORRECTION = 10.0  # `_MAX_CORRECTION` with noise, times the error of the directions
_FAR_SHIFT = 1.0  # with noise: pre-activation that the directions' error typically amounts to at the far ends
_RAYS_OFF = 1e-9  # relative correction after which a unit is measured again: its rays began off its hyperplane
_NOISY_RAYS_OFF = 10.0  # `_RAYS_OFF` with noise, times the relative noise
_CORRECTIONS = 4  # budget of corrections; each squares the error
_SETTLED = 3e-14  # relative correction that is the last one: rounding


@dataclass(frozen=True)
class _Tolerances:
    """Where profiles are compared, and which relative corrections are made, last or followed by new rays."""

    far: float
    margin: float
    slope_step: float
    max_correction: float
    rays_off: float
    settled: float

    @classmethod
    def of(cls, oracle, first, activation):
        """Those of exact outputs, or with noise as far as the directions' error leaves profiles comparable."""
        reach, noise = 0.5 * oracle.reach, oracle.accuracy.relative_error
        if oracle.accuracy.exact or first.errors is None:
            margin = _MARGIN * SATURATED[activation]
            return cls(min(_FAR, reach), margin, _SLOPE_STEP, _MAX_CORRECTION, _RAYS_OFF, _SETTLED)
        error = float(np.median(first.errors)) * np.sqrt(len(first.weights))
        far = min(_FAR, reach, _FAR_SHIFT / max(error * np.median(first.norms), 1.0 / _FAR))
        margin = _NOISY_MARGIN * saturated(activation, noise)
        return cls(far, margin, _NOISY_SLOPE_STEP, _NOISY_CORRECTION * error, _NOISY_RAYS_OFF * noise, noise)


def exact_directions(oracle, first, activation, rng):
    """The `FirstLayer` with directions to rounding error, given them to 1e-6 and norms within a factor of six.

    With noise, directions given within their `FirstLayer.errors` become as accurate as the noise relative to the
    outputs, if their inputs are no coarser.

    Inside one region, where all other units are saturated, the output near unit i's hyperplane is
    ``phi(w_i . x + b_i)`` with one phi all along a ray ``x_0 + R r``. If the hyperplane as known leaves the true one by
    delta between a near R and a far one, the direction is wrong by e with ``e . r (R_far - R_near) = delta``. D + 2
    rays and least squares give e; further rounds remove the linearization error. About ``10 (D + 2)`` queries per unit,
    up to 1e5 away. Units that are not detected along enough rays stay as they were.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.smooth.exact_directions import exact_directions
    >>> from skident.identification.saturating.first_layer import find_first_layer
    >>> from skident.network import get_activation
    >>> from skident.oracle import Oracle
    >>> W = np.array([[3.0, 0.0, 1.0], [4.0, -2.0, 1.0]])
    >>> oracle, rng = Oracle(lambda X: np.tanh(X @ W).sum(axis=1), 2), np.random.RandomState(0)
    >>> first = exact_directions(oracle, find_first_layer(oracle, n_units=3, rng=rng), get_activation("tanh"), rng)
    >>> print(bool(np.abs([4.0, -3.0] @ first.directions).min() < 1e-11))
    True
    """
    units, tols = np.arange(len(first.biases)), _Tolerances.of(oracle, first, activation.name)
    for _ in range(2):
        bundles = [_ray_bundle(first, i, tols, rng) for i in units]
        weights = _corrected(oracle, first.weights, [b for b in bundles if len(b.points) >= len(b.weights) - 1], tols)
        moved = np.linalg.norm(weights - first.weights, axis=0) > tols.rays_off * np.linalg.norm(weights, axis=0)
        first, units = replace(first, weights=weights), np.flatnonzero(moved)
    return first


def _corrected(oracle, weights, bundles, tols):
    """Weights (D, m_1), those of each bundle corrected until they settle."""
    weights = weights.copy()
    near = dict(zip(bundles, _query_blocks(oracle, [b.near() for b in bundles]), strict=True)) if bundles else {}
    for _ in range(_CORRECTIONS):
        if not bundles:
            break
        far, unsettled = [bundle.far(weights) for bundle in bundles], []
        for bundle, points, Y in zip(bundles, far, _query_blocks(oracle, far), strict=True):
            error = bundle.error(weights, near[bundle], points, Y)
            size = np.linalg.norm(error) / np.linalg.norm(weights[:, bundle.unit])
            if size < tols.max_correction:
                weights[:, bundle.unit] += error
            if tols.settled < size < tols.max_correction:
                unsettled.append(bundle)
        bundles = unsettled
    return weights


@dataclass(frozen=True, eq=False)
class _RayBundle:
    """Rays along one unit's hyperplane, each inside a region of all others.

    `points` (n, D) are where the rays (n, D), unit vectors, begin; `weights` (D,) and `bias` are those known before any
    correction, and nodes are at pre-activations of these. Far nodes lie at the distance `tols.far`.
    """

    unit: int
    weights: np.ndarray
    bias: float
    points: np.ndarray
    rays: np.ndarray
    tols: _Tolerances

    def near(self):
        """Two nodes per ray, and two more beside each of them for the slope, (n, 6, D)."""
        t = np.concatenate([_NODES, _NODES + self.tols.slope_step, _NODES - self.tols.slope_step])
        return self.points[:, None] + t[:, None] * (self.weights / (self.weights @ self.weights))

    def far(self, weights):
        """The nodes at the far ends, on the hyperplane of the present weights (D, m_1): (n, 2, D)."""
        w = weights[:, self.unit]
        base = -self.bias * w / (w @ w)
        rays = self.rays - (self.rays @ w)[:, None] * w / (w @ w)
        return (base + self.tols.far * rays)[:, None] + _NODES[:, None] * (w / (w @ w))

    def error(self, weights, near_outputs, far, far_outputs):
        """What the weights lack, (D,), given outputs (n, 6, m_L) at near nodes and (n, 2, m_L) at far ones."""
        w, near = weights[:, self.unit], self.near()[:, :2]
        slopes = (near_outputs[:, 2:4] - near_outputs[:, 4:6]) / (2.0 * self.tols.slope_step)
        steepness = np.sum(slopes**2, axis=2)
        steep = steepness > _MIN_STEEPNESS * steepness.max()
        with np.errstate(invalid="ignore", divide="ignore"):
            delta = np.sum(slopes * (far_outputs - near_outputs[:, :2]), axis=2) / steepness
        missing = delta - (far - near) @ w  # of the change of pre-activation, what the weights do not explain
        along = far - near - ((far - near) @ w)[..., None] * w / (w @ w)  # norms are not determined here
        scale = np.sqrt(steepness[steep])
        return lapack.lstsq(along[steep] * scale[:, None], missing[steep] * scale, rcond=RANK_TOL)[0]


def _ray_bundle(first, unit, tols, rng):
    """The `_RayBundle` of a unit."""
    w, bias = first.weights[:, unit], first.biases[unit]
    options = {"margin": tols.margin, "farthest": _MAX_NEAR * tols.far}
    base, rays, starts = rays_of_one_unit(first.weights, first.biases, unit, len(w) + _MORE_RAYS, rng, **options)
    return _RayBundle(unit, w, bias, base + starts[:, None] * rays, rays, tols)


def _query_blocks(oracle, blocks):
    """Outputs at blocks of points (n_i, q, D), in one query."""
    Y = query_block(oracle, np.concatenate(blocks))
    return np.split(Y, np.cumsum([len(block) for block in blocks])[:-1])
