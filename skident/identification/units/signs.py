"""Signs of a layer's units by linear equations: from the normals of deeper boundaries, and from units of the next one.

The normal of a deeper boundary is a combination of the gradients of the active units: one with a coefficient other than
0 is active there. A unit ``z = sum_k alpha_k |z_k| + c . h + d`` of the next layer has ``c = rho sum_k s_k alpha_k
w_k``, with rho = 1 for ReLU units and (1 + a) / (1 - a) for leaky ones of slope a.
"""

from typing import NamedTuple

import numpy as np

from skident.budget import check_deadline, require_memory
from skident.budget.constants import TINY
from skident.linalg import inverse_and_null, svd
from skident.linalg.sign_vectors import UndecidedSignsError, solve_signs

from ..constants import CERTAIN, SVD_OPERATIONS
from ..measure.outputs import SIGNIFICANCE
from ..piecewise.kernel.signs import signs_over_ratio, slope_of_ratio

_FEWEST_VOTES = 2  # for a sign
_CONTRARY = 0.05  # share of contrary votes up to which a sign is clear
_NO_COLUMN = 1e-12  # norm of a column below which it is not scaled (rounding)
_RANK = 1e-7  # singular value over the largest that is rounding
_DETERMINED = 1e-5  # part of a sign in the null space up to which it is determined


class Signs(NamedTuple):
    """Signs (m_l,), whether each is determined, the largest ``||s| - 1|`` of these, and the slope of inactive units."""

    signs: np.ndarray
    determined: np.ndarray
    deviation: float
    slope: float

    @property
    def certain(self):
        """Whether all are determined, and are signs."""
        return bool(self.determined.all() and self.deviation < CERTAIN)


def sign_votes(prefix, record, index, tol):
    """How often K units of layer l are active at bends, by the signs of their pre-activations (-, +): (K, 2).

    `prefix` has layer l up to signs; only coefficients that the normal determines count.
    """
    coefs, slacks = _coefficients(prefix, record, index, tol)
    active = np.abs(coefs) > slacks
    positive = prefix.evaluate(record.points[index])[0][:, prefix.first :] > 0
    return np.column_stack([np.sum(active & ~positive, axis=0), np.sum(active & positive, axis=0)])


def _coefficients(prefix, record, index, tol):
    """Coefficients (n, m) of normals in the gradients of layer l, and what is insignificant: inf if undetermined."""
    P, m = record.points[index], len(prefix.top.biases)
    coefs, slacks = np.zeros((len(index), m)), np.full((len(index), m), np.inf)
    G = prefix.gradients(P)[0][:, prefix.first :] if len(index) else np.zeros((0, m, prefix.n_inputs))
    for i, (j, g) in enumerate(zip(index, G, strict=True)):
        n, error = record.normals[j] / np.linalg.norm(record.normals[j]), record.normal_errors[j]
        live = np.flatnonzero(np.linalg.norm(g, axis=1) > 0)
        if len(live) == 0:
            continue
        inverse, null = inverse_and_null(g[live].T, tol)
        coef = inverse @ n
        if np.linalg.norm(g[live].T @ coef - n) > tol + SIGNIFICANCE * error:
            continue
        known = np.linalg.norm(null, axis=1) <= tol
        slack = (SIGNIFICANCE * error + tol) * (1.0 + np.linalg.norm(inverse, axis=1))
        coefs[i, live[known]], slacks[i, live[known]] = coef[known], slack[known]
    return coefs, slacks


def votes_decide(votes):
    """Which signs the votes decide: a mask (K,)."""
    return (votes.max(axis=1) >= _FEWEST_VOTES) & (votes.min(axis=1) <= _CONTRARY * votes.max(axis=1))


def signs_of_units(prefix, units, tol, slope=0.0):
    """`Signs` from units of the next layer, linear equations in all signs; a slope of None is solved for.

    Undetermined parts of the units enter as further unknowns.
    """
    K, (A, y) = prefix.n_units, _equations(prefix, units, tol)
    norms = np.maximum(np.linalg.norm(A, axis=0), _NO_COLUMN)
    U, s, Vt = svd(A / norms)
    k = int((s > _RANK * s[0]).sum())
    x = Vt[:k].T @ ((U[:, :k].T @ y) / s[:k]) / norms
    determined = np.linalg.norm(Vt[k:, :K], axis=0) < _DETERMINED
    signs, ratio = signs_over_ratio(x[:K], determined, slope)
    deviation = np.abs(np.abs(signs) - 1.0)[determined].max(initial=0.0)
    return Signs(np.where(signs >= 0, 1.0, -1.0), determined, float(deviation), slope_of_ratio(ratio))


def some_signs(prefix, units, tol):
    """Signs (K,) of ReLU units that fulfill the equations of the next layer's units, which leave some open, or None."""
    A, y = _equations(prefix, units, tol)
    K = prefix.n_units
    U, s, _ = svd(A[:, K:], full_matrices=True) if A.shape[1] > K else (np.eye(len(A)), np.zeros(0), None)
    rest = U[:, int((s > _RANK * s.max(initial=0.0)).sum()) :].T
    M = rest @ A[:, :K]
    if len(M) == 0:
        return None
    try:
        found = solve_signs(M, rest @ y, CERTAIN * np.abs(M).max(initial=0.0), max_solutions=1)
    except UndecidedSignsError:
        return None
    return found[0].astype(float) if len(found) else None


def _equations(prefix, units, tol):
    """The equations ``A x = y`` for K signs, then products of signs and open weights, open parts, and linear units."""
    K, W = prefix.n_units, prefix.directions.T @ prefix.top.weights
    W, linear = W[:, :K], W[:, K:]
    open_weights = [np.linalg.norm(unit.V[:K], axis=1) > tol for unit in units]
    r = linear.shape[1]
    n_unknowns = K + sum(int(v.sum()) + unit.nullity + r for unit, v in zip(units, open_weights, strict=True))
    n_equations = len(W) * len(units)
    require_memory(24 * n_equations * n_unknowns, "the equations for the signs of a layer")
    check_deadline(SVD_OPERATIONS * n_equations * n_unknowns * min(n_equations, n_unknowns))
    blocks, values, start = [], [], K
    for unit, v in zip(units, open_weights, strict=True):
        scale = 1.0 / max(np.abs(unit.coef[:K]).max(), TINY)
        block = np.zeros((len(W), n_unknowns))
        block[:, :K] = np.where(v, 0.0, scale * unit.coef[:K]) * W
        for part in (W[:, v], -unit.V[K:-1], linear):
            block[:, start : start + part.shape[1]] = part
            start += part.shape[1]
        blocks.append(block)
        values.append(scale * unit.coef[K:-1])
    return np.vstack(blocks), np.concatenate(values)
