"""Weight norms of first-layer units: from the shape of their steps, and from how fast outputs settle far away."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial import chebyshev
from scipy.stats import chi2

from skident.fitting.directions_at_saturation import EXPONENTIAL_RATES
from skident.linalg import lapack
from skident.network import get_activation
from skident.optim import BatchedSeparableProblem, Ending, batched_levenberg_marquardt

from ..constants import SATURATED
from ..query_points import query_block, random_tangents

__all__ = [
    "EXPONENTIAL_RATES",
    "LONGEST",
    "Tails",
    "fit_shapes",
    "norms_from_tails",
    "refine_norms",
    "tail_norms",
    "unit_interval",
]

_NODES = 24  # queries per unit: 10 coefficients of the highest degree and 2 unknowns leave 12 for the residual
_RANGE = 3.5  # |z| up to which they reach, by the norm known so far: a step has done 99.8 % of its height
_PLACES = 60  # on a hyperplane, at one of which a unit's logits should be kept on both sides (budget)
_DEGREES = (1, 2, 3, 5, 9)  # of the downstream network as a polynomial in one unit's output
_LOG_SCALES = (0.0, -0.5, 0.5)  # of the starts: norms known so far are mostly within a factor exp(0.5)
_BATCH = 100  # problems per batch: 100 x 24 x 10 numbers fit into the processor's second cache
LONGEST = np.full(2, 0.5)  # step in log scale and offset: the profile is linear in neither beyond that
_ENDING = Ending(max_iter=12, target=1e-29, ftol=1e-13)  # of steps of height one: target at rounding, eps^2 per node
_LINEAR = 1e-10  # sum of squares, of a step of height one, below which a profile is linear in the unit's output
_LACK_OF_FIT = 1e-2  # probability that noise alone refutes a degree that is sufficient
_AS_GOOD_AS_HIGHEST = 1.2  # times the variance left by the highest degree that a lower one may leave


def refine_norms(oracle, first, activation, *, noise=None):
    """Estimate norm and bias of every first-layer unit from 24 outputs along its normal, in the same direction.

    With all other units saturated the outputs are a smooth function of this unit's output alone, so a polynomial of
    degree 9 in it leaves two unknowns. Exact to rounding if the downstream layers are gentle, to some per cent if they
    are steep: see `norms_from_tails`. Elsewhere on the hyperplane if logits are lost, which looks like another shape.
    `noise` (m_L,) is the standard deviation of the outputs' noise.
    """
    s = np.linspace(-_RANGE, _RANGE, _NODES)
    steps = (s[None, :] / first.norms[:, None])[:, :, None] * first.directions.T[:, None]
    points, F = _where_outputs_are_kept(oracle, first, steps)
    z0 = np.sum(first.weights * points.T, axis=0) + first.biases
    log_scale, offset = fit_shapes(s, F, z0, activation, noise=noise)
    weights = first.weights * np.exp(log_scale)
    return replace(first, weights=weights, biases=offset - np.sum(weights * points.T, axis=0))


def _where_outputs_are_kept(oracle, first, steps):
    """Points (m, D) of the units' hyperplanes, and outputs (m, k, m_L) at steps (m, k, D) from them."""
    points, rng = first.points.copy(), np.random.RandomState(0)
    lengths, some, F = np.linalg.norm(points, axis=1, keepdims=True), np.arange(len(points)), None
    for _ in range(_PLACES):
        Y, error = oracle.query((points[some, None] + steps[some]).reshape(-1, oracle.n_inputs))
        Y = Y.reshape(len(some), steps.shape[1], -1)
        F = Y if F is None else F
        F[some] = Y
        some = some[np.isinf(error).reshape(len(some), -1).any(axis=1)]
        if not len(some):
            break
        points[some] = first.points[some] + random_tangents(first.directions.T[some], lengths[some], rng)
    return points, F


def unit_interval(z, g):
    """Output of an activation with limits, mapped to [-1, 1]."""
    low, high = g.limits
    return (g(z) - low) * (2.0 / (high - low)) - 1.0


