"""Units of one hidden layer far from the center, where those that grow linearly are ReLU units up to rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from skident.budget.constants import UNIFORM
from skident.linalg import lapack, svd
from skident.oracle import NotIdentified

from ..constants import DEVIATIONS_OF_ERROR, OUTPUTS_PER_UNKNOWN
from ..piecewise.kernel.lines import Line, Table
from ..piecewise.kernel.output_error import Probe
from ..piecewise.kernel.scan import scan_line
from ..piecewise.shallow.units import units_on_line

__all__ = ["FAR_RADIUS", "FARTHEST_LINE", "FarUnits", "find_far_units"]

FAR_RADIUS = 1e5  # of the lines, in standard deviations: a unit bends over 1e-4 of it, and float32 leaves 1e-7
_REACH = 1e3  # half length of a line over its distance: one unit in 1,600 is crossed farther out
FARTHEST_LINE = 1.1 * FAR_RADIUS * _REACH  # query, in sqrt(D) standard deviations
_N_LINES = 8  # each separates nine units in ten; units with small weights are met on one line in two (budget)
_MAX_NORMAL_ERROR = 0.1  # largest error of a normal, in radians
_SAME_ERRORS = 2.0  # errors of two normals up to which they are one unit's; the errors are bounds
_MIN_ERROR = 1e-6  # of a normal, in radians: rounding of float32
_RADII = (1e5, 1e5, 1e4, 3e3)  # of the points that refine units; positions are known to 1e-6 of the radius
_MIN_DISTANCE = 100.0  # of these points from every hyperplane, in standard deviations: units are less wide
_NORMAL_ERRORS = 1.5  # errors of a normal by which its hyperplane may be elsewhere; these are bounds
_DRAWS = 32  # candidates per point, of which those near a hyperplane are left out
_FEWEST_ROWS = 1.5  # points per unknown, fewer than which are no fit
_NO_EFFECT = 100.0  # mean square of a unit's coefficients in errors, up to which it has no effect
_ALIKE = 0.9  # cosine of normals that may be one unit's, of which one is left out at a time
_WINDOWS = 64  # in which rounding is measured
_WINDOW = 1e-3  # their half length over the radius: hardly one contains a hyperplane
_MEDIAN_BEND = 0.6745 * 6.0**0.5  # median of second differences of outputs with errors of standard deviation 1


@dataclass(frozen=True)
class FarUnits(Table):
    """Units far out, up to their signs; errors are bounds."""

    normals: np.ndarray  # (m, D), unit vectors
    positions: np.ndarray  # (m,), p of the hyperplanes n . u + p = 0
    jumps: np.ndarray  # (m, m_L), of the gradient along the normals
    normal_errors: np.ndarray  # (m,), radians
    position_errors: np.ndarray  # (m,)


class _FarProbe(Probe):
    """A probe of lines at a distance of `FAR_RADIUS`, with the error measured there."""

    def __init__(self, oracle, std):
        super().__init__(oracle, DEVIATIONS_OF_ERROR * std, exact=False)
        self.length_scale = FAR_RADIUS * np.sqrt(oracle.n_inputs)
        self._error_grows = True

    def query(self, U):
        """Outputs (n, m_L) and their accuracy (n,); see `Probe.query`."""
        F, tol = super().query(U)
        return F, np.maximum(tol, self.oracle.precision.eps * np.abs(F).max(axis=1, initial=0.0))


def find_far_units(oracle, max_units, rng, callback=None):
    """`FarUnits` of an oracle with one hidden layer of units that grow linearly; outputs need not be exact.

    Far out, an activation that is constant on the left and of slope 1 on the right is a ReLU up to rounding, so that
    the gradient jumps across every hyperplane. Lines cross nearly all hyperplanes; with their normals known to 1e-4,
    the outputs between hyperplanes are linear in what is unknown, and least squares refines it, closer and closer to
    the center. Raises NotIdentified if no units are detected.
    """
    std = _error_far_out(oracle, rng)
    probe = _FarProbe(oracle, std)
    units = _merged(FarUnits.stacked([_units_on_a_line(probe, max_units, rng) for _ in range(_N_LINES)]))
    for radius in _RADII:
        if len(units) == 0:
            raise NotIdentified("profiles", "linear", "no unit bends along lines far out.")
        if callback is not None:
            callback(len(units))
        units = _refined(oracle, units, radius, std / FAR_RADIUS, rng)
    return units


def _error_far_out(oracle, rng):
    """Standard deviation of every output's error (m_L,) at the distance of the lines."""
    U, E = FAR_RADIUS * rng.standard_normal((2, _WINDOWS, oracle.n_inputs))
    before, middle, after = (oracle(U + step * _WINDOW * E) for step in (-1.0, 0.0, 1.0))
    std = np.median(np.abs(before - 2.0 * middle + after), axis=0) / _MEDIAN_BEND
    rounding = UNIFORM * oracle.precision.eps * np.sqrt(np.mean(middle**2, axis=0))
    return np.maximum(std, rounding + np.finfo(float).tiny)


