"""Signs of a layer's units, and its missing weights, by linear equations from the units of the next layer."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np

from skident.budget import check_deadline, chunks, require_memory
from skident.budget.constants import ROOT_RANK_TOL
from skident.linalg import svd

from ...constants import CERTAIN, FEWEST_UNITS, LAYER_ERRORS, RESIDUAL_PER_ERROR, SVD_OPERATIONS
from ..kernel.signs import signs_over_ratio, slope_of_ratio
from .facet_unit import CONTRADICTION
from .known_layers import KnownLayers

__all__ = ["LayerSigns", "features_with_signs", "layer_signs", "signs_beside_linear_part", "with_missing_weights"]

_CERTAIN_NOISY = 0.1  # `CERTAIN` for noisy outputs
_CERTAIN_ERRORS = 30.0  # errors by which noisy equations must determine a direction
_DETERMINED = 1e-5  # part of a sign in the null space up to which it is determined
_FREE_SIZE = 1e6  # scale of other unknowns relative to signs, which have size 1 on noisy outputs
_NO_COLUMN = 1e-12  # norm of a column below which it is not scaled
_MOST_SIGNS = 14  # units up to which all 2^m signs are tried, in seconds
_LOW_RANK = 1e-6  # singular value of unit vectors that is rounding
_NO_WEIGHT = 1e-6  # weight, beside those of norm 1, that is rounding
_COPIES = 5  # arrays of the equations: blocks, as one matrix, scaled, in the decomposition and its result


class LayerSigns(NamedTuple):
    """Signs of a layer's units as solutions of linear equations."""

    signs: np.ndarray  # (m_l,), over the ratio: near 1 and -1 if they are right
    deviation: np.ndarray  # (m_l,), | |s| - 1 |: the certificate
    ratio: float  # 1 for ReLU units, (1 + a) / (1 - a) for leaky ones of slope a
    determined: np.ndarray  # (m_l,), mask
    residual: float  # largest of an equation
    used: list  # indices of the units whose equations were used
    missing_weights: np.ndarray  # (m_{l-1}, m_l), of layer l that no boundary determines; 0 elsewhere
    certain_tol: float = CERTAIN  # deviation up to which a sign is certain

    @property
    def certain(self):
        """Whether all that is determined is a sign."""
        return bool(self.deviation[self.determined].max(initial=0.0) < self.certain_tol)

    @property
    def slope(self):
        """Slope of inactive units."""
        return slope_of_ratio(self.ratio)


def layer_signs(known, units, slope=0.0, undetermined=None):
    """Signs of the units of layer l from `FacetUnit`s of layer l + 1, as `LayerSigns`.

    A unit ``z = sum_k alpha_k |z_k| + c . h_{l-1} + d`` of layer l + 1 has ``c = sum_k s_k alpha_k w_k``: m_{l-1}
    linear equations for the signs s. Its undetermined part enters as further unknowns. While the equations contradict
    each other, the unit is left out without which they do so least. A weight o of layer l that is `undetermined` (a
    mask (m_{l-1}, m_l)), between an input i and a unit k that is always active with it, adds ``2 s_k alpha_k o`` to
    c_i: one more unknown. A slope of None is solved for.
    """
    used = list(range(len(units)))
    missing = np.argwhere(np.zeros((1, 1)) if undetermined is None else undetermined)
    while True:
        result = _solve(known, [units[i] for i in used], slope, missing)[0]._replace(used=used)
        if len(used) <= FEWEST_UNITS or (result.residual < CONTRADICTION and result.certain):
            return result
        without = []
        for j in range(len(used)):
            others = _solve(known, [units[i] for i in used[:j] + used[j + 1 :]], slope, missing)[1]
            without.append((others.max(), np.median(others)))
        worst = min(range(len(used)), key=without.__getitem__)
        used = [u for j, u in enumerate(used) if j != worst]


def _solve(known, units, slope, missing):
    """Signs by least squares, and the largest residual (n,) of every unit; `missing` (q, 2) are indices of weights."""
    A, y, size, certain_tol = _equations(known, units, missing)
    K, noisy = known.n_units, bool(known.accuracy)
    U, s, Vt = svd(A / size, full_matrices=len(A) < A.shape[1])
    rank = int(np.sum(s > (_CERTAIN_ERRORS if noisy else ROOT_RANK_TOL * s[0])))
    x = Vt[:rank].T @ ((U[:, :rank].T @ y) / s[:rank]) / size
    determined = np.linalg.norm(Vt[rank:, :K], axis=0) < _DETERMINED
    residuals = np.abs(A @ x - y).reshape(len(units), -1).max(axis=1) * (RESIDUAL_PER_ERROR if noisy else 1.0)
    signs, ratio = signs_over_ratio(x[:K], determined, slope)
    weights, (i, k) = np.zeros((known.n_before, K)), missing.T
    weights[i, k] = np.where(signs >= 0, 1.0, -1.0)[k] * x[K : K + len(missing)]
    deviation = np.abs(np.abs(signs) - 1.0)
    result = LayerSigns(signs, deviation, ratio, determined, float(residuals.max()), [], weights, certain_tol)
    return result, residuals