def fit_shapes(s, F, z0, activation, *, noise=None, degrees=_DEGREES):
    """Log scales a (t,) and offsets b (t,) with which outputs are polynomials in ``g(exp(a) s + b)``, by least squares.

    Outputs F (t, n, m_L) of t units at positions s (n,); starts at offsets z0 (t,) and 0, with three scales each, by
    batched variable projection. Without noise the lowest degree is taken if it is exact, else the highest one; with
    noise, the lowest one whose residual is no more than noise.
    """
    g = get_activation(activation)
    F = F if noise is None else F / noise
    F = F - F.mean(axis=1, keepdims=True)
    height = np.maximum(np.abs(F).max(axis=(1, 2)), np.finfo(float).tiny)
    F = F / height[:, None, None]

    scales = np.repeat(_LOG_SCALES, 2 * len(z0))
    offsets = np.tile(np.concatenate([z0, 0.0 * z0]), len(_LOG_SCALES))
    starts = np.stack([scales, offsets], axis=1).reshape(-1, len(z0), 2)

    def fit(degree, units):
        x0, unit_of = starts[:, units].reshape(-1, 2), np.tile(units, len(starts))
        batches = np.array_split(np.arange(len(x0)), 1 + len(x0) // _BATCH)

        def columns(x):
            return chebyshev.chebvander(unit_interval(np.exp(x[:, :1]) * s + x[:, 1:], g), degree)

        problems = [BatchedSeparableProblem(columns, F[unit_of[k]], longest=LONGEST) for k in batches]
        fits = [batched_levenberg_marquardt(p, x0[k], _ENDING) for p, k in zip(problems, batches)]
        x, cost = (np.concatenate([getattr(f, name) for f in fits]) for name in ("x", "cost"))
        x, cost = x.reshape(-1, len(units), 2), cost.reshape(-1, len(units))
        best = np.argmin(cost, axis=0), np.arange(len(units))
        return np.column_stack([x[best], cost[best]])

    if noise is None:
        # If a straight line fits, there is one linear layer above, and then the offset is determined too.
        fits = fit(degrees[0], np.arange(len(z0)))
        curved = np.flatnonzero(~(fits[:, 2] < _LINEAR))
        if len(curved):
            fits[curved] = fit(degrees[-1], curved)
        return fits[:, 0], fits[:, 1]
    fits = np.array([fit(degree, np.arange(len(z0))) for degree in degrees])
    return _lowest_degree(fits, degrees, F.shape[1:], 1.0 / height)


def _lowest_degree(fits, degrees, shape, noise):
    """Log scale and offset (t,) of the lowest degree that leaves noise (t,), or no more than the highest degree leaves.

    Fits (degrees, t, 3) have log scale, offset and cost; outputs have `shape` (n, m_L) per unit.
    """
    freedom = [max(1, (shape[0] - d - 1) * shape[1] - 2) for d in degrees]
    variances = fits[:, :, 2] / np.array(freedom)[:, None]
    usual = np.array([chi2.isf(_LACK_OF_FIT, f) / f for f in freedom])[:, None]
    good = variances <= usual * np.maximum(noise**2, _AS_GOOD_AS_HIGHEST * variances[-1])
    good[-1] = True
    chosen = np.argmax(good, axis=0), np.arange(len(noise))
    return fits[..., 0][chosen], fits[..., 1][chosen]


_REACH = np.geomspace(0.05, 600.0, 48)  # distances where the end of a tail is searched, in units of 1 / |w| as known
# Deviation from the limit, of the step's height, where a tail starts: the fifth power is 1e-15 of it.
_TAIL_START = 1e-3
_TAIL_END = 3e-10  # `SATURATED` where it ends: six digits above rounding
_END_ROUNDINGS = 2e-11 / 2.0**-52  # `SATURATED` in units of the outputs' rounding, if a step is low beside the outputs
_NODES_TAILS = 14  # queries per tail: 4 coefficients and the rate leave 9 for the residual
_POWERS = 4  # of exp(-rate |w| s) in the fit
_TAIL_PLACES = 3  # along every hyperplane, with two sides each; the best of six tails
_MORE_PLACES = 9  # for units without a good tail in those
_MAX_RESIDUAL = 3e-5  # of a tail, relative at every node: an error of the norm of that size
_GRID = np.linspace(-1.0, 1.0, 21)  # trial rates about the best one so far, narrower by _NARROWER each time
_FIRST_WIDTH = 0.2  # relative half width of the first grid: the slope of the far half is good to some per cent
_NARROWER = 0.2  # the best trial is within 0.1 of the width, so this keeps the minimum inside the next grid
_LAST_WIDTH = 1e-10  # relative: the last grid has spacing 2e-11, below the accuracy that rounding allows


@dataclass(frozen=True)
class Tails:
    """Weight norms (m,), relative residuals (m,), infinite without a tail; outputs (m, q, m_L) at distances (m, q)."""

    norms: np.ndarray
    errors: np.ndarray
    distances: np.ndarray
    outputs: np.ndarray


def norms_from_tails(oracle, first, activation, rng):
    """Replace the norms of first-layer units, known within a factor of ten, by those of their tails.

    With all other units saturated, the outputs at a distance s from unit i's hyperplane are an analytic function of
    ``v = exp(-rate |w_i| s)`` whatever follows: ``f = f_inf + c_1 v + c_2 v^2 + ...``. The shape near the hyperplane
    depends on what follows and misleads if that is steep; the rate of the tail does not. tanh and sigmoid only: other
    activations are returned as they are, and so are units without a good tail. Hyperplanes stay where they are.
    About ``6 (48 + 14)`` queries per unit, three times as many if no tail is good, as when a classifier's logits are
    lost.
    """
    if activation not in EXPONENTIAL_RATES:
        return first
    norms = first.norms
    best, residual = norms.copy(), np.full(len(norms), _MAX_RESIDUAL)
    for place in range(_MORE_PLACES):
        base = first.points + random_tangents(first.directions.T, first.radius, rng) if place else first.points
        some = np.arange(len(norms)) if place < _TAIL_PLACES else np.flatnonzero(residual == _MAX_RESIDUAL)
        if len(some) == 0:
            break
        for normals in (first.directions[:, some], -first.directions[:, some]):
            tails = tail_norms(oracle, base[some], normals, norms[some], activation)
            alone = _others_are_saturated(first, base[some], normals, some, _REACH[-1] / norms[some])
            better = (tails.errors < residual[some]) & alone
            best[some[better]], residual[some[better]] = tails.norms[better], tails.errors[better]
    return replace(first, weights=first.weights * (best / norms), biases=first.biases * (best / norms))


def _others_are_saturated(first, base, normals, units, distances):
    """Whether other units stay saturated along normals (D, n) from base (n, D): else a tail may be theirs (n,)."""
    moves = np.abs(normals.T @ first.weights) * distances[:, None]
    room = np.abs(base @ first.weights + first.biases) - moves
    room[np.arange(len(units)), units] = np.inf
    return room.min(axis=1) > SATURATED


def tail_norms(oracle, base, normals, norms, activation, reach=_REACH):
    """`Tails` of m units on one side: from points `base` (m, D) of their hyperplanes along unit normals (D, m).

    All other units must be saturated at `base`. `norms` (m,) are those known so far, and stay where there is no tail;
    `reach` (q,) are the distances, in units of their inverse, at which the end of the tail is searched.
    """
    rate, m = EXPONENTIAL_RATES[activation], len(norms)
    found, error = norms.copy(), np.full(m, np.inf)
    s = reach / norms[:, None]
    F = _along(oracle, base, normals, s)
    rounding = np.maximum(np.finfo(float).eps * np.abs(F).max(axis=(1, 2)), np.finfo(float).tiny)
    height = np.maximum(np.abs(F - F[:, -1:]).max(axis=(1, 2)), rounding)
    deviation = np.linalg.norm(F - F[:, -1:], axis=2) / height[:, None]
    # A step that is low beside the outputs is lost in their rounding sooner.
    lost = _END_ROUNDINGS * oracle.accuracy.eps
    end = np.maximum(_TAIL_END, lost * np.abs(F).max(axis=(1, 2)) / height)
    above, visible = _last(deviation > _TAIL_START), _last(deviation > end[:, None])
    some = np.flatnonzero((above >= 0) & (visible > above + 1) & (visible < len(reach) - 2))
    if len(some) == 0:
        return Tails(found, error, s, F)
    near, far = s[some, above[some], None], s[some, visible[some], None]
    nodes = near + (far - near) * np.linspace(0.0, 1.0, _NODES_TAILS)
    D = _along(oracle, base[some], normals[:, some], nodes) - F[some, -1:]
    for k, i in enumerate(some):
        found[i], error[i] = _fit_rate(nodes[k], D[k], rate)
    return Tails(found, error, s, F)


def _last(mask):
    """The last true column of every row (m, k); -1 if there is none, as for a step that is lost in rounding."""
    return np.where(mask.any(axis=1), mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1), -1)


