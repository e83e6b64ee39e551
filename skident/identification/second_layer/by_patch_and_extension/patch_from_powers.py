"""All of the network on one patch, where rows of the second layer are known there up to their lengths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.linalg import symmetric_power
from skident.optim import DenseNormalEquations, levenberg_marquardt
from skident.oracle import NotIdentified

from ..assembling import preactivations_of
from ..kernel.charts import ErfChart, TanhChart
from ..kernel.curves import fit_curve, taylor_term
from ..kernel.patch import SATURATED, Patch
from ..kernel.taylor import taylor_coefficients
from .known_patch import KnownPatch
from .known_units import KnownUnits
from .saturation_region import Cell, spread_points

__all__ = ["known_patch_from_powers", "n_queries_of_patch"]

_CENTRES, _MORE = 12, 5  # in a cell, for one output, and how many more where there are more unknown
_OUTPUTS, _NEARER = 0.5, 0.7  # of free units at centres, at most, and times the reach that serves at their middle
_LOWEST = 3  # coefficients that count where cells are compared
_ANSWERS, _STEPS = 4.0, 200  # an unknown of the fit that follows, and its steps at most
_LARGEST, _CLIPPED = 10.0, (3.0, 4.0, 5.0)  # logarithm of a length, and shift: at most, and at first, the best of these
_EXPLAINED = 1e-4  # misfit of it from which rows and shifts of first-layer units may be fitted too
_LEAST = 1e-13  # part of the largest singular value that output weights use


def n_queries_of_patch(rule, n_free, n_outputs):
    """Rows that this asks.

    Parameters
    ----------
    rule : TaylorRule
    n_free, n_outputs : int

    Returns
    -------
    int
    """
    return _n_centres(n_outputs) * rule.n_queries(n_free)


def _n_centres(n_outputs):
    return _MORE + int(np.ceil(_CENTRES / n_outputs))


def known_patch_from_powers(downstream, first):
    """Lengths, shifts and output weights of second-layer units on one patch.

    Parameters
    ----------
    downstream : Downstream
    first : FirstPatchPowers
        Rows at the units that are free there, up to lengths.

    Returns
    -------
    KnownPatch
        Good to a few digits: `extend_to_all_units` begins with a fit.

    Raises
    ------
    NotIdentified
        If the other units are saturated nowhere, or no lengths explain the answers.

    Notes
    -----
    In one cell, at centres h where free units have other outputs than in their middle, coefficients of the powers are
    ``v_k r_k^p g^(p)(r_k w_k . h + c_k) / p!``: `fit_curve`. Then (r, c) of all units are fitted to answers of the
    cell, v eliminated. The cell is one where no unit is much nearer to saturation than it is elsewhere.
    """
    g, k, patch = downstream.activation, len(first.free), first.sample.patch
    cell = patch.some([_cell_where_all_move(first, SATURATED[g])])
    moves = cell.moves if cell.moves.ndim == 2 else cell.moves[0]
    H = downstream.rng.uniform(-_OUTPUTS, _OUTPUTS, (_n_centres(downstream.n_outputs), k))
    T = preactivations_of(g, H) - preactivations_of(g, first.theta)
    centres = Patch(patch.free, patch.others, moves, cell.points + T @ moves, np.tile(cell.levels, (len(T), 1)))
    lengths, shifts = _curves(downstream, first, centres, H)
    signs = np.zeros(downstream.shape[1])
    signs[patch.others] = np.sign(cell.levels[0])
    nothing = np.zeros((len(lengths), downstream.n_outputs)), np.zeros(downstream.n_outputs)
    return _fitted(
        downstream, KnownPatch(first.free, first.theta, cell.points[0], signs, first.rows, shifts, *nothing), lengths
    )


def _curves(downstream, first, centres, H):
    """Lengths and shifts (m_2,) of second-layer units from the powers' coefficients at centres of one cell."""
    order, Phi, C = first.rule.order, symmetric_power(first.rows.T, first.rule.order), []
    rule = replace(first.rule, reach=_NEARER * first.rule.reach)
    for i, h in enumerate(H):
        chart = TanhChart() if downstream.theta is None else ErfChart(h)
        tensors = taylor_coefficients(downstream.query, centres.some([i]), chart, rule)
        C.append(np.linalg.lstsq(Phi.T, chart.coefficients(tensors, h, order)[0].T, rcond=None)[0].T)
    X, C, term = H @ first.rows, np.array(C), taylor_term(downstream.activation, order)
    curves = [fit_curve(X[:, j], C[:, :, j], order, term) for j in range(X.shape[1])]
    return np.array([c.length for c in curves]), np.array([c.shift for c in curves])


