"""The second layer if all first-layer pre-activations can be chosen: all units are free, at many centers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import erf, erfinv

from skident.linalg import lapack, n_symmetric_entries, svd
from skident.network import get_activation
from skident.optim import DenseNormalEquations, best_of, levenberg_marquardt
from skident.oracle import NotIdentified

from ..constants import MAX_CORRECTION, MAX_GAP
from ..query_points import unit_rows
from .downstream import PowerSums, network_from_curves
from .kernel.charts import ErfChart, TanhChart, change_coordinates, powers_of_series, series_in_outputs
from .kernel.patch import Patch
from .kernel.powers import decompose_into_powers
from .kernel.taylor import TaylorRule, choose_reach, taylor_coefficients

__all__ = ["AllFreeDesign", "all_free_design", "recover_with_all_units_free"]

# By order: the largest reach tried, and more pairs of nodes than on patches, since fewer centers average the errors.
_RULES = {2: TaylorRule(2, 0.5, 3), 3: TaylorRule(3, 0.6, 6), 4: TaylorRule(4, 0.8, 7), 5: TaylorRule(5, 0.85, 8)}
_MAX_FILL = 0.9  # part of the space of order-p coefficients that m_2 powers may fill: the power method needs the rest
_CENTERS_PER_UNIT = 1.5  # coefficients per output and second-layer unit, so that singular values have a gap
_MORE_CENTERS = 6  # in addition
# Standard deviations of the centers' pre-activations, one per try: where units are nearly saturated, rounding grows.
_SPREADS = {"tanh": (0.8, 0.5, 0.3), "erf": (0.4, 0.25, 0.6)}
_CORRECTION_SD = 0.5  # of random starts for bias corrections: hyperplanes are near the middle of their units
_N_DRAWN = 30  # budget of starts that are compared
_N_FITTED = 6  # budget of starts that are fitted
_MAX_CONDITION = 1e4  # of the first layer's weights: leaves 11 digits of chosen pre-activations
_DIFFERENCE_STEP = 1e-5  # of corrections, central: cube root of eps
_SOLVED = 1e-6  # part of a coefficient row outside the powers' span, at the true corrections: above rounding


@dataclass(frozen=True)
class AllFreeDesign:
    """Taylor rule, number of centers and estimated number of queries."""

    rule: TaylorRule
    n_centers: int
    n_queries: int


def all_free_design(n_inputs, widths):
    """The design of lowest order whose powers determine the second layer; None if m_1 > D or no order does.

    `widths` are ``(m_1, m_2, m_L)``.
    """
    m_1, m_2, m_L = widths
    for order, rule in _RULES.items():
        n_entries = n_symmetric_entries(m_1, order)
        if 1 < m_1 <= n_inputs and n_entries >= m_2 + m_1 + 1 and m_2 <= _MAX_FILL * n_entries:
            n = int(np.ceil((_CENTERS_PER_UNIT * m_2 + _MORE_CENTERS) / m_L))
            return AllFreeDesign(rule, n, n * rule.n_queries(m_1))
    return None


def recover_with_all_units_free(downstream, design, n_units):
    """The network downstream of ``m_1 <= D`` units, if that is one hidden layer of `n_units` and a linear output.

    At centers all over pre-activation space, coefficients of order p in true hidden coordinates are sums of the same
    m_2 powers. The bias corrections are those that leave least outside m_2 dimensions. Each try has other centers.
    """
    if lapack.cond(downstream.weights) > _MAX_CONDITION:
        raise NotIdentified(
            "second layer", "rank", "the first layer's weights are too nearly dependent to choose all pre-activations"
        )
    spreads = _SPREADS[downstream.activation]
    for spread in spreads:
        try:
            return _recover(downstream, design, n_units, spread)
        except NotIdentified as error:
            if error.final or spread == spreads[-1]:
                raise


def _recover(downstream, design, n_units, spread):
    """One try, with pre-activations of this standard deviation at the centers."""
    centers, order = spread * downstream.rng.standard_normal((design.n_centers, downstream.shape[1])), design.rule.order
    tensors = _tensors(downstream, design.rule, centers)
    problem = _CorrectionProblem(centers, tensors, order, n_units, downstream.center_outputs)
    if downstream.center_outputs is None:
        corrections = _best_corrections(problem, downstream.rng)
    else:
        corrections = erfinv(downstream.center_outputs)
    C = problem.coefficients(corrections)
    s = svd(unit_rows(C.reshape(-1, C.shape[-1])), compute_uv=False)
    if not s[n_units] < MAX_GAP * s[n_units - 1]:
        raise NotIdentified(
            "second layer", "residual", f"no bias corrections make the Taylor coefficients sums of {n_units} powers"
        )
    W2, coefficients, residual = decompose_into_powers(C, downstream.shape[1], order, n_units, downstream.rng)
    H, values = get_activation(downstream.activation)(centers + corrections), tensors[0][..., 0]
    sums = PowerSums(W2, corrections, H, coefficients, values, order)
    return network_from_curves(downstream, sums, {"powers": residual})


def _tensors(downstream, rule, centers):
    """Taylor coefficients (n, m_L, d_q), q = 0, ..., p, each center in its own chart."""
    units, moves = np.arange(downstream.shape[1]), lapack.pinv(downstream.weights)
    points = (centers - downstream.biases) @ moves
    patches = [Patch(units, units[:0], moves, point[None], np.zeros((1, 0))) for point in points]
    if downstream.center_outputs is None:
        charts = [TanhChart()] * len(centers)
    else:
        charts = [ErfChart(h) for h in erf(centers + erfinv(downstream.center_outputs))]
    rule = choose_reach(downstream.query, patches[0], charts[0], rule, downstream.rng)
    parts = [taylor_coefficients(downstream.query, *pair, rule) for pair in zip(patches, charts, strict=True)]
    return [np.concatenate(blocks) for blocks in zip(*parts, strict=True)]


def _best_corrections(problem, rng):
    """The bias corrections (m_1,) that leave least outside the powers' subspace, from random starts."""
    starts = _CORRECTION_SD * rng.standard_normal((_N_DRAWN, problem.centers.shape[1]))
    starts[0] = 0.0
    order = np.argsort([problem.cost(start) for start in starts])[:_N_FITTED]
    options = {"max_iter": 25, "damping": 1e-2, "ftol": 1e-2}
    fits = (levenberg_marquardt(problem.cost, problem.linearize, starts[k], **options) for k in order)
    best, _ = best_of(fits, lambda fit: fit.cost, lambda costs: min(costs) < _SOLVED**2 * problem.n_rows)
    return best.x


