"""One hidden layer of a box whose outputs are not informative everywhere: lost logits, clipping, an input range."""

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import FINE_RANK_TOL
from skident.linalg import lapack, svd
from skident.linalg.sign_vectors import UndecidedSignsError
from skident.network import FeedforwardNetwork

from ...constants import CLEARLY
from ..kernel.robust_fit import fit_outputs
from ..kernel.signs import linear_part_matrix
from .signs import points_on_both_sides, signs_of_linear_part
from .units import ReLUUnits, ResidualProbe, ShallowNetwork, locate_units

_N_REWEIGHTINGS = 20  # of least absolute deviations
_WRONG_ERRORS = 64.0  # accuracies by which a fitted output may be off
_WRONG_SPREAD = 1e-12  # `_WRONG_ERRORS` relative to the outputs' spread: rounding of the sum of all units
_OUTPUTS = 6  # fitted per unit and input
_MORE_OUTPUTS = 1000  # beyond these
_HIT_SHARE = 0.3  # share of its predicted positions that a unit must show
_ACCURATE = 30.0  # output error, in units of the outputs' error, of units that need not be located again
_SAME_PLANE = 1e-8  # difference of hyperplanes that are one, ten times the error of gradients on short pieces
_SAME_PLANE_ERRORS = 10.0  # `_SAME_PLANE` in errors of the unit
_FAR_BIAS = 100.0  # bias, in units of sqrt(D), of units that are always active: no input gets that far
_SKIP_TOL = 1e-10  # singular value of a skip over the norm of the linear part that is rounding
_LINEAR_BOUND = 64.0  # errors of the linear part that right signs may leave
_COEF_ERROR = 32.0  # of the fitted gradients, in median accuracies over root n: 4 deviations with a factor of 8


@dataclass(frozen=True)
class UnsignedFit:
    """All that the informative outputs determine: ``f(u) = a + g . u + sum_i c_i |w_i . u + b_i| / 2``."""

    units: ReLUUnits  # with outgoing weights c from the fit
    constant: np.ndarray  # (m_L,), a in units of the outputs' error
    linear: np.ndarray  # (m_L, D), 2 g
    linear_error: float
    residual: float = 0.0  # largest error, relative to the spread of the outputs
    wrong: np.ndarray | None = None  # (n, D), points whose outputs this does not explain


def fit_unsigned(search):
    """Everything but signs, fitted to outputs all over the informative part, as an `UnsignedFit`.

    The units of a `LineSearch` are located again; then a, g and c are linear. They are fitted by least absolute
    deviations, so that a missing unit shows as wrong outputs where it is active or where it is not.
    """
    probe, rng = search.probe, search.rng
    units = _located(probe, search.units, search.n_located, search.pool, rng)
    units = _distinct(units, probe.length_scale)
    D, m = units.weights.shape
    n = _OUTPUTS * (m + D + 1) + _MORE_OUTPUTS
    U = np.concatenate([points_on_both_sides(units, n, rng), search.pool[rng.randint(len(search.pool), size=n)]])
    U = probe.oracle.clip_to_range(U)
    F, tol = probe.query(U)
    visible = np.isfinite(tol)
    U, F, tol = U[visible], F[visible], tol[visible]
    design = np.column_stack([np.ones(len(U)), U, 0.5 * np.abs(U @ units.weights + units.biases)])
    coef, residual = fit_outputs(design, F, tol, explained=_WRONG_ERRORS, n_rounds=_N_REWEIGHTINGS)
    coef_error = _COEF_ERROR * float(np.median(tol)) / np.sqrt(len(F))
    units = ReLUUnits(units.weights, units.biases, coef[D + 1 :], units.errors)
    linear_error = coef_error + float(np.linalg.norm(units.output_errors))
    spread, residual = np.ptp(F, axis=0).max(), residual * tol
    wrong = residual > np.maximum(_WRONG_ERRORS * tol, _WRONG_SPREAD * spread)
    largest = float(np.max(residual - _WRONG_ERRORS * tol, initial=0.0) / spread)
    return UnsignedFit(units, coef[0], 2.0 * coef[1 : D + 1].T, linear_error, largest, U[wrong])


def _located(probe, units, n_located, points, rng):
    """Units located by positions if needed, small ones on what the others leave over; false ones are dropped.

    The first `n_located` have been located before, and stay.
    """
    known, new = units.take(slice(0, n_located)), units.take(slice(n_located, None))
    if n_located == 0:
        new, shares = locate_units(probe, new, points, rng)
        known, new = new.take(shares > _HIT_SHARE), new.take(shares <= _HIT_SHARE)
    accurate = known.output_errors < _ACCURATE
    if not accurate.all():
        rough = known.take(~accurate)
        again, _ = locate_units(ResidualProbe(probe, known.take(accurate)), rough, points, rng)
        better = again.errors < rough.errors
        known = known.take(accurate).joined(rough.take(~better)).joined(again.take(better))
    if len(new):
        new, shares = locate_units(ResidualProbe(probe, known), new, points, rng)
        new = new.take(shares > _HIT_SHARE)
    return known.joined(new)


def _distinct(units, length_scale):
    """The first unit of every hyperplane."""
    planes, kept = np.column_stack([units.weights.T, units.biases / length_scale]), []
    for k, plane in enumerate(planes):
        others = planes[kept]
        gaps = np.minimum(np.abs(others - plane).max(axis=1), np.abs(others + plane).max(axis=1))
        if np.all(gaps > _SAME_PLANE + _SAME_PLANE_ERRORS * units.errors[k]):
            kept.append(k)
    return units.take(np.array(kept, dtype=int))


def network_of_fit(fit, output_error, length_scale):
    """The `ShallowNetwork` of an `UnsignedFit`: signs that explain its linear part, or else always active units.

    `output_error` (m_L,) is the unit of the fit's outputs, `length_scale` is ``sqrt(D)``.
    """
    units, tol = fit.units, _LINEAR_BOUND * fit.linear_error
    try:
        choices, residual = signs_of_linear_part(units, fit.linear, tol)
    except UndecidedSignsError:
        choices, residual = np.empty((0, len(units))), np.empty(0)
    if len(choices) == 1 or (len(choices) > 1 and np.sort(residual)[1] > CLEARLY * residual.min()):
        signs, skip = choices[np.argmin(residual)], np.zeros_like(fit.linear)
    else:
        M = linear_part_matrix(units.weights, units.outgoing)
        signs = np.where(lapack.lstsq(M, fit.linear.ravel(), rcond=FINE_RANK_TOL)[0] < 0, -1.0, 1.0)
        skip = 0.5 * (fit.linear - (units.outgoing.T * signs) @ units.weights.T)
    # sum_i c_i (|z_i| + s_i z_i) / 2 has the constant sum_i c_i s_i b_i / 2.
    constant = fit.constant - 0.5 * (signs * units.biases) @ units.outgoing
    left, sizes, right = svd(skip, full_matrices=False)
    kept = sizes > _SKIP_TOL * np.linalg.norm(fit.linear) + tol
    bias = _FAR_BIAS * length_scale
    outgoing = (left[:, kept] * sizes[kept]).T
    constant = constant - bias * outgoing.sum(axis=0)
    outer = np.vstack([units.outgoing, outgoing]) * output_error
    weights = [np.hstack([units.weights * signs, right[kept].T]), outer]
    biases = [np.concatenate([units.biases * signs, np.full(kept.sum(), bias)]), constant * output_error]
    return ShallowNetwork(FeedforwardNetwork(weights, biases, "relu"), n_skips=int(kept.sum()))
