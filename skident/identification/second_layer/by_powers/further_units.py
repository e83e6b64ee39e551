"""Weights of the second layer at all other first-layer units, each freed together with known ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import lapack, power_jacobian, symmetric_power
from skident.linalg.packing import packing_weights
from skident.optim import DenseNormalEquations, fit_coefficients, levenberg_marquardt
from skident.oracle import NotIdentified

from ...constants import DIFFERENCE_STEP
from ...query_points import unit_rows
from ..downstream import Downstream
from ..kernel.charts import exponents
from ..kernel.taylor import taylor_coefficients
from .first_patch import PatchSample

__all__ = ["AllWeights", "recover_further_units"]

_N_PATCHES = 12  # budget of sets of known units tried for a patch in reach
_N_COMPARED = 5  # of them, after which the best one so far is taken
_NEAR_DISTANCE = 4000.0  # of a patch that is taken at once: rounding there is 4e-13
_EQUATIONS_PER_UNKNOWN = 1.15  # linear equations that a patch has to give, per second-layer unit
_MAX_RESIDUAL = 5e-4  # relative, of a unit's terms; else it is tried again together with other known units
_MAX_LAST_RESIDUAL = 1e-2  # same on the last repetition: the polish may still mend it
_MAX_REPEATS = 3  # budget per unit
_MAX_REPEATS_OUT_OF_REACH = 1  # same if no patch is in reach
_OFF_CENTER = 0.5  # center output beyond which the bias of a unit is corrected before it is tried again
_MAX_START = 0.9  # center output of the start of a fit: 1 is a pole
_MAX_CENTER_OUTPUT = 0.95  # center output in a fit


@dataclass(frozen=True)
class AllWeights:
    """W2 (m_1, m_2) up to one norm per second-layer unit, center outputs (m_1,), samples and the largest residual.

    `downstream` has the biases to which center outputs belong.
    """

    W2: np.ndarray
    center_outputs: np.ndarray
    samples: list
    residual: float
    downstream: Downstream


@dataclass(frozen=True)
class _FurtherUnit:
    """One more unit: its weights (m_2,), center output, sample and relative residual."""

    weights: np.ndarray
    center_output: float
    sample: PatchSample
    residual: float


def recover_further_units(downstream, design, first, callback=None):
    """All weights, from those on a `FirstPatch`; ``callback(n_known, m_1)`` after every unit.

    Raises NotIdentified if no patch of a unit is in reach, or its terms agree with the known weights on none.
    """
    m_1 = downstream.shape[1]
    W2, centers = np.zeros((m_1, first.W2.shape[1])), np.zeros(m_1)
    W2[first.free], centers[first.free] = first.W2, first.center_outputs
    known, samples, residuals = list(first.free), [first.sample], [first.residual]
    queue = [(unit, 0) for unit in np.setdiff1d(np.arange(m_1), first.free)]
    while queue:
        unit, n_tried = queue.pop(0)
        patch = _patch_with_known_units(downstream, design, first, W2, known, unit, n_tried)
        fit = None if patch is None else _fit_unit(downstream, design.further_rule, W2, centers, patch)
        last = n_tried == (_MAX_REPEATS_OUT_OF_REACH if fit is None else _MAX_REPEATS)
        if fit is None or fit.residual > (_MAX_LAST_RESIDUAL if last else _MAX_RESIDUAL):
            if last:
                raise _not_recovered(unit, fit)
            downstream = downstream if fit is None else _recentered(downstream, unit, fit.center_output)
            queue.append((unit, n_tried + 1))
            continue
        W2[unit], centers[unit] = fit.weights, fit.center_output
        known.append(unit)
        samples.append(fit.sample)
        residuals.append(fit.residual)
        if callback is not None:
            callback(len(known), m_1)
    return AllWeights(W2, centers, samples, float(max(residuals)), downstream)


def _not_recovered(unit, fit):
    reason = "no patch is in reach" if fit is None else f"its terms leave a relative residual of {fit.residual:.1e}"
    message = f"the second layer's weights from first-layer unit {unit} were not recovered: {reason}"
    return NotIdentified("second layer", "residual", message)


def _recentered(downstream, unit, center_output):
    """The same with a unit's bias corrected, if it is far off and the unit was saturated on all patches so far."""
    m_1_exceeds_D = downstream.shape[1] > downstream.shape[0]
    if abs(center_output) < _OFF_CENTER or downstream.center_outputs is not None or not m_1_exceeds_D:
        return downstream
    biases = downstream.biases.copy()
    biases[unit] += np.arctanh(center_output)
    return replace(downstream, biases=biases)


def _patch_with_known_units(downstream, design, first, W2, known, unit, n_tried):
    """A near and well-conditioned patch of k known units and a further one, the last of its free ones, or None."""
    k, order = design.n_free, design.rule.order
    n_needed = _EQUATIONS_PER_UNKNOWN * W2.shape[1] / (downstream.n_outputs * len(exponents(k, order - 1)))
    best, lowest = None, np.inf
    for i in range(_N_PATCHES):
        units = first.free if i == 0 and not n_tried else np.array(known)[downstream.rng.permutation(len(known))[:k]]
        patch = downstream.patch(np.append(units, unit), design.n_further * (1 + n_tried))
        if len(patch.points) >= n_needed:
            powers = symmetric_power(unit_rows(W2[units].T), order)
            score = patch.distance * np.sqrt(lapack.cond(powers))
            if score < lowest:
                best, lowest = patch, score
            if (i == 0 and patch.distance < _NEAR_DISTANCE) or i >= _N_COMPARED:
                break
    return best


