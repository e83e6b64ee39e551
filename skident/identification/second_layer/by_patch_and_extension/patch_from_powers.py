"""All of the network on one patch, given second-layer weights there up to their norms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.budget.constants import EXACT_RANK_TOL
from skident.network import get_activation
from skident.optim import SeparableProblem, levenberg_marquardt
from skident.oracle import NotIdentified

from ...constants import MAX_RESIDUAL, PATCH_STEPS
from ..downstream import preactivations_of
from ..kernel.charts import ErfChart, TanhChart
from ..kernel.curves import fit_curve, taylor_term
from ..kernel.patch import SATURATED, Patch
from ..kernel.powers import power_coefficients
from ..kernel.taylor import taylor_coefficients
from .known_units import KnownPatch, KnownUnits
from .saturation_regions import SaturationRegion, spread_points

__all__ = ["known_patch_from_powers", "n_queries_of_patch"]

_CENTERS = 12  # of Taylor coefficients, for one output: four per parameter of a curve
_MORE_CENTERS = 5  # in addition, whatever the number of outputs
_MAX_OUTPUT = 0.5  # of free units at the centers
_NEARER_SIDE = 0.7  # times the reach that serves where free units are at 0: elsewhere a side is nearer to saturation
_N_SMALLEST = 3  # smallest coefficients by which points are compared
_FIT_OUTPUTS = 4.0  # of the fit: overdetermined, so that a wrong minimum shows
_MAX_PARAMETER = 10.0  # log norm and bias in the fit: a unit is constant or a step beyond
_START_BOUNDS = (3.0, 4.0, 5.0)  # of log norms and biases; the start is the best of these: curves leave some far off


def n_queries_of_patch(rule, n_free, n_outputs):
    """Number of queries at centers; the fit takes few in comparison."""
    return _n_centers(n_outputs) * rule.n_queries(n_free)


def _n_centers(n_outputs):
    return _MORE_CENTERS + int(np.ceil(_CENTERS / n_outputs))


def known_patch_from_powers(downstream, first):
    """The `KnownPatch` in one saturation region of a `FirstPatch`: norms, biases and output weights, to a few digits.

    At centers h of the region, coefficients of the powers are ``v_j r_j^p g^(p)(r_j w_j . h + c_j) / p!``: `fit_curve`.
    Then (r, c) are fitted to outputs, v eliminated. Raises NotIdentified if the other units are nowhere saturated, or
    no norms explain the outputs.
    """
    g, patch = downstream.activation, first.sample.patch
    point = patch.subset([_most_responsive_point(first, SATURATED[g])])
    moves = point.moves if point.moves.ndim == 2 else point.moves[0]
    shape = _n_centers(downstream.n_outputs), len(first.free)
    H = downstream.rng.uniform(-_MAX_OUTPUT, _MAX_OUTPUT, shape)
    corrections = preactivations_of(g, first.center_outputs)
    T = preactivations_of(g, H) - corrections
    levels = np.tile(point.levels, (len(T), 1))
    centers = Patch(patch.free, patch.others, moves, point.points + T @ moves, levels)
    norms, biases = _norms_and_biases(downstream, first, centers, H)
    signs = np.zeros(downstream.shape[1])
    signs[patch.others] = np.sign(point.levels[0])
    output_layer = np.zeros((len(norms), downstream.n_outputs)), np.zeros(downstream.n_outputs)
    known = KnownUnits(get_activation(g), first.free, corrections, first.W2 * norms, biases, *output_layer)
    return _fitted(downstream, KnownPatch(known, point.points[0], signs))


def _norms_and_biases(downstream, first, centers, H):
    """Norms and biases (m_2,) of second-layer units from the powers' coefficients at centers of one region."""
    order, parts = first.rule.order, []
    rule = first.rule.with_reach(_NEARER_SIDE * first.rule.reach)
    for i, h in enumerate(H):
        chart = TanhChart() if downstream.center_outputs is None else ErfChart(h)
        tensors = taylor_coefficients(downstream.query, centers.subset([i]), chart, rule)
        parts.append(power_coefficients(first.W2, order, chart.coefficients(tensors, h, order))[0])
    X, C, term = H @ first.W2, np.concatenate(parts), taylor_term(downstream.activation, order)
    curves = [fit_curve(X[:, j], C[:, :, j], order, term) for j in range(X.shape[1])]
    return np.array([c.norm for c in curves]), np.array([c.bias for c in curves])


def _most_responsive_point(first, margin):
    """The point of a patch where no second-layer unit is much nearer to saturation than it is elsewhere."""
    saturated = np.all(np.abs(first.sample.patch.levels) > margin, axis=1)
    if not saturated.any():
        raise NotIdentified("second layer", "unreachable", "nowhere on the patch are all other units saturated")
    sizes = np.linalg.norm(first.sample.coefficients, axis=1)
    smallest = np.sort(sizes / np.maximum(sizes.max(axis=0), np.finfo(float).tiny), axis=1)[:, :_N_SMALLEST]
    return int(np.argmax(np.where(saturated, np.log(smallest + np.finfo(float).tiny).sum(axis=1), -np.inf)))


def _fitted(downstream, patch):
    """The same with norms, biases and output layer by least squares on outputs of the region."""
    known = patch.known
    m_2, m_L = known.output_weights.shape
    n = int(np.ceil(_FIT_OUTPUTS * (2 * m_2 + (m_2 + 1) * m_L) / m_L))
    region, others = SaturationRegion(downstream, patch.signs), np.flatnonzero(patch.signs)
    X = spread_points(region, known, others, patch.point[None], 2 * n)[:n]
    H = known.activation(downstream.preactivations(X)[:, known.units] + known.corrections)
    norms = np.linalg.norm(known.W2, axis=0)
    directions = known.W2 / norms
    log_norms, biases, V, residual = _fit_norms_and_biases(
        H @ directions, downstream.query(X), np.log(norms), known.biases, known.activation
    )
    if not residual < MAX_RESIDUAL:
        message = f"no norms of second-layer units explain the outputs in a saturation region: residual {residual:.1e}"
        raise NotIdentified("second layer", "residual", message)
    W2 = directions * np.exp(log_norms)
    return replace(patch, known=replace(known, W2=W2, biases=biases, output_weights=V[:-1], offset=V[-1]))


def _fit_norms_and_biases(X, Y, log_norms, biases, activation):
    """Log norms r, biases c (m_2,), V (m_2 + 1, m_L) with offset, relative residual: ``Y = g(e^r X + c) V``."""
    m, size = X.shape[1], max(float(np.linalg.norm(Y - Y.mean(axis=0))), np.finfo(float).tiny)

    def columns(x):
        scaled = X * np.exp(x[:m])
        g, slopes = activation.jet(scaled + x[m:], 1)
        return np.column_stack([g, np.ones(len(g))]), np.hstack([slopes * scaled, slopes])

    problem = SeparableProblem(columns, Y / size, np.tile(np.arange(m), 2), EXACT_RANK_TOL)

    def cost(x):
        return problem.cost(x) if np.abs(x).max() < _MAX_PARAMETER else np.inf

    start = np.concatenate([log_norms, biases])
    x0 = min((np.clip(start, -bound, bound) for bound in _START_BOUNDS), key=cost)
    result = levenberg_marquardt(cost, problem.linearize, x0, max_iter=PATCH_STEPS, damping=1e-3)
    V = problem.fit(result.x).coefficients * size
    return result.x[:m], result.x[m:], V, float(np.sqrt(result.cost))