def _cell_where_all_move(first, margin):
    """The point of the patch where no second-layer unit is much nearer to saturation than it is elsewhere."""
    saturated = np.all(np.abs(first.sample.patch.levels) > margin, axis=1)
    if not saturated.any():
        raise NotIdentified("second layer", "unreachable", "nowhere on the patch are all other units saturated")
    sizes = np.linalg.norm(first.sample.coefficients, axis=1)
    lowest = np.sort(sizes / np.maximum(sizes.max(axis=0), np.finfo(float).tiny), axis=1)[:, :_LOWEST]
    return int(np.argmax(np.where(saturated, np.log(lowest + np.finfo(float).tiny).sum(axis=1), -np.inf)))


def _fitted(downstream, patch, lengths):
    """The same with lengths, shifts and output weights fitted to answers of the cell."""
    cell = Cell(downstream.weights, downstream.biases, patch.signs, downstream.activation, downstream.farthest)
    known = KnownUnits.from_patch(patch, downstream.activation)
    others = np.flatnonzero(patch.signs)
    m_2, m_L = patch.readout.shape
    n = int(np.ceil(_ANSWERS * (2 * m_2 + (m_2 + 1) * m_L) / m_L))
    X = spread_points(cell, known, others, patch.point[None], 2 * n, downstream.rng)[:n]
    H = known.activation((X @ downstream.weights + downstream.biases)[:, known.units] + known.shifts)
    problem = _Lengths(H @ patch.rows, downstream.query(X), known.activation)
    told = np.concatenate([np.log(lengths), patch.shifts])
    x0 = min((np.clip(told, -most, most) for most in _CLIPPED), key=problem.cost)
    result = levenberg_marquardt(problem.cost, problem.linearise, x0, max_iter=_STEPS, damping=1e-3)
    if not result.cost < _EXPLAINED**2:
        raise NotIdentified(
            "second layer",
            "residual",
            f"no lengths of second-layer units explain a cell: {np.sqrt(result.cost):.1e} is left",
        )
    V = problem.readout(result.x)
    return replace(patch, rows=patch.rows * np.exp(result.x[:m_2]), shifts=result.x[m_2:], readout=V[:-1], offset=V[-1])


class _Lengths:
    """``|g(x r + c) V - Y|^2`` by (log r, c), V with offset being the one that fits best."""

    def __init__(self, X, Y, activation):
        self.X, self.Y, self.activation = X, Y, activation
        self.size = max(float(np.linalg.norm(Y - Y.mean(axis=0))), np.finfo(float).tiny)

    def features(self, x):
        """Outputs with ones, and slopes."""
        m = self.X.shape[1]
        g, slopes = self.activation.jet(self.X * np.exp(np.minimum(x[:m], 50.0)) + x[m:], 1)
        return np.column_stack([g, np.ones(len(g))]), slopes

    def readout(self, x):
        """V and offset (m_2 + 1, m_L)."""
        return np.linalg.lstsq(self.features(x)[0], self.Y, rcond=_LEAST)[0]

    def cost(self, x):
        """Sum of squares."""
        if not np.abs(x).max() < _LARGEST:
            return np.inf
        return float(np.sum((self.features(x)[0] @ self.readout(x) - self.Y) ** 2)) / self.size**2

    def linearise(self, x):
        """Gauss-Newton model with V eliminated, after Kaufman."""
        G, slopes = self.features(x)
        m = self.X.shape[1]
        U, s, _ = np.linalg.svd(G, full_matrices=False)
        U = U[:, s > _LEAST * s[0]]
        V = self.readout(x)
        B = slopes[..., None] * V[:-1] / self.size
        J = np.concatenate([B * (self.X * np.exp(x[:m]))[..., None], B], axis=1)
        J = J - np.einsum("nk,kjp->njp", U, np.einsum("nk,njp->kjp", U, J))
        left = (G @ V - self.Y) / self.size
        J = np.swapaxes(J, 1, 2).reshape(self.Y.size, -1)
        return DenseNormalEquations(J.T @ J, J.T @ left.ravel())
