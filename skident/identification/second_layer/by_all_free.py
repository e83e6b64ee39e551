"""The second layer where all first-layer pre-activations can be chosen: all units are free, at many centres."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import erf, erfinv

from skident.linalg import find_symmetric_powers, n_symmetric_entries, symmetric_power
from skident.linalg.packing import packing_weights
from skident.network import get_activation
from skident.optim import DenseNormalEquations, levenberg_marquardt
from skident.oracle import NotIdentified

from .assembling import PowerEvidence, network_from_curves
from .kernel.charts import ErfChart, TanhChart, exponents
from .kernel.patch import Patch
from .kernel.taylor import TaylorRule, choose_reach, taylor_coefficients

__all__ = ["AllFreeDesign", "recover_with_all_units_free", "all_free_design"]

_RULES = {2: TaylorRule(2, 0.5, 3), 3: TaylorRule(3, 0.6, 6), 4: TaylorRule(4, 0.8, 7), 5: TaylorRule(5, 0.85, 8)}
_FULLEST = 0.9  # part of the space that m_2 powers may fill
_CENTRES, _MORE = 1.5, 6  # times m_2, and how many more
# Standard deviations of the centres' pre-activations: where these are saturated, rounding is multiplied.
_SPREADS = {"tanh": (0.8, 0.5, 0.3), "erf": (0.4, 0.25, 0.6)}
_SHIFTS, _DRAWN, _FITTED = 0.5, 30, 6  # spread of first guesses of the shifts, how many are drawn, and fitted
_CONDITION = 1e4  # of the first layer's weights
_STEP = 1e-5  # of the derivatives by shifts
_TOLD, _GAP = 1e-6, 0.1  # part of a row that is left at the true shifts, and gap of the singular values


@dataclass(frozen=True)
class AllFreeDesign:
    """Order and centres for a second layer that is looked for with all units free.

    Attributes
    ----------
    rule : TaylorRule
    n_centres : int
    n_queries : int
        Rows to ask, about.
    """

    rule: TaylorRule
    n_centres: int
    n_queries: int


def all_free_design(n_inputs, widths):
    """The lowest order whose powers determine the second layer.

    Parameters
    ----------
    n_inputs : int
        D.
    widths : tuple of int
        ``(m_1, m_2, m_L)``.

    Returns
    -------
    AllFreeDesign or None
        None where ``m_1 > D`` or no order serves.
    """
    m_1, m_2, m_L = widths
    for order, rule in _RULES.items():
        entries = n_symmetric_entries(m_1, order)
        if 1 < m_1 <= n_inputs and entries >= m_2 + m_1 + 1 and m_2 <= _FULLEST * entries:
            n = int(np.ceil((_CENTRES * m_2 + _MORE) / m_L))
            return AllFreeDesign(rule, n, n * rule.n_queries(m_1))
    return None


def recover_with_all_units_free(downstream, plan, n_units):
    """All that follows a first layer of ``m_1 <= D`` units, if that is one hidden layer and a linear output.

    Parameters
    ----------
    downstream : Downstream
    plan : AllFreeDesign
    n_units : int
        m_2.

    Returns
    -------
    RecoveredNetwork

    Raises
    ------
    NotIdentified
        If the first layer's weights are dependent, no shifts make the coefficients sums of m_2 powers, these are not
        found, or the network does not explain the answers.

    Notes
    -----
    At centres all over pre-activation space the coefficients of order p in true hidden coordinates are sums of the same
    m_2 powers. Shifts are the ones that leave least of them outside m_2 dimensions: Gauss-Newton on the m_1 of them,
    from several guesses, the subspace eliminated. Up to three times the planned rows, each time other centres.
    """
    if np.linalg.cond(downstream.weights) > _CONDITION:
        raise NotIdentified(
            "second layer", "rank", "the first layer's weights are too nearly dependent to choose all pre-activations"
        )
    *spreads, last = _SPREADS[downstream.activation]
    for spread in spreads:
        try:
            return _find(downstream, plan, n_units, spread)
        except NotIdentified as error:
            if error.final:
                raise
    return _find(downstream, plan, n_units, last)


def _find(downstream, plan, n_units, spread):
    """One try, with centres whose pre-activations have this standard deviation."""
    centres = spread * downstream.rng.standard_normal((plan.n_centres, downstream.shape[1]))
    tensors, order = _tensors(downstream, plan.rule, centres), plan.rule.order
    coordinates = _Coordinates(centres, tensors, order, n_units, downstream.theta)
    shifts = _best_shifts(coordinates, downstream.rng) if downstream.theta is None else erfinv(downstream.theta)
    C = coordinates.at(shifts)
    flat = C.reshape(-1, C.shape[-1])
    s, Vt = np.linalg.svd(flat / _lengths(flat), full_matrices=False)[1:]
    if not s[n_units] < _GAP * s[n_units - 1]:
        raise NotIdentified(
            "second layer", "residual", f"no shifts make the Taylor coefficients sums of {n_units} powers"
        )
    found = find_symmetric_powers(Vt[:n_units].T, downstream.shape[1], order, downstream.rng)
    if len(found.vectors) < n_units:
        raise NotIdentified(
            "second layer", "incomplete", f"{len(found.vectors)} of {n_units} powers were found with all units free"
        )
    Phi = symmetric_power(found.vectors, order)
    coefficients = np.linalg.lstsq(Phi.T, flat.T, rcond=None)[0].T
    misfit = float(np.linalg.norm(coefficients @ Phi - flat) / np.linalg.norm(flat))
    H, values = get_activation(downstream.activation)(centres + shifts), tensors[0][..., 0]
    told = PowerEvidence(found.vectors.T, shifts, H, coefficients.reshape(*C.shape[:2], -1), values, order)
    return network_from_curves(downstream, told, {"powers": misfit})


def _tensors(downstream, rule, centres):
    """Taylor coefficients at every centre, each in its own coordinates: arrays (n, m_L, d_q), q = 0, ..., p."""
    units, moves = np.arange(downstream.shape[1]), np.linalg.pinv(downstream.weights)
    points = (centres - downstream.biases) @ moves
    patches = [Patch(units, units[:0], moves, point[None], np.zeros((1, 0))) for point in points]
    shifts = None if downstream.theta is None else erfinv(downstream.theta)
    charts = [TanhChart() if shifts is None else ErfChart(erf(centre + shifts)) for centre in centres]
    rule, _ = choose_reach(downstream.query, patches[0], charts[0], rule, downstream.rng)
    parts = [taylor_coefficients(downstream.query, *pair, rule) for pair in zip(patches, charts, strict=True)]
    return [np.concatenate(blocks) for blocks in zip(*parts, strict=True)]


def _lengths(rows):
    return np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), np.finfo(float).tiny)


def _best_shifts(coordinates, rng):
    """The shifts that leave least outside the powers' subspace, (m_1,)."""
    guesses = _SHIFTS * rng.standard_normal((_DRAWN, coordinates.centres.shape[1]))
    guesses[0] = 0.0
    best, least = guesses[0], np.inf
    for k in np.argsort([coordinates.cost(guess) for guess in guesses])[:_FITTED]:
        result = levenberg_marquardt(
            coordinates.cost, coordinates.linearise, guesses[k], max_iter=25, damping=1e-2, ftol=1e-2
        )
        if result.cost < least:
            best, least = result.x, result.cost
        if least < _TOLD**2 * coordinates.n_rows:
            break
    return best


