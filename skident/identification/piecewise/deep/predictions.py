"""Predicted points of a unit's boundary: whether the outputs confirm them, and what they add to its coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.linalg import lapack, svd

from ...constants import NEAR_RESOLUTIONS, SPARE
from ..kernel.locate import locate, window_widths
from ..kernel.robust_fit import active_set_fit

__all__ = ["PredictionHits", "crossing_support", "ends_at_others", "hit_rate", "probe_predictions", "refine"]

# Confirming predicted points.
# Distance up to which a boundary is the one that was predicted, in standard deviations of the inputs.
_NEAR_PREDICTED = 1e-6
_NEAR_ERRORS = 30.0  # `_NEAR_PREDICTED` in errors of the located position
_NEAR_UNIT_ERRORS = 3.0  # `_NEAR_PREDICTED` in errors of the unit
_FEWEST_VISIBLE = 3  # points with outputs that give no rate yet
_POOL = 6  # predicted points per one that is queried, so that both sides of other units have some
_LINES_PER_POINT = 240  # lines on which these are predicted, over the pool's factor
_FEWEST_PREDICTED = 20  # of these, fewer than which say nothing of a unit
_ON_A_SIDE = 6  # points on one side of another unit that say something of its support there
_LEAST_SHARE = 0.02  # of them that must be confirmed: parts of a boundary may not show in the outputs
_SIDE_SHARE = 5  # divisor of the points that are queried on one side of each other unit
_RANDOM_SHARE = 3  # divisor of the points that are queried anywhere

# Facets that end where another unit of the layer is crossed.
_N_RAYS = 60  # directions from a critical point
_MAX_BEHIND = 8  # points behind crossings that are queried
_MIN_BEHIND = 5  # with outputs, fewer than which say nothing
_RAY_LENGTH = 2.0  # in units of sqrt(D)
_LEAST_FREE = 0.02  # distance behind a crossing, in units of sqrt(D)
_BEHIND = 0.7  # part of that at which is queried

# Refining the coefficients.
_N_ROUNDS = 4  # of locating points, at most
_NEAR_STEPS = 10.0  # relative steps of the last round, in standard deviations, within which the next one locates them
_SETTLED = 1e-9  # relative step after which there are no more rounds
_POINTS_PREDICTED = 3  # per point that is located
_REFINED_TOL = 1e-6  # median residual of refined coefficients; located points are exact to far less
_REFINED_RESOLUTIONS = 30.0  # `_REFINED_TOL` in resolutions
_LARGEST_STEP = 0.1  # relative change of the coefficients that still refines them
_OUTLIER = 20.0  # median residuals by which no right equation is off
_FIRST_OUTLIER = 100.0  # `_OUTLIER` before the first step, which corrects a part of the residuals
_N_TRIMMINGS = 12  # of these
_LINES_NOISY = 720  # on which points are predicted if outputs are noisy, where more of them are needed
_SPARE_NOISY = 6  # predicted points beyond the unknowns, fewer than which refine nothing
_SPARE_LOCATED = 4  # `SPARE` of located ones
_RANK_TOL = 1e-6  # singular value of orthonormal directions that is rounding
_STEP_RANK_TOL = 1e-9  # singular value over the largest of directions that located points determine
_NO_RESIDUAL = 1e-14  # that is rounding


def _locate_predicted(probe, points, normals, widths, near=np.inf):
    """Offsets (n,) of boundaries from predicted points in ever narrower windows, a mask of those detected, errors (n,).

    `near` (n,) is the distance up to which a boundary is the predicted one.
    """
    offset, found, todo = np.full(len(points), np.nan), np.zeros(len(points), dtype=bool), np.arange(len(points))
    errors, near = np.full(len(points), np.inf), np.broadcast_to(near, len(points))
    for width in widths:
        there = locate(probe, points[todo], normals[todo], width)
        close = np.abs(np.nan_to_num(there.offset)) < near[todo] + _NEAR_ERRORS * there.error
        offset[todo], found[todo], errors[todo] = there.offset, there.found & close, there.error
        todo = todo[~found[todo] & np.isfinite(there.error)]
    return offset, found, errors


def _confirmed(probe, unit, points, normals, near=_NEAR_PREDICTED):
    """Which predicted points (n, D) of a unit the outputs confirm, and which have outputs: masks (n,)."""
    near = near + _NEAR_UNIT_ERRORS * unit.errors_at(points)[0]
    near = np.maximum(near, NEAR_RESOLUTIONS * probe.resolution)
    _, found, errors = _locate_predicted(probe, points, normals, window_widths(probe, unit.position_error), near)
    return found, np.isfinite(errors)


def hit_rate(probe, unit, rng, n=12, *, near=_NEAR_PREDICTED):
    """Share of n predicted points of a unit that the outputs confirm within `near`, and how many had outputs.

    The share is 0 if hardly any point has.
    """
    points, normals = unit.predicted_points(n, rng)
    if len(points) == 0:
        return 0.0, 0
    hit, visible = _confirmed(probe, unit, points, normals, near)
    return (float(hit[visible].mean()), int(visible.sum())) if visible.sum() > _FEWEST_VISIBLE else (0.0, 0)


@dataclass(frozen=True)
class PredictionHits:
    """Predicted points of a unit that were queried, and the signs of other units there."""

    points: np.ndarray  # (n, D)
    hit: np.ndarray  # (n,), mask of the confirmed ones
    signs: np.ndarray  # (n, k), of the pre-activations of the others, 0 where these are undetermined

    def support(self, others):
        """Of the `others` (indices) that are crossed, the share with confirmed points on both sides; 1 if none is."""
        shares = []
        for k in others:
            one, other = self.hit[self.signs[:, k] > 0], self.hit[self.signs[:, k] < 0]
            if min(len(one), len(other)) >= _ON_A_SIDE:
                shares.append(one.mean() > _LEAST_SHARE and other.mean() > _LEAST_SHARE)
        return float(np.mean(shares)) if shares else 1.0


def probe_predictions(probe, unit, others, rng, n=60):
    """Query about n predicted points of a unit, some on either side of each other unit; None if it is hardly known."""
    points, normals = unit.predicted_points(_POOL * n, rng, n_lines=_POOL * _LINES_PER_POINT)
    if len(points) < _FEWEST_PREDICTED:
        return None
    phi = unit.known.evaluate(points)[1]
    signs = np.zeros((len(points), len(others)))
    for k, other in enumerate(others):
        if other is not unit:
            signs[:, k] = np.where(other.is_determined(phi), np.sign(phi @ other.coef), 0.0)
    sides = [np.flatnonzero(signs[:, k] == s)[: n // _SIDE_SHARE] for k in range(len(others)) for s in (1.0, -1.0)]
    rare = [i for i in sides if len(i) >= _ON_A_SIDE]
    i = np.unique(np.concatenate([np.arange(min(len(points), n // _RANDOM_SHARE)), *rare]))
    return PredictionHits(points[i], _confirmed(probe, unit, points[i], normals[i])[0], signs[i])


def crossing_support(probe, unit, others, rng):
    """Of a layer's other units that a unit's boundary crosses, the share on both sides of which it is confirmed.

    Boundaries of one layer continue across each other, though parts of them may not show in the outputs.
    """
    hits = probe_predictions(probe, unit, others, rng)
    return 0.0 if hits is None else hits.support([k for k, other in enumerate(others) if other is not unit])


def ends_at_others(probe, unit, others, rng):
    """Whether a facet ends where it crosses other units of its layer, as only those of deeper layers do.

    A unit's boundary is flat within a linear region of the known layers, whatever other units of its layer do there.
    The unit is as its first critical point gives it. 40 to 80 queries; False if they cannot decide.
    """
    points = _points_behind(unit, others, rng)
    if len(points) < _MIN_BEHIND:
        return False
    normals, visible = np.tile(unit.normal, (len(points), 1)), np.zeros(len(points), dtype=bool)
    for width in window_widths(probe):
        there = locate(probe, points, normals, width)
        near = np.abs(np.nan_to_num(there.offset)) < _NEAR_PREDICTED + _NEAR_ERRORS * (there.error + unit.normal_error)
        if np.any(there.found & near):
            return False
        visible |= np.isfinite(there.error)
    return bool(visible.sum() >= _MIN_BEHIND)


def _points_behind(unit, others, rng):
    """Points (n, D) of the facet of a unit's first critical point, behind the boundaries of others."""
    known, x, n = unit.known, unit.point, unit.normal
    Z, phi = known.evaluate(x[None])
    determined = [other for other in others if other.is_determined(phi)[0]]
    if not determined:
        return x[None][:0]
    active, length_scale = np.repeat(Z > 0, _N_RAYS, axis=0), np.sqrt(known.n_inputs)
    U = rng.standard_normal((_N_RAYS, len(x)))
    U -= (U @ n)[:, None] * n
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    dZ, dphi = known.tangents(active, U)
    coefs = np.column_stack([other.coef for other in determined])
    with np.errstate(divide="ignore", invalid="ignore"):
        end, met = -Z / dZ, -(phi @ coefs) / (dphi @ coefs)
    end = np.where(end > 0, end, np.inf).min(axis=1).clip(max=_RAY_LENGTH * length_scale)
    met = np.where(met > 0, met, np.inf).min(axis=1)
    free = end - met
    best = np.argsort(-free)[:_MAX_BEHIND]
    best = best[free[best] > _LEAST_FREE * length_scale]
    return x + (met[best] + _BEHIND * free[best])[:, None] * U[best]


