"""Weight norms of first-layer units from the shape of their steps."""

from dataclasses import replace

import numpy as np
from numpy.polynomial import chebyshev
from scipy.stats import chi2

from skident.network import get_activation
from skident.optim import BatchedSeparableProblem, Ending, batched_levenberg_marquardt

from ..query_points import random_tangents

_NODES = 24  # queries per unit: 10 coefficients of the highest degree and 2 unknowns leave 12 for the residual
_RANGE = 3.5  # |z| up to which they reach, by the norm known so far: a step has done 99.8 % of its height
_PLACES = 60  # on a hyperplane, at one of which a unit's logits should be kept on both sides (budget)
_DEGREES = (1, 2, 3, 5, 9)  # of the downstream network as a polynomial in one unit's output
_LOG_SCALES = (0.0, -0.5, 0.5)  # of the starts: norms known so far are mostly within a factor exp(0.5)
_BATCH = 100  # problems per batch: 100 x 24 x 10 numbers fit into the processor's second cache
LONGEST = np.full(2, 0.5)  # step in log scale and offset: the profile is linear in neither beyond that
ENDING = Ending(max_iter=12, target=1e-29, ftol=1e-13)  # of steps of height one: target at rounding, eps^2 per node
_LINEAR = 1e-10  # sum of squares, of a step of height one, below which a profile is linear in the unit's output
_LACK_OF_FIT = 1e-2  # probability that noise alone refutes a degree that is sufficient
_AS_GOOD_AS_HIGHEST = 1.2  # times the variance left by the highest degree that a lower one may leave


def refine_norms(oracle, first, activation, *, noise=None):
    """Estimate norm and bias of every first-layer unit from 24 outputs along its normal, in the same direction.

    With all other units saturated the outputs are a smooth function of this unit's output alone, so a polynomial of
    degree 9 in it leaves two unknowns. Exact to rounding if the downstream layers are gentle, to some per cent if they
    are steep. Elsewhere on the hyperplane if logits are lost, which looks like another shape.
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
        fits = [batched_levenberg_marquardt(p, x0[k], ENDING) for p, k in zip(problems, batches)]
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