class _Coordinates:
    """Coefficients of order p in true hidden coordinates, and what of them lies outside m_2 dimensions."""

    def __init__(self, centres, tensors, order, n_powers, theta):
        self.centres, self.tensors, self.order, self.n_powers, self.theta = centres, tensors, order, n_powers, theta
        self.n_rows, m = tensors[0].shape[0] * tensors[0].shape[1], centres.shape[1]
        self.weights = packing_weights(m, order)
        self.parts = [
            (tensors[q] * packing_weights(m, q), exponents(m, q)[:, None, :], exponents(m, order)[None])
            for q in range(1, order + 1)
        ]
        # Not those at the shifts that are tried: far off, where few monomials outweigh all others, rank means nothing.
        self.lengths = _lengths(self.at(np.zeros(m)).reshape(self.n_rows, -1))

    def at(self, shifts):
        """Coefficients (n, m_L, d_p) for shifts (m_1,) of the pre-activations."""
        if self.theta is not None:
            units = np.array([1.0 - np.abs(erf(centre + shifts)) for centre in self.centres])
            scales = np.prod(units[:, None] ** exponents(units.shape[1], self.order), axis=2)
            return self.tensors[self.order] / scales[:, None]
        return self._changed(self._series(np.tanh(self.centres + shifts)))

    def _series(self, theta):
        """Coefficients of ``(h')^a`` by powers of eta for every centre and unit, (n, m, p + 1, p + 1)."""
        n, p = np.arange(1, self.order + 1), self.order
        one = np.zeros((*theta.shape, p + 1))
        one[..., 1:] = theta[..., None] ** (n - 1.0) / (1.0 - theta[..., None] ** 2) ** n
        table = np.zeros((*theta.shape, p + 1, p + 1))
        table[..., 0, 0] = 1.0
        for a in range(p):
            for b in range(a, p):
                table[..., a + 1, b + 1 :] += table[..., a, b, None] * one[..., 1 : p - b + 1]
        return table

    def _changed(self, series):
        """Coefficients from series."""
        total = 0.0
        for T, source, target in self.parts:
            change = 1.0
            for i in range(series.shape[1]):
                change = change * series[:, i][:, source[..., i], target[..., i]]
            total = total + T @ change
        return total / self.weights

    def _left(self, shifts):
        """Rows (N, d), their best subspaces' bases (N, m_2) and (d, m_2), and all singular values between these."""
        rows = self.at(shifts).reshape(self.n_rows, -1) / self.lengths
        U, s, Vt = np.linalg.svd(rows, full_matrices=False)
        return rows, U[:, : self.n_powers], s, Vt[: self.n_powers].T

    def cost(self, shifts):
        """Sum of squares outside the best m_2 dimensions."""
        if np.abs(shifts).max() > 6.0:
            return np.inf
        return float(np.sum(self._left(shifts)[2][self.n_powers :] ** 2))

    def linearise(self, shifts):
        """Gauss-Newton model, the subspace eliminated."""
        rows, U, _, V = self._left(shifts)
        outside = lambda M: M - U @ (U.T @ M) - (M - U @ (U.T @ M)) @ V @ V.T  # noqa: E731
        series, theta = self._series(np.tanh(self.centres + shifts)), self.centres + shifts
        moved = (self._series(np.tanh(theta + _STEP)) - self._series(np.tanh(theta - _STEP))) / (2.0 * _STEP)
        changes = []
        for i in range(len(shifts)):
            one = series.copy()
            one[:, i] = moved[:, i]
            changes.append(outside(self._changed(one).reshape(rows.shape) / self.lengths).ravel())
        J = np.array(changes)
        return DenseNormalEquations(J @ J.T, J @ outside(rows).ravel())