def refine(probe, unit, rng):
    """Refine a unit's coefficients by least squares on located points, where they are determined.

    The unit is changed in place, and left as it was if the points do not fit.
    """
    free = _free_directions(unit)
    if unit.known.accuracy:
        _refine_noisy(probe, unit, free, rng)
    else:
        _refine_exact(probe, unit, free, rng)


def _refine_exact(probe, unit, free, rng):
    """Gauss-Newton steps on points located at the unit as it is."""
    allowed, near = _REFINED_TOL + _REFINED_RESOLUTIONS * probe.resolution, np.inf
    for _ in range(_N_ROUNDS):
        phi = unit.known.evaluate(_located_near(probe, unit, free, rng, near))[1]
        phi /= np.linalg.norm(phi, axis=1, keepdims=True)
        step, residual = _trimmed_step(phi @ free, phi @ unit.coef)
        if step is None or residual > allowed or np.linalg.norm(step) > _LARGEST_STEP * np.linalg.norm(unit.coef):
            break
        unit.coef = unit.coef + free @ step
        relative = np.linalg.norm(step) / np.linalg.norm(unit.coef)
        if relative < _SETTLED:
            break
        near = max(_NEAR_PREDICTED, _NEAR_STEPS * relative)


def _located_near(probe, unit, free, rng, near=np.inf):
    """Confirmed points (n, D) of a unit: those it was followed along, and predicted ones that determine it best."""
    points, normals = unit.predicted_points(_POINTS_PREDICTED * (free.shape[1] + SPARE), rng)
    if len(points) == 0:
        return unit.located
    phi = unit.known.evaluate(points)[1]
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    order = lapack.scipy_qr((phi @ free).T, mode="r", pivoting=True)[1]
    chosen = order[: free.shape[1]]
    chosen = np.concatenate([chosen, rng.permutation(np.setdiff1d(np.arange(len(points)), chosen))[:SPARE]])
    points, normals = points[chosen], normals[chosen]
    offset, found, _ = _locate_predicted(probe, points, normals, _three_widths(probe), near)
    return np.vstack([unit.located, points[found] + offset[found, None] * normals[found]])