class _CorrectionProblem:
    """What of the order-p coefficients in true hidden coordinates lies outside m_2 dimensions, given corrections."""

    def __init__(self, centers, tensors, order, n_powers, center_outputs):
        self.centers, self.tensors, self.order, self.n_powers = centers, tensors, order, n_powers
        self.center_outputs, self.n_rows = center_outputs, tensors[0].shape[0] * tensors[0].shape[1]
        # Norms at corrections of 0 for all: far off, where few monomials outweigh all others, rank means nothing.
        rows = self.coefficients(np.zeros(centers.shape[1])).reshape(self.n_rows, -1)
        self.norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)

    def coefficients(self, corrections):
        """Coefficients (n, m_L, d_p), given corrections (m_1,)."""
        if self.center_outputs is not None:
            charts = (ErfChart(h) for h in erf(self.centers + corrections))
            at = [[T[i : i + 1] for T in self.tensors] for i in range(len(self.centers))]
            return np.concatenate([c.coefficients(T, None, self.order) for c, T in zip(charts, at, strict=True)])
        return change_coordinates(self.tensors, self._powers(corrections))

    def _powers(self, corrections):
        """Power series of every chart coordinate and its powers, (n, m_1, p + 1, p + 1)."""
        return powers_of_series(series_in_outputs(np.tanh(self.centers + corrections), self.order))

    def _rows_and_subspace(self, corrections):
        """Rows (N, d) of norm about 1, bases (N, m_2) and (d, m_2) of their best subspace, all singular values."""
        rows = self.coefficients(corrections).reshape(self.n_rows, -1) / self.norms
        U, s, Vt = svd(rows, full_matrices=False)
        return rows, U[:, : self.n_powers], s, Vt[: self.n_powers].T

    def cost(self, corrections):
        """Sum of squares outside the best m_2 dimensions."""
        if np.abs(corrections).max() > MAX_CORRECTION:
            return np.inf
        return float(np.sum(self._rows_and_subspace(corrections)[2][self.n_powers :] ** 2))

    def linearize(self, corrections):
        """Gauss-Newton model, the subspace eliminated; coefficients are linear in the powers of each unit's series."""
        rows, U, _, V = self._rows_and_subspace(corrections)

        def outside(M):
            M = M - U @ (U.T @ M)
            return M - M @ V @ V.T

        powers, step = self._powers(corrections), _DIFFERENCE_STEP
        slopes = (self._powers(corrections + step) - self._powers(corrections - step)) / (2.0 * step)
        changes = []
        for i in range(len(corrections)):
            moved = powers.copy()
            moved[:, i] = slopes[:, i]
            changes.append(outside(change_coordinates(self.tensors, moved).reshape(rows.shape) / self.norms).ravel())
        J = np.array(changes)
        return DenseNormalEquations(J @ J.T, J @ outside(rows).ravel())
