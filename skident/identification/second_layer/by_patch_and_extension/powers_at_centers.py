"""Directions of second-layer weights from Taylor coefficients at many centers of two regions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.linalg import find_symmetric_powers, lapack, svd
from skident.oracle import NotIdentified

from ...constants import DIFFERENCE_STEP
from ..kernel.charts import TanhChart, change_coordinates, powers_of_series, series_in_outputs
from ..kernel.powers import OutputPowers, find_output_powers, fit_output_powers
from ..kernel.taylor import choose_reach, taylor_coefficients

__all__ = ["CenterPowers", "powers_at_centers"]

_MAX_OUTPUT = 0.6  # of free units at centers, as known: farther out, coefficients are less accurate
_NEARER = 0.9  # times the best reach along a few lines: truncation is worse along others
_MAX_STEPS = 30  # budget of Gauss-Newton steps per start
_SLOW_IF_EQUAL = 0.5  # residual over the last one beyond which corrections may differ between regions
_SLOW = 0.9  # residual over the last one that ends the steps with all parameters
_MAX_STEP = 0.3  # of a parameter in one step
_N_STARTS = 6  # budget
_CORRECTION_SD = 0.3  # of starts after the first, which is 0
_MAX_GAP = 0.2  # ratio of singular values m_2 + 1 and m_2 at which no further start is tried
_N_POWER_STARTS = 300  # budget of the power method with one output
_MAX_DISTANCE = 0.05  # of powers from the span of the coefficients: those of small units are known to one or two digits
_MIN_RECOVERED = 0.5  # part of the units recovered: the fit that follows finds the rest


@dataclass(frozen=True)
class CenterPowers:
    """Columns of norm 1 of W2 (k, n), and the coefficients (2 n_c, n) of their powers along their output weights.

    `corrections` (2, k) and `norm_factors` (k,) as of `PatchNetwork`; `outputs` (2 n_c, k) of free units at the
    centers, those in region 0 first.
    """

    W2: np.ndarray
    corrections: np.ndarray
    norm_factors: np.ndarray
    outputs: np.ndarray
    coefficients: np.ndarray
    order: int


def powers_at_centers(downstream, regions, rule, n_centers, n_units):
    """The `CenterPowers` of `OppositeRegions`, of `n_units` or fewer, from coefficients at n_centers in each region.

    In true outputs the coefficients of order p, wherever, are sums of ``v_j (x) W_j^{(x) p}``, v_j being the output
    weights: with m_L outputs that space has m_L times as many dimensions, and a lower order determines all units, with
    less rounding. Raises NotIdentified if less than half of the units are recovered.
    """
    T = np.arctanh(downstream.rng.uniform(-_MAX_OUTPUT, _MAX_OUTPUT, (n_centers, len(regions.free))))
    T[0] = 0.0
    patch, chart = regions.patch(T), TanhChart()
    rule = choose_reach(downstream.query, patch, chart, rule, downstream.rng)
    tensors = taylor_coefficients(downstream.query, patch, chart, rule.with_reach(_NEARER * rule.reach))
    problem = _CoordinateProblem(T, tensors, n_units, downstream.check_deadline)
    params = problem.solution(downstream.rng)
    rows = problem.rows(params)
    basis = svd(rows, full_matrices=False)[2][:n_units].T
    powers = _powers(basis, (downstream.n_outputs, T.shape[1], rule.order), downstream.rng)
    n_found = len(powers.directions)
    if n_found < _MIN_RECOVERED * n_units:
        message = f"{n_found} of {n_units} powers were recovered at {n_centers} centers"
        raise NotIdentified("second layer", "incomplete", message)
    if n_found == n_units:
        powers = fit_output_powers(powers, rows)
    C = lapack.lstsq(powers.flat.T, rows.T, rcond=None)[0].T / problem.weights[:, None]
    corrections, norm_factors = problem.split(params)
    return CenterPowers(powers.directions.T, corrections, norm_factors, problem.outputs(params), C, rule.order)


def _powers(basis, shape, rng):
    """`OutputPowers` of shape (m_L, k, p) in the span of a basis."""
    m_L, k, order = shape
    if m_L > 1:
        return find_output_powers(basis, m_L, k, order, rng, max_distance=_MAX_DISTANCE)
    directions = find_symmetric_powers(basis, k, order, rng, n_starts=_N_POWER_STARTS, farthest=_MAX_DISTANCE).vectors
    return OutputPowers(directions, np.ones((len(directions), 1)), order)


class _CoordinateProblem:
    """What of the coefficients lies outside m_2 dimensions, by bias corrections in both regions and norm factors.

    Parameters (3 k,): the mean of the corrections, norm factors minus 1, half the difference of the corrections.
    """

    def __init__(self, T, tensors, n_units, check_deadline):
        self.T, self.tensors, self.n_units, self.k = T, tensors, n_units, T.shape[1]
        self.order, self.check_deadline = len(tensors) - 1, check_deadline
        # Inverse errors of the coefficients, about: they are larger where free units are half saturated.
        self.weights = np.prod(1.0 - np.tanh(np.concatenate([T, T])) ** 2, axis=1) ** (self.order / self.k)

    def split(self, params):
        """Corrections (2, k) and norm factors (k,)."""
        mean, factors, half = np.split(params, 3)
        return np.stack([mean + half, mean - half]), 1.0 + factors

    def outputs(self, params):
        """Outputs (2 n_c, k) of free units at the centers."""
        corrections, factors = self.split(params)
        return np.tanh(np.concatenate([self.T * factors + correction for correction in corrections]))

    def rows(self, params):
        """Weighted coefficients of the highest order in true outputs, (2 n_c, m_L d)."""
        series = series_in_outputs(self.outputs(params), self.order, self.split(params)[1])
        C = change_coordinates(self.tensors, powers_of_series(series))
        return C.reshape(len(C), -1) * self.weights[:, None]

    def solution(self, rng):
        """The parameters with the smallest residual, from corrections 0 and, if that leaves no gap, random ones."""
        best, lowest = None, np.inf
        for attempt in range(_N_STARTS):
            start = np.zeros(3 * self.k)
            start[: self.k] = (_CORRECTION_SD if attempt else 0.0) * rng.standard_normal(self.k)
            params, residual = self.improved(start)
            best, lowest = (params, residual) if residual < lowest else (best, lowest)
            s = svd(self.rows(best), compute_uv=False)
            if s[self.n_units] < _MAX_GAP * s[self.n_units - 1]:
                break
        return best

    def improved(self, params):
        """Parameters and residual after Gauss-Newton on singular values beyond the m_2-th.

        To first order these are ``U_2^T R V_2`` for the rows R with singular vectors U and V.
        Corrections are the same in both regions at first: hyperplanes lie near the middle of their units, so that they
        are small, and the difference of two regions is smaller still.
        """
        last, n_free, best = np.inf, self.k, params
        for _ in range(_MAX_STEPS):
            self.check_deadline()
            R = self.rows(params)
            U, _, Vt = svd(R, full_matrices=True)
            left, right = U[:, self.n_units :].T, Vt[self.n_units :].T
            E = left @ R @ right
            residual = np.linalg.norm(E)
            best = params if residual < last else best
            if residual > _SLOW * last and n_free == len(params):
                break
            n_free = len(params) if residual > _SLOW_IF_EQUAL * last else n_free
            last = min(residual, last)
            steps = DIFFERENCE_STEP * np.eye(3 * self.k)[:n_free]
            changes = (self.rows(params + e) - self.rows(params - e) for e in steps)
            J = np.stack([(left @ change @ right).ravel() for change in changes], axis=1) / (2.0 * DIFFERENCE_STEP)
            step = lapack.lstsq(J, -E.ravel(), rcond=None)[0]
            params = params.copy()
            params[:n_free] += np.clip(step, -_MAX_STEP, _MAX_STEP)
        return best, last