def _three_widths(probe, position_error=0.0):
    wide, narrow = window_widths(probe, position_error)
    return wide, np.sqrt(wide * narrow), narrow


def _trimmed_step(A, y):
    """The least-squares solution of ``A step = -y`` without outliers, and the median residual; None if few are left.

    Points are outliers at first if the coefficients before the step are far off there: few spare equations hide them.
    """
    off, least = np.abs(y), A.shape[1] + 2
    keep = off <= max(_FIRST_OUTLIER * np.median(off), _NO_RESIDUAL) if len(off) else off > 0
    keep = keep if keep.sum() >= least else np.ones(len(A), dtype=bool)
    step, residual = None, np.inf
    for _ in range(_N_TRIMMINGS):
        if keep.sum() < least:
            return None, np.inf
        step = -lapack.scipy_lstsq(A[keep], y[keep], cond=_STEP_RANK_TOL, lapack_driver="gelsy")[0]
        off = np.abs(y + A @ step)
        residual, before = np.median(off[keep]), keep
        keep = off <= max(_OUTLIER * residual, _NO_RESIDUAL)
        if np.array_equal(keep, before):
            break
    return step, residual


def _refine_noisy(probe, unit, free, rng):
    """Weighted least squares on more points; these become the unit's equations."""
    points, normals = unit.predicted_points(2 * free.shape[1] + 3 * SPARE, rng, n_lines=_LINES_NOISY)
    if len(points) < free.shape[1] + _SPARE_NOISY:
        return
    offset, found, errors = _locate_predicted(probe, points, normals, _three_widths(probe, unit.position_error))
    if found.sum() < free.shape[1] + _SPARE_LOCATED:
        return
    P, errors = points[found] + offset[found, None] * normals[found], errors[found]
    Z, phi = unit.known.evaluate(P)
    errors = errors * np.linalg.norm(unit.known.gradients(Z > 0, unit.coef), axis=1)
    errors = errors + unit.known.accuracy * np.linalg.norm(phi, axis=1)
    fit = active_set_fit(phi @ free, -phi @ unit.coef, errors)
    if fit is not None and np.linalg.norm(fit.solution) < _LARGEST_STEP * np.linalg.norm(unit.coef):
        unit.keep_consistent(unit.coef + free @ fit.solution)
        unit.add_points(P[fit.kept], errors[fit.kept])


def _free_directions(unit):
    """Orthonormal directions (T, q) in which the coefficients may move: orthogonal to themselves and the null space."""
    fixed = lapack.qr(np.column_stack([unit.coef, unit.null_basis]))[0]
    whole = np.eye(len(unit.coef)) if unit.basis is None else lapack.qr(unit.basis)[0]
    left = whole - fixed @ (fixed.T @ whole)
    U, s, _ = svd(left, full_matrices=False)
    return U[:, s > _RANK_TOL]
