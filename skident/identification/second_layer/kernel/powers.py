"""Decomposition of Taylor coefficients into powers ``w^{(x) p}``, or ``v (x) w^{(x) p}`` for several outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import DAMPED_STEPS, NEWTON_STEPS, STRONG_DAMPING
from skident.linalg import find_symmetric_powers, lapack, svd, symmetric_power
from skident.linalg.symmetric_rank_one import power_jacobian
from skident.optim import DenseNormalEquations, fit_coefficients, levenberg_marquardt
from skident.oracle import NotIdentified

from ...query_points import unit_rows

__all__ = ["OutputPowers", "decompose_into_powers", "find_output_powers", "fit_output_powers", "power_coefficients"]

# Distance of a power from the coefficients' space, tried second: those of nearly dead units are known to 2 digits.
_FAR_POWER = 0.03

_STARTS_PER_UNIT = 10  # random starts per dimension and round; nearly every one ends at one of the units
_MAX_ROUNDS = 20  # budget
_MAX_IDLE_ROUNDS = 3  # without gain: 30 starts per unit
_GAIN = 0.99  # a round that lowers the largest distance by less has gained nothing
_WEAK_DAMPING = 1e-9  # same: only keeps them regular
# Cosine of two that are one unit: the directions that are known worst differ by 3e-2 between starts.
_SAME_COSINE = 1.0 - 5e-4
_MAX_FIT_STEPS = 30  # budget of the joint fit
_FIT_DAMPING = 1e-3  # first damping of the joint fit, relative to squared column norms
_FIT_FTOL = 1e-3  # relative gain of two steps in a row that ends it: the noise of the coefficients is reached


def decompose_into_powers(C, n_free, order, n_powers, rng):
    """Directions (k, m_2) of norm 1, coefficients (n, m_L, m_2) and relative residual of C (n, m_L, d) as powers.

    Raises NotIdentified if fewer than m_2 powers lie in the span of the coefficients.
    """
    flat = C.reshape(-1, C.shape[-1])
    basis = svd(unit_rows(flat), full_matrices=False)[2][:n_powers].T
    found = find_symmetric_powers(basis, n_free, order, rng).vectors
    if len(found) < n_powers:
        found = find_symmetric_powers(basis, n_free, order, rng, farthest=_FAR_POWER).vectors
    if len(found) < n_powers:
        message = f"{len(found)} of {n_powers} powers were recovered from Taylor coefficients of order {order}"
        raise NotIdentified("second layer", "incomplete", message)
    coefficients, residual = power_coefficients(found.T, order, C)
    return found.T, coefficients, residual


def power_coefficients(directions, order, C):
    """Coefficients (n, m_L, m) of the powers of directions (k, m) in C (n, m_L, d), and the relative residual."""
    flat = C.reshape(-1, C.shape[-1])
    fit = fit_coefficients(symmetric_power(directions.T, order).T, flat.T)
    return fit.coefficients.T.reshape(*C.shape[:2], -1), float(np.linalg.norm(fit.residual) / np.linalg.norm(flat))


@dataclass(frozen=True)
class OutputPowers:
    """Units with directions w (n, k) among inputs and v (n, m_L) among outputs, all of norm 1, and the order p."""

    directions: np.ndarray
    output_directions: np.ndarray
    order: int

    @property
    def flat(self):
        """``v (x) w^{(x) p}``, packed: (n, m_L d)."""
        powers, m_L = symmetric_power(self.directions, self.order), self.output_directions.shape[1]
        return (self.output_directions[:, :, None] * powers[:, None]).reshape(len(powers), m_L * powers.shape[1])

    @property
    def tangents(self):
        """Derivatives of `flat` by w and v, (n, m_L d, k + m_L)."""
        n, m_L = self.output_directions.shape
        J, F = power_jacobian(self.directions, self.order), symmetric_power(self.directions, self.order)
        by_w = (self.output_directions[:, :, None, None] * J[:, None]).reshape(n, -1, J.shape[2])
        by_v = (np.eye(m_L)[None, :, None] * F[:, None, :, None]).reshape(n, -1, m_L)
        return np.concatenate([by_w, by_v], axis=2)

    @property
    def vector(self):
        """All w and v in one array (n (k + m_L),), unit by unit."""
        return np.hstack([self.directions, self.output_directions]).ravel()

    def like(self, vector):
        """Units of the same shape from such an array, normalized."""
        k = self.directions.shape[1]
        parts = vector.reshape(-1, k + self.output_directions.shape[1])
        return OutputPowers(unit_rows(parts[:, :k]), unit_rows(parts[:, k:]), self.order)

    def distances(self, basis):
        """Distances (n,) from the span of orthonormal columns (m_L d, m)."""
        flat = self.flat
        return np.linalg.norm(flat - (flat @ basis) @ basis.T, axis=1)

    def subset(self, index):
        """Some of the units."""
        return OutputPowers(self.directions[index], self.output_directions[index], self.order)

    def joined_by(self, others):
        """These units and others of the same order."""
        pairs = ((self.directions, others.directions), (self.output_directions, others.output_directions))
        return OutputPowers(*(np.concatenate(pair) for pair in pairs), self.order)


def find_output_powers(basis, n_outputs, n_features, order, rng, *, max_distance):
    """Units whose powers lie within `max_distance` of a subspace, nearest first, at most as many as its dimensions.

    `basis` (m_L C(k + p - 1, p), m) is orthonormal, outputs first. Gauss-Newton on the distance from random w and v;
    the best v for every w would be no better start, since most w then end at the same few units.
    """
    found, n_idle, size = OutputPowers(np.zeros((0, n_features)), np.zeros((0, n_outputs)), order), 0, (0, 0.0)
    for _ in range(_MAX_ROUNDS):
        check_deadline()
        starts = [
            unit_rows(rng.standard_normal((_STARTS_PER_UNIT * basis.shape[1], n))) for n in (n_features, n_outputs)
        ]
        found = _distinct(found.joined_by(_projected(OutputPowers(*starts, order), basis)), basis, max_distance)
        before, size = size, (len(found.directions), float(found.distances(basis).max(initial=0.0)))
        n_idle = n_idle + 1 if size[0] == before[0] and size[1] >= _GAIN * before[1] else 0
        if n_idle == _MAX_IDLE_ROUNDS:
            break
    return found


def fit_output_powers(start, rows):
    """All units fitted jointly so that rows (n, m_L d) are sums of their powers, the coefficients eliminated.

    The singular vectors of the smallest singular values are known worst, which distances from their span ignore.
    """
    _, s, Vt = svd(rows, full_matrices=False)
    targets = (s[:, None] * Vt).T

    def eliminated(x):
        units = start.like(x)
        return units, fit_coefficients(units.flat.T, targets)

    def cost(x):
        return float(np.sum(eliminated(x)[1].residual ** 2))

    def linearize(x):
        units, fit = eliminated(x)
        J = np.swapaxes(fit.project_out(units.tangents), 0, 1)  # (m_L d, n, k + m_L), Kaufman's form
        C, n_each, flat = fit.coefficients, J.shape[2], J.reshape(len(J), -1)
        gradient = np.einsum("jn,an,ajk->jk", C, fit.residual, J, optimize=True).ravel()
        return DenseNormalEquations(np.kron(C @ C.T, np.ones((n_each, n_each))) * (flat.T @ flat), gradient)

    options = {"max_iter": _MAX_FIT_STEPS, "damping": _FIT_DAMPING, "ftol": _FIT_FTOL}
    return start.like(levenberg_marquardt(cost, linearize, start.vector, **options).x)


def _projected(units, basis):
    """Each unit moved towards the span of a basis by Gauss-Newton steps on its distance."""
    k = units.directions.shape[1]
    for step in range(NEWTON_STEPS):
        r, J = units.flat, units.tangents
        r, J = r - (r @ basis) @ basis.T, J - basis @ (basis.T @ J)
        A = np.swapaxes(J, 1, 2) @ J
        A[:, :k, :k] += units.directions[:, :, None] * units.directions[:, None]  # norms stay as they are
        A[:, k:, k:] += units.output_directions[:, :, None] * units.output_directions[:, None]
        damping = STRONG_DAMPING if step < DAMPED_STEPS else _WEAK_DAMPING
        A += damping * np.trace(A, axis1=1, axis2=2)[:, None, None] * np.eye(A.shape[1])
        steps = -lapack.solve(A, np.einsum("ndk,nd->nk", J, r)[:, :, None])
        units = units.like(units.vector + steps.ravel())
    return units


def _distinct(units, basis, max_distance):
    """Units near the span of a basis, each once, nearest first, at most as many as there are dimensions."""
    distances, chosen = units.distances(basis), []
    V, W = units.output_directions, units.directions
    for i in np.argsort(distances):
        if distances[i] > max_distance or len(chosen) == basis.shape[1]:
            break
        cosines = np.abs(W[chosen] @ W[i]) * np.abs(V[chosen] @ V[i])
        if cosines.max(initial=0.0) < _SAME_COSINE:
            chosen.append(int(i))
    return units.subset(chosen)