def _units_on_a_line(probe, max_units, rng):
    """`FarUnits` that a random far line crosses, with jumps of the oracle's outputs."""
    D = probe.oracle.n_inputs
    origin, direction = rng.standard_normal((2, D))
    line = Line(FAR_RADIUS * origin, direction / np.linalg.norm(direction), _REACH * probe.length_scale)
    scan = scan_line(
        lambda t: probe.query(line.at(t)),
        line.reach,
        length_scale=probe.length_scale,
        max_boundaries=max_units,
        rng=rng,
    )
    units = FarUnits(np.empty((0, D)), np.empty(0), np.empty((0, len(probe.output_error))), np.empty(0), np.empty(0))
    if len(scan.positions):
        found, _ = units_on_line(probe, line, scan, np.arange(len(scan.positions)), rng)
        distances = np.linalg.norm(line.at(scan.positions), axis=1)
        jumps = found.outgoing * probe.output_error
        units = FarUnits(found.weights.T, found.biases, jumps, found.errors, found.errors * distances)
    return units.take(units.normal_errors < _MAX_NORMAL_ERROR)


def _merged(units):
    """The units without repetitions: of those with the same normal, the most accurate one."""
    kept, left = [], np.argsort(units.normal_errors, kind="stable")
    while len(left):
        best = left[0]
        kept.append(best)
        cosines = units.normals[left] @ units.normals[best]
        angles = np.sqrt(np.maximum(2.0 - 2.0 * np.abs(cosines), 0.0))
        same = angles < _SAME_ERRORS * (units.normal_errors[left] + units.normal_errors[best]) + _MIN_ERROR
        same[0] = True
        left = left[~same]
    return units.take(np.array(kept, dtype=int))


def _refined(oracle, units, radius, std, rng):
    """Units by linear least squares at points of a distance, away from all hyperplanes, where that is more accurate.

    ``std`` (m_L,) is the error of the outputs over the radius. Units without effect are left out at the largest radius;
    closer, hyperplanes of similar directions are not separated by any point.
    """
    fit = _PiecewiseFit(oracle, units, radius, std, rng)
    if radius == FAR_RADIUS:
        units = units.take(fit.eliminate(units))
    D = units.normals.shape[1]
    V, variances, noise = fit.solution()
    normals = svd(V[:, :, :D] / noise[:, None], full_matrices=False)[2][:, 0]
    normals *= np.where(np.sum(normals * units.normals, axis=1) < 0, -1.0, 1.0)[:, None]
    jumps = np.einsum("kmd,kd->km", V[:, :, :D], normals)
    weights = jumps / noise**2
    size = np.sqrt(np.sum(jumps * weights, axis=1))  # in errors of the outputs
    deviation = DEVIATIONS_OF_ERROR * np.sqrt(variances)
    errors = np.maximum(np.linalg.norm(deviation[:, :D], axis=1) / size, _MIN_ERROR)
    position_errors = np.maximum(deviation[:, D] / size, _MIN_ERROR) * radius
    positions = radius * np.sum(V[:, :, D] * weights, axis=1) / size**2
    better, nearer = errors < units.normal_errors, position_errors < units.position_errors
    refined = FarUnits(
        np.where(better[:, None], normals, units.normals),
        np.where(nearer, positions, units.positions),
        np.where(better[:, None], jumps, units.jumps),
        np.minimum(errors, units.normal_errors),
        np.minimum(position_errors, units.position_errors),
    )
    return _merged(refined)