def _equations(known, units, missing):
    """Equations ``A x = y`` for the signs and the other unknowns, sizes of its columns, and the tolerance of a sign.

    The unknowns: signs (m_l), products with missing weights, and per unit the products of signs and undetermined
    weights, and the undetermined part of c.
    """
    K, m = known.n_units, known.n_before
    scales = [1.0 / max(np.abs(unit.coef[:K]).max(), np.finfo(float).tiny) for unit in units]
    undetermined = [np.linalg.norm(unit.null_basis[:K], axis=1) > unit.tolerance for unit in units]
    extra = sum(unit.nullity + int(v.sum()) for unit, v in zip(units, undetermined, strict=True))
    n_unknowns = K + len(missing) + extra
    _require_solution(m * len(units), n_unknowns)
    blocks, values, start = [], [], K + len(missing)
    for unit, scale, v in zip(units, scales, undetermined, strict=True):
        block = np.zeros((m, n_unknowns))
        alpha = np.where(v, 0.0, scale * unit.coef[:K])
        block[:, :K] = known.weights * alpha
        block[missing[:, 0], K + np.arange(len(missing))] = 2.0 * alpha[missing[:, 1]]
        for part in (known.weights[:, v], -unit.null_basis[K:-1]):
            block[:, start : start + part.shape[1]] = part
            start += part.shape[1]
        blocks.append(block)
        values.append(scale * unit.coef[K:-1])
    A, y = np.vstack(blocks), np.concatenate(values)
    if not known.accuracy:
        return A, y, np.maximum(np.linalg.norm(A, axis=0), _NO_COLUMN), CERTAIN
    errors = np.concatenate([_errors(known, *pair) for pair in zip(units, scales, strict=True)])
    A, y = A / errors[:, None], y / errors
    size = np.append(np.ones(K), np.maximum(np.linalg.norm(A[:, K:], axis=0), _NO_COLUMN) / _FREE_SIZE)
    return A, y, size, _CERTAIN_NOISY


def _errors(known, unit, scale):
    """Errors (m,) of a unit's equations for the signs, on noisy outputs."""
    errors, K = scale * np.linalg.norm(unit.cov_root, axis=1), known.n_units
    return errors[K:-1] + np.abs(known.weights) @ errors[:K] + LAYER_ERRORS * known.accuracy


def _require_solution(n_equations, n_unknowns):
    """Refuse a singular value decomposition that memory or time do not allow."""
    few, many = sorted((n_equations, n_unknowns))
    what = f"the equations for the signs of a layer: {n_equations} of them with {n_unknowns} unknowns"
    require_memory(8 * (_COPIES * few * many + n_unknowns**2), what)
    check_deadline(SVD_OPERATIONS * many * few**2)


def signs_beside_linear_part(known, units):
    """Signs (m_l,) of layer l, or None, if some of its units are always active and missing: all signs are tried.

    Missing units add ``V beta_j`` to the linear part c of every unit j of layer l + 1, of low rank over all units. Also
    an orthonormal basis (m_{l-1}, r) of V. None if no signs leave a part of low rank, or several do. ``2^m_l`` small
    singular value decompositions; given up above 14 signs. Units with a null space are not used.
    """
    K, nothing = known.n_units, np.zeros((known.n_before, 0))
    coefs = np.array([unit.coef / np.linalg.norm(unit.coef) for unit in units if unit.nullity == 0])
    if len(coefs) < 2 or K > _MOST_SIGNS:
        return None, nothing
    A, C = coefs[:, :K].T, coefs[:, K:-1].T
    signs = 1.0 - 2.0 * (np.arange(2**K)[:, None] >> np.arange(K) & 1)
    sizes = []
    for some in chunks(len(signs), _COPIES * 8 * C.size):
        check_deadline()
        sizes.append(svd(_linear_rest(known, signs[some], A, C), compute_uv=False))
    sizes = np.concatenate(sizes)
    for r in range(1, min(len(coefs), known.n_before)):
        fits = np.flatnonzero(sizes[:, r] < _LOW_RANK)
        if len(fits) == 1:
            return signs[fits[0]], svd(_linear_rest(known, signs[fits[:1]], A, C)[0])[0][:, :r]
        if len(fits) > 1:
            break
    return None, nothing


def _linear_rest(known, signs, A, C):
    """What signs (s, m_l) leave of the linear parts of units, (s, m_{l-1}, n)."""
    return C - np.einsum("mk,sk,kj->smj", known.weights, signs, A)


def features_with_signs(known, signs, linear=None, slope=0.0):
    """The basis B (T, m_l + r + 1) of a unit of layer l + 1 in its own weights: ``coef = B (w, b)``.

    `linear` (m_{l-1}, r) are weights of missing units that are always active. As
    ``leaky(s z) = (1 - a) |z| / 2 + (1 + a) s z / 2`` with the slope a of inactive units.
    """
    K, r = known.n_units, 0 if linear is None else linear.shape[1]
    B = np.zeros((known.n_features, K + r + 1))
    B[np.arange(K), np.arange(K)] = 0.5 * (1.0 - slope)
    B[K:-1, :K] = 0.5 * (1.0 + slope) * known.weights * signs
    B[-1, :K] = 0.5 * (1.0 + slope) * signs * known.biases
    if r:
        B[K:-1, K : K + r] = linear
    B[-1, -1] = 1.0
    return B


def with_missing_weights(known, units, solution):
    """The known layers with the missing weights of a `LayerSigns`, and the units in terms of their features."""
    missing = np.where(np.abs(solution.missing_weights) > _NO_WEIGHT, solution.missing_weights, 0.0)
    if not missing.any():
        return known, units
    K, old = known.n_units, known
    known = KnownLayers(old.layers, old.weights + missing, old.biases, slope=old.slope, accuracy=old.accuracy)
    # The unit is active wherever the input is: there |z| is larger, by their product and the sign.
    change = np.eye(old.n_features)
    change[K:-1, :K] = missing * np.where(solution.signs >= 0, 1.0, -1.0)
    moved = [copy.copy(unit) for unit in units]
    for unit in moved:
        unit.known, unit.equations = known, unit.equations @ change
    return known, [unit.with_basis(unit.basis) for unit in moved]
