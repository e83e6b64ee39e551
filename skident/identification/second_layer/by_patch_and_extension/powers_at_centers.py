"""The second layer's rows from Taylor coefficients at many places of two cells, and the hidden coordinates there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import find_symmetric_powers
from skident.oracle import NotIdentified

from ..kernel.charts import TanhChart
from ..kernel.local_coordinates import coefficients_in_outputs
from ..kernel.output_powers import OutputPowers, find_output_powers, fitted_powers
from ..kernel.taylor import choose_reach, taylor_coefficients

__all__ = ["CenterPowers", "powers_at_centers"]

_SPREAD = 0.6  # of the centres, in outputs as known
_NEARER = 0.9  # times the best reach along a few lines: truncation is worse along others
_ROUNDS, _SOME, _ALL = 30, 0.5, 0.9  # Gauss-Newton steps, and misfits over the last ones that end those on some and all
_ATTEMPTS, _DELTAS, _GAP = 6, 0.3, 0.2  # starts, their deviation after the first, and gap that ends this
_LONGEST, _STEP = 0.3, 1e-6  # of a step in deltas, and of its derivatives
_STARTS, _FARTHEST = 300, 0.05  # of powers, and how far from the rows' space they may be
_FULL = 0.5  # part of the rows that the units not found may be


@dataclass(frozen=True)
class CenterPowers:
    """What Taylor coefficients at many places tell of the second layer.

    Attributes
    ----------
    rows : ndarray of shape (k, n)
        Columns of length 1, for the units found.
    deltas : ndarray of shape (2, k)
        See `Shallow`, as all that follows.
    stretch : ndarray of shape (k,)
    outputs : ndarray of shape (2 n_c, k)
        Of the free units at the centres, those in cell 0 first.
    coefficients : ndarray of shape (2 n_c, n)
        Of the powers of rows, along the direction of their output weights.
    order : int
        p.
    gap : float
        Largest singular value that should be none over the smallest that is one.
    """

    rows: np.ndarray
    deltas: np.ndarray
    stretch: np.ndarray
    outputs: np.ndarray
    coefficients: np.ndarray
    order: int
    gap: float


def powers_at_centers(downstream, cells, rule, n_centres, n_units):
    """Rows, shifts and lengths that make Taylor coefficients at all centres sums of m_2 powers.

    Parameters
    ----------
    downstream : Downstream
    cells : OppositeRegions
    rule : TaylorRule
        With order p and the largest reach.
    n_centres : int
        In each cell.
    n_units : int
        m_2.

    Returns
    -------
    CenterPowers
        Of m_2 units or fewer.

    Raises
    ------
    NotIdentified
        If less than half of the units are found.

    Notes
    -----
    In true outputs the coefficients of order p, at whatever place, are sums of ``v_j (x) W_j^{(x) p}``, v_j being
    a unit's weights to all outputs, which are the same everywhere: with m_L outputs that space has m_L times as many
    dimensions as there are powers, and a lower order tells all units, with less rounding. Deltas and lengths are found
    by Gauss-Newton on the singular values beyond the m_2-th, to first order ``U_2^T R V_2`` for the matrix R of all
    centres, beginning with deltas that are 0 and the same in both cells: as hyperplanes lie in the middle of their
    units' steps, these are small. Where that leaves no gap, random ones are tried.
    """
    T = np.arctanh(downstream.rng.uniform(-_SPREAD, _SPREAD, (n_centres, len(cells.free))))
    T[0] = 0.0
    patch = cells.patch(T)
    rule, _ = choose_reach(downstream.query, patch, TanhChart(), rule, downstream.rng)
    tensors = taylor_coefficients(downstream.query, patch, TanhChart(), replace(rule, reach=_NEARER * rule.reach))
    coordinates = _Coordinates(T, tensors, n_units, downstream.look_at_the_time)
    x = coordinates.found(downstream.rng)
    rows = coordinates.rows(x)
    s, Vt = np.linalg.svd(rows, full_matrices=False)[1:]
    found = _powers(Vt[:n_units].T, (downstream.n_outputs, T.shape[1], rule.order), downstream.rng)
    if len(found.vectors) < _FULL * n_units:
        raise NotIdentified(
            "second layer", "incomplete", f"{len(found.vectors)} of {n_units} powers were found at {n_centres} centres"
        )
    if len(found.vectors) == n_units:
        found = fitted_powers(found, rows)
    C = np.linalg.lstsq(found.flat.T, rows.T, rcond=None)[0].T / coordinates.weights[:, None]
    deltas, stretch = coordinates.split(x)
    gap = float(s[n_units] / max(s[n_units - 1], np.finfo(float).tiny))
    return CenterPowers(found.vectors.T, deltas, stretch, coordinates.outputs(x), C, rule.order, gap)


def _powers(basis, shape, rng):
    """Rows and output weights, of a shape (m_L, k, p), whose powers lie in a subspace."""
    m_L, k, order = shape
    if m_L > 1:
        return find_output_powers(basis, m_L, k, order, rng, farthest=_FARTHEST)
    vectors = find_symmetric_powers(basis, k, order, rng, n_starts=_STARTS, farthest=_FARTHEST).vectors
    return OutputPowers(vectors, np.ones((len(vectors), 1)), order)


class _Coordinates:
    """Deltas in both cells (their mean and half their difference) and lengths, by what is left of m_2 powers."""

    def __init__(self, T, tensors, n_units, before_a_step=lambda: None):
        self.T, self.tensors, self.n_units, self.k = T, tensors, n_units, T.shape[1]
        self.before_a_step = before_a_step
        slopes = 1.0 - np.tanh(np.concatenate([T, T])) ** 2
        self.weights = np.prod(slopes, axis=1) ** ((len(tensors) - 1) / self.k)

    def split(self, x):
        """Deltas (2, k) and stretch (k,)."""
        mean, stretch, half = np.split(x, 3)
        return np.stack([mean + half, mean - half]), 1.0 + stretch

    def outputs(self, x):
        """At the centres, (2 n_c, k)."""
        deltas, stretch = self.split(x)
        return np.tanh(np.concatenate([self.T * stretch + delta for delta in deltas]))

    def rows(self, x):
        """Highest coefficients of all outputs, weighted by about what their errors are, (2 n_c, m_L d)."""
        C = coefficients_in_outputs(self.tensors, self.outputs(x), self.split(x)[1])
        return C.reshape(len(C), -1) * self.weights[:, None]

    def found(self, rng):
        """Where singular values beyond the m_2-th are least, from deltas 0 and, if that has no gap, random ones."""
        best, least = None, np.inf
        for attempt in range(_ATTEMPTS):
            start = np.zeros(3 * self.k)
            start[: self.k] = (_DELTAS if attempt else 0.0) * rng.standard_normal(self.k)
            x, size = self.improved(start)
            best, least = (x, size) if size < least else (best, least)
            s = np.linalg.svd(self.rows(best), compute_uv=False)
            if s[self.n_units] < _GAP * s[self.n_units - 1]:
                break
        return best

    def improved(self, x):
        """Gauss-Newton steps, deltas the same in both cells first, then all; and what singular values are left."""
        last, n_open, best = np.inf, self.k, x
        for _ in range(_ROUNDS):
            self.before_a_step()
            U, _, Vt = np.linalg.svd(self.rows(x), full_matrices=True)
            left, right = U[:, self.n_units :].T, Vt[self.n_units :].T
            E = left @ self.rows(x) @ right
            size = np.linalg.norm(E)
            best = x if size < last else best
            if size > _ALL * last and n_open == len(x):
                break
            n_open = len(x) if size > _SOME * last else n_open
            last = min(size, last)
            J = [left @ ((self.rows(x + e) - self.rows(x - e)) / (2.0 * _STEP)) @ right for e in self._steps(n_open)]
            step = np.linalg.lstsq(np.stack([column.ravel() for column in J], axis=1), -E.ravel(), rcond=None)[0]
            x = x.copy()
            x[:n_open] += np.clip(step, -_LONGEST, _LONGEST)
        return best, last

    def _steps(self, n_open):
        """Differences for the derivatives, (n_open, 3 k)."""
        return _STEP * np.eye(3 * self.k)[:n_open]