def _fit_unit(downstream, rule, W2, center_outputs, patch):
    """The `_FurtherUnit` that is the last free one of a patch, the others being known."""
    known, unit = patch.free[:-1], patch.free[-1]
    chart = downstream.chart(patch.free)
    tensors = taylor_coefficients(downstream.query, patch, chart, rule)
    problem = _UnitProblem(chart, tensors, center_outputs[known], W2[known].T, rule.order)
    known_center = None if downstream.center_outputs is None else downstream.center_outputs[unit]
    weights, center, coefficients, residual = problem.fit(known_center)
    sample = PatchSample(patch, coefficients.reshape(*tensors[-1].shape[:2], -1), tensors[0][..., 0])
    return _FurtherUnit(weights, center, sample, residual)


class _UnitProblem:
    """Terms ``sum_j c_j (V_j . eta + u_j eta_new)^p`` of order p by u and the new unit's center output, c eliminated.

    V (m_2, k) are the weights at known units with given center outputs; the new unit is the last of the free ones.
    """

    def __init__(self, chart, tensors, center_outputs, V, order):
        self.chart, self.tensors, self.center_outputs, self.V, self.order = chart, tensors, center_outputs, V, order
        self.n_free, self.norms = V.shape[1] + 1, 1.0
        self.norms = np.maximum(np.linalg.norm(self.targets(0.0), axis=1, keepdims=True), np.finfo(float).tiny)

    def targets(self, center, order=None):
        """Packed terms (n m_L, d) of an order, each row of norm about 1, given the new unit's center output."""
        unknown = self.chart.center_outputs is None
        centers = np.append(self.center_outputs, center) if unknown else self.chart.center_outputs
        T = self.chart.coefficients(self.tensors, centers, self.order if order is None else order)
        return T.reshape(-1, T.shape[-1]) / self.norms

    def start(self):
        """Weights (m_2,) from terms linear in the new unit, its center output from quadratic ones."""
        degrees = exponents(self.n_free, self.order)[:, -1]
        none, one, two = (np.flatnonzero(degrees == d) for d in range(3))
        T = self.targets(0.0)
        Phi = symmetric_power(np.column_stack([self.V, np.ones(len(self.V))]), self.order)
        c = lapack.lstsq(Phi[:, none].T, T[:, none].T, rcond=None)[0].T
        M = (c[:, None, :] * Phi[:, one].T[None]).reshape(-1, len(self.V))
        u = lapack.lstsq(M, T[:, one].ravel(), rcond=None)[0]
        if self.chart.center_outputs is not None:
            return u, 0.0
        weights, lower_weights = packing_weights(self.n_free, self.order), packing_weights(self.n_free, self.order - 1)
        lower = np.flatnonzero(exponents(self.n_free, self.order - 1)[:, -1] == 1)
        linear = self.targets(0.0, self.order - 1)[:, lower] * lower_weights[lower]
        missing = ((c * u**2) @ Phi[:, two] - T[:, two]) * weights[two]
        center = np.sum(linear * missing) / max(np.sum(linear**2), np.finfo(float).tiny)
        center = float(np.clip(center, -_MAX_START, _MAX_START))
        return u / (1.0 - center**2), center

    def fit(self, known_center):
        """Weights, center output, coefficients (n m_L, m_2) and relative residual by least squares on all terms."""
        u, center = self.start()
        x0 = u if known_center is not None else np.append(u, center)
        result = levenberg_marquardt(self.cost, self.linearize, x0, max_iter=12, damping=1e-6, ftol=1e-3)
        u, center = self.split(result.x)
        c = self.eliminated(u, center).coefficients.T / self.power_norms(u)
        center = center if known_center is None else known_center
        return u, center, c * self.norms, float(np.sqrt(result.cost / len(self.norms)))

    def split(self, x):
        """Weights and center output of a vector of parameters."""
        bound = _MAX_CENTER_OUTPUT
        return (x, 0.0) if len(x) == len(self.V) else (x[:-1], float(np.clip(x[-1], -bound, bound)))

    def power_norms(self, u):
        """Norms (m_2,) of the powers."""
        Phi = symmetric_power(np.column_stack([self.V, u]), self.order)
        return np.maximum(np.linalg.norm(Phi, axis=1), np.finfo(float).tiny)

    def eliminated(self, u, center):
        """The `LinearFit` of normalized powers to the terms."""
        Phi = symmetric_power(np.column_stack([self.V, u]), self.order)
        return fit_coefficients((Phi / self.power_norms(u)[:, None]).T, self.targets(center).T)

    def cost(self, x):
        return float(np.sum(self.eliminated(*self.split(x)).residual ** 2))

    def linearize(self, x):
        """Gauss-Newton model with the coefficients eliminated."""
        u, center = self.split(x)
        fit = self.eliminated(u, center)
        c = fit.coefficients / self.power_norms(u)[:, None]  # (m_2, n m_L)
        D = fit.project_out(power_jacobian(np.column_stack([self.V, u]), self.order)[:, :, -1].T)
        matrix, gradient = (D.T @ D) * (c @ c.T), np.sum((D.T @ fit.residual) * c, axis=1)
        if len(x) == len(u):
            return DenseNormalEquations(matrix, gradient)
        step = DIFFERENCE_STEP
        moved = fit.project_out((self.targets(center - step) - self.targets(center + step)).T / (2.0 * step))
        mixed = np.sum((D.T @ moved) * c, axis=1)
        matrix = np.block([[matrix, mixed[:, None]], [mixed[None], np.sum(moved**2)]])
        return DenseNormalEquations(matrix, np.append(gradient, np.sum(moved * fit.residual)))