def _along(oracle, base, normals, s):
    """Outputs (m, k, m_L) at distances s (m, k) from the base points."""
    return query_block(oracle, base[:, None] + s[:, :, None] * normals.T[:, None])


def _fit_rate(s, D, rate):
    """Norm a whose powers of ``exp(-rate a s)`` fit the deviations D (k, m_L) best, and the relative residual."""
    size = np.linalg.norm(D, axis=1)
    if size.min() <= 0:
        return 1.0, np.inf
    weighted = D / size[:, None]

    def residuals(a):
        V = np.exp(-rate * a[:, None] * (s - s[0]))[..., None] ** np.arange(1, _POWERS + 1) / size[:, None]
        Q, _ = lapack.qr(V / np.linalg.norm(V, axis=1, keepdims=True))
        return np.linalg.norm(weighted - Q @ (np.swapaxes(Q, 1, 2) @ weighted), axis=(1, 2)) / np.sqrt(len(s))

    # The far half of the tail is nearly one exponential: its slope is a start good to some per cent.
    half = len(s) // 2
    a = -np.polyfit(s[half:], np.log(size[half:]), 1)[0] / rate
    if not a > 0:
        return 1.0, np.inf
    width = _FIRST_WIDTH
    while width > _LAST_WIDTH:
        trials = a * (1.0 + width * _GRID)
        left = residuals(trials)
        a, least, width = trials[int(np.argmin(left))], float(left.min()), width * _NARROWER
    return a, least