class _PiecewiseFit:
    """Outputs as a linear function with one vector (normal and position times jump) per unit, and the linear part."""

    def __init__(self, oracle, units, radius, std, rng):
        m, D = units.normals.shape
        U = _points_between(units, radius, int(OUTPUTS_PER_UNKNOWN * (m + 1) * (D + 1)), rng)
        if len(U) < _FEWEST_ROWS * (m + 1) * (D + 1):
            raise NotIdentified("profiles", "crowded", f"{m} units leave hardly a point far out between hyperplanes.")
        Z = np.column_stack([U / radius, np.ones(len(U))])
        self.sides = np.where(U @ units.normals.T + units.positions > 0, 0.5, -0.5)
        design = np.concatenate([Z[:, None], self.sides[:, :, None] * Z[:, None]], axis=1).reshape(len(U), -1)
        Y = oracle(U) / radius
        self.block, self.std, self.n_samples = D + 1, std, len(U)
        # Rows of a prior of the outputs' size, for vectors that the points do not determine.
        prior = np.min(std / Y.std(axis=0)) * np.eye(design.shape[1])
        Q, self.R = lapack.scipy_qr(np.concatenate([design, prior]), mode="economic", check_finite=False)
        self.Y = Q[: len(U)].T @ Y
        self.unexplained = np.maximum(np.sum(Y**2, axis=0) - np.sum(self.Y**2, axis=0), 0.0)

    def _solve(self):
        """Coefficients (k, m_L), their covariance (k, k) for errors of variance 1, and the outputs' errors (m_L,)."""
        Q, R = lapack.scipy_qr(self.R, mode="economic", check_finite=False)
        rotated = Q.T @ self.Y
        inverse = scipy.linalg.solve_triangular(R, np.eye(len(R)))
        left = self.unexplained + np.sum(self.Y**2, axis=0) - np.sum(rotated**2, axis=0)
        residual = np.sqrt(np.maximum(left, 0.0) / (self.n_samples - len(R)))
        return inverse @ rotated, inverse @ inverse.T, np.maximum(residual, self.std)

    def solution(self):
        """Vectors (m, m_L, D + 1) of the units, variances (m, D + 1) for errors of variance 1, the errors (m_L,)."""
        x, covariance, error = self._solve()
        V = np.swapaxes(x.reshape(-1, self.block, x.shape[1]), 1, 2)[1:]
        return V, np.diag(covariance).reshape(-1, self.block)[1:], error

    def eliminate(self, units):
        """Indices of the units that have an effect; the others leave the fit, the least accurate of two alike."""
        kept = np.arange(len(units))
        while True:
            x, covariance, error = self._solve()
            blocks = np.arange(len(x)).reshape(-1, self.block)
            idle = self._without_effect(x, covariance, error, blocks[1:])
            if len(idle) == 0:
                return kept
            errors = units.normal_errors[kept[idle]]
            alike = np.abs(units.normals[kept[idle]] @ units.normals[kept[idle]].T) > _ALIKE
            worse = np.argsort(np.argsort(-errors, kind="stable"), kind="stable")
            drop = idle[np.all(~alike | (worse[:, None] <= worse), axis=1)]
            kept = np.delete(kept, drop)
            self.R = self.R[:, np.delete(blocks, drop + 1, axis=0).ravel()]

    def _without_effect(self, x, covariance, error, blocks):
        """Indices of units without which the sum of squares would hardly grow."""
        inverse = lapack.inv(covariance[blocks[:, :, None], blocks[:, None, :]])
        gains = np.einsum("kim,kij,kjm->km", x[blocks], inverse, x[blocks]) / error**2
        return np.flatnonzero(gains.max(axis=1) < _NO_EFFECT * self.block)


def _points_between(units, radius, n, rng):
    """At most n points (k, D) around a distance, none of them near a hyperplane."""
    parts, missing = [], n
    for _ in range(_DRAWS):
        U = radius * rng.standard_normal((n, units.normals.shape[1]))
        lengths = np.linalg.norm(U, axis=1)[:, None]
        # A position measured at a large distance is off by the normal's error there, which cancels at that distance.
        errors = units.normal_errors * np.maximum(lengths, FAR_RADIUS)
        errors = np.minimum(errors, units.normal_errors * lengths + units.position_errors)
        away = np.abs(U @ units.normals.T + units.positions) > np.maximum(_MIN_DISTANCE, _NORMAL_ERRORS * errors)
        parts.append(U[away.all(axis=1)][:missing])
        missing -= len(parts[-1])
        if missing == 0:
            break
    return np.concatenate(parts)
