"""Units of one ReLU layer up to their signs: from gradient jumps, from positions, and by least squares.

As ``relu(z) = (z + |z|) / 2``, a network with one hidden layer is ``f(u) = a + g . u + sum_i c_i |w_i . u + b_i| / 2``.
Across the hyperplane of unit i the gradient jumps by the rank-one matrix ``c_i w_i^T``, which gives the unit up to its
sign.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from skident.budget.constants import FINE_RANK_TOL
from skident.linalg import lapack, svd
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from ..kernel.gradient import gradients_at
from ..kernel.lines import meeting_point
from ..kernel.output_error import Probe
from ..kernel.robust_fit import fit_plane_near

# Units from gradient jumps.
_RANK_ONE_TOL = 16.0  # errors of the gradients that a second singular value may have
# Matching units with a line.
_POSITION_TOL = 1e-10  # of a crossing, over its distance from the center: rounding of biases far out
_DIRECTION_ERRORS = 10.0  # errors of a unit's direction that its crossing may be off by
_JUMP_TOL = 1e-3  # relative difference of jumps of one unit
_JUMP_ERRORS = 8.0  # errors of a scanned jump, as for `_JUMP_TOL`
_END_MARGIN = 0.005  # part of a line at either end where crossings are not expected
# Locating units.
_SPARE_POSITIONS = 8  # points on a hyperplane beyond its D unknowns
_ATTEMPTS = 3  # of locating them, in windows a tenth as wide each
_WINDOW = 3e-4  # half width in which a crossing is located, in standard deviations of the inputs
_WINDOW_ERRORS = 30.0  # `_WINDOW` in errors of the unit's direction
_POSITION_ERROR = 4.0  # of a crossing, in errors of the outputs over the jump
_FOREIGN_JUMP = 1e-9  # relative difference of a jump that another unit within the window makes
_CHUNK_NUMBERS = 2**22  # entries of the largest array, 32 MiB


@dataclass
class ReLUUnits:
    """Hidden units up to their signs."""

    weights: np.ndarray  # (D, m_1), unit vectors as columns
    biases: np.ndarray  # (m_1,)
    outgoing: np.ndarray  # (m_1, m_L), jump of the gradient along the unit vector
    errors: np.ndarray  # (m_1,), of the unit vectors

    def __len__(self):
        return len(self.biases)

    def take(self, index):
        """The units of an index array, mask or slice."""
        return ReLUUnits(self.weights[:, index], self.biases[index], self.outgoing[index], self.errors[index])

    def joined(self, other):
        """These units and others."""
        return ReLUUnits(
            np.hstack([self.weights, other.weights]),
            np.concatenate([self.biases, other.biases]),
            np.concatenate([self.outgoing, other.outgoing]),
            np.concatenate([self.errors, other.errors]),
        )

    def planes(self, length_scale):
        """Hyperplanes (m_1, D + 1) as unit vectors, at inputs of norm about `length_scale`."""
        planes = np.column_stack([self.weights.T, self.biases / length_scale])
        return planes / np.linalg.norm(planes, axis=1, keepdims=True)

    @property
    def output_errors(self):
        """Errors (m_1,) that those of the directions make in the linear part of the outputs."""
        return np.linalg.norm(self.outgoing, axis=1) * self.errors


@dataclass(frozen=True)
class ShallowNetwork:
    """A network with one hidden layer, of standardized inputs.

    Its last `n_skips` hidden units are always active, or pairs ``relu(z) - relu(-z)``: they only make a linear part of
    the outputs that no signs of the other units explain. The outputs are the same, the weights may not be those of the
    black box.
    A `residual` far above 1 is the effect of units too small to be detected.
    """

    network: FeedforwardNetwork
    sample: Any = None  # `FitSample` of the last fit, if outputs have errors
    n_skips: int = 0
    residual: float = 1.0  # of the fit, in standard deviations of the outputs' errors


class ResidualProbe(Probe):
    """A probe's outputs minus those of known units, accurate to rounding: small units are alone on what is left.

    `known`: `ReLUUnits`, with outgoing weights in the probe's units, or a network of the oracle's outputs.
    """

    def __init__(self, probe, known):
        super().__init__(probe.oracle, probe.output_error, probe.exact)
        self._known = known

    def __call__(self, U):
        return super().__call__(U) - self._known_outputs(U)

    def query(self, U):
        """Residual outputs (n, m_L) at points (n, D), and their accuracy (n,)."""
        F, tol = super().query(U)
        return F - self._known_outputs(U), 2.0 * tol

    def _known_outputs(self, U):
        if isinstance(self._known, FeedforwardNetwork):
            return self._known(U) / self.output_error
        return 0.5 * np.abs(U @ self._known.weights + self._known.biases) @ self._known.outgoing


def units_on_line(probe, line, scan, which, rng, accurate=False):
    """The units whose hyperplanes cross a line, from the jumps of the gradient; and an anchor for the linear part.

    One per boundary of a `LineScan`, for the indices `which`, oriented along the line; the error is infinite unless the
    jump has rank one. The anchor is a point (D,) of the line, the gradient (m_L, D) there, and its error: of the most
    accurate piece. ``D + 2`` queries per linear piece next to one of the boundaries, and ``2 D`` more for central
    differences, see `gradients_at`.
    """
    pieces = _pieces(scan, line, probe.length_scale)
    used = np.unique(np.concatenate([which, which + 1]))
    # Not the middle: between the two boundaries of a unit that clips, the outputs are odd about it.
    low, high = pieces[used].T
    t = low + rng.uniform(0.35, 0.65, len(used)) * (high - low)
    centers = line.at(t)
    gradients, errors = gradients_at(probe, centers, np.minimum(t - low, high - t), rng, accurate)
    left, right = np.searchsorted(used, which), np.searchsorted(used, which + 1)
    units = _rank_one(gradients[right] - gradients[left], errors[left] + errors[right], line.direction)
    units.biases = -np.sum(units.weights.T * line.at(scan.positions[which]), axis=1)
    best = int(np.argmin(errors))
    return units, (centers[best], gradients[best], errors[best])


def _pieces(scan, line, length_scale):
    """Linear pieces (k + 1, 2) between boundaries: one next to an unresolved interval ends there."""
    t, ends = scan.positions, line.ends
    low, high = np.concatenate([[ends[0]], t]), np.concatenate([t, [ends[1]]])
    for a, b in scan.unresolved:
        piece = np.searchsorted(t, 0.5 * (a + b))
        # The longer part remains.
        if a - low[piece] > high[piece] - b:
            high[piece] = min(a, high[piece])
        else:
            low[piece] = max(b, low[piece])
    # Outer pieces: other hyperplanes are about as far away as the last boundary is from the center.
    low[0] = max(low[0], high[0] - 2.0 * (length_scale + abs(high[0])))
    high[-1] = min(high[-1], low[-1] + 2.0 * (length_scale + abs(low[-1])))
    return np.column_stack([low, high])


def _rank_one(jumps, size, direction):
    """Units without biases from gradient jumps (q, m_L, D), with errors of norm (q,) in every row."""
    s, Vt = svd(jumps, full_matrices=False)[1:]
    w = Vt[:, 0] * np.where(Vt[:, 0] @ direction < 0, -1.0, 1.0)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.where(np.isfinite(size) & (s[:, 0] > 0), size / s[:, 0], np.inf)
    if s.shape[1] > 1:
        errors = np.where(s[:, 1] > _RANK_ONE_TOL * np.sqrt(jumps.shape[1]) * size, np.inf, errors)
    return ReLUUnits(w.T, np.zeros(len(w)), np.einsum("qmd,qd->qm", jumps, w), errors)


def match_units(units, line, scan, reliable_tol=1e5):
    """Match units with the boundaries on a line: a mask (m_1,) of the units missed, and indices (m_1,) of the others'.

    A unit is missed if a boundary of known size is expected at a known place of the line and is not there; the index is
    -1 if there is none. Units whose boundary is smaller than `reliable_tol` are never missed.
    """
    if len(units) == 0:
        return np.zeros(0, dtype=bool), np.zeros(0, dtype=int)
    across = units.weights.T @ line.direction
    allowed = _POSITION_TOL + _DIRECTION_ERRORS * units.errors
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -(units.biases + units.weights.T @ line.origin) / across
        slack = allowed * (1.0 + np.linalg.norm(line.at(t), axis=1)) / np.abs(across)
    jumps = units.outgoing * np.abs(across)[:, None]  # of the slope along the line
    low, high = line.ends
    margin = _END_MARGIN * (high - low)
    expected = np.abs(jumps).max(axis=1) * np.sqrt(len(line.origin)) > reliable_tol
    expected &= (t > low + margin) & (t < high - margin)
    for a, b in scan.unresolved:
        expected &= (t < a - slack) | (t > b + slack)
    if len(scan.positions) == 0:
        return expected, np.full(len(units), -1)
    sizes = np.abs(units.outgoing).max(axis=1, keepdims=True)
    jump_slack = _JUMP_TOL * np.abs(jumps) + allowed[:, None] * sizes
    distance = np.abs(t[:, None] - scan.positions)
    other = np.abs(jumps[:, None] - scan.jumps) > jump_slack[:, None] + _JUMP_ERRORS * scan.jump_errors[:, None]
    distance[np.any(other, axis=2)] = np.inf
    nearest = distance.argmin(axis=1)
    same = distance[np.arange(len(t)), nearest] <= slack + scan.position_errors[nearest]
    return expected & ~same, np.where(same, nearest, -1)


def linear_part(units, point, gradient):
    """``2 g`` (m_L, D) of ``f = a + g . u + sum_i c_i |z_i| / 2``, from the gradient (m_L, D) at a point (D,)."""
    signs = np.sign(units.weights.T @ point + units.biases)
    return 2.0 * gradient - (units.outgoing.T * signs) @ units.weights.T


def refine_units(probe, units, U):
    """Units and linear part ``2 g`` (m_L, D) by linear least squares on outputs at U (n, D), without their signs.

    The sign s_i(u) of every pre-activation is known, and then ``f(u) = (a, g) . (1, u) + sum_i s_i(u) V_i (u, 1) / 2``
    is linear in a, g and ``V_i = c_i (w_i, b_i)^T``. Needs points on both sides of every hyperplane and
    ``n > (m_1 + 1) (D + 1)``; raises `NotIdentified` if no point is between two hyperplanes.
    """
    n, D = U.shape
    m = len(units)
    Z = np.column_stack([U, np.ones(n)])
    signs = np.where(U @ units.weights + units.biases > 0, 0.5, -0.5)
    design = np.concatenate([Z[:, None], signs[:, :, None] * Z[:, None]], axis=1).reshape(n, -1)
    scale = np.linalg.norm(design, axis=0)
    Q, R = lapack.scipy_qr(design / scale, mode="economic")
    diagonal = np.abs(np.diag(R))
    if diagonal.min() < FINE_RANK_TOL * diagonal.max():
        raise NotIdentified("activation boundaries", "rank", "the points do not separate the units.")
    V = scipy.linalg.solve_triangular(R, Q.T @ probe(U)) / scale[:, None]
    V = np.swapaxes(V.reshape(m + 1, D + 1, -1), 1, 2)  # (m_1 + 1, m_L, D + 1)
    wb = svd(V[1:], full_matrices=False)[2][:, 0]
    wb /= np.linalg.norm(wb[:, :D], axis=1, keepdims=True)
    wb *= np.where(np.sum(wb[:, :D] * units.weights.T, axis=1) < 0, -1.0, 1.0)[:, None]
    outgoing = np.einsum("kmd,kd->km", V[1:], wb) / np.sum(wb**2, axis=1)[:, None]
    return ReLUUnits(wb[:, :D].T, wb[:, D], outgoing, units.errors), 2.0 * V[0, :, :D]


def locate_units(probe, units, points, rng):
    """Units refined from located crossings, and the share (m_1,) of the points whose outputs show the boundary.

    Two outputs on either side of a hyperplane, along its normal, give two linear pieces that meet on it. ``D + 8`` such
    positions, around some of the points (n, D), give the hyperplane by weighted least squares: more accurate than
    gradients, at ``4 (D + 8)`` queries per unit, up to three times as many if outputs are lost. Units with fewer than
    ``D + 2`` positions are left as they were. The share is about 1 for a unit of a network with one hidden layer.
    """
    D, m = units.weights.shape
    W, b, errors, shares = units.weights.copy(), units.biases.copy(), units.errors.copy(), np.ones(m)
    size = max(1, _CHUNK_NUMBERS // (4 * (D + _SPARE_POSITIONS) * D))
    for i in range(0, m, size):
        for k, (X, error, n_seen) in enumerate(_crossings(probe, units.take(slice(i, i + size)), points, rng), start=i):
            shares[k] = len(X) / max(n_seen, 1)
            if len(X) < D + 2:
                continue
            fit = fit_plane_near(X, error, W[:, k], b[k])
            if fit is not None:
                W[:, k], b[k], errors[k] = fit.normal, fit.offset, max(fit.residual, 1.0) * fit.normal_error
    return ReLUUnits(W, b, units.outgoing, errors), shares


def _crossings(probe, units, points, rng):
    """For every unit points (n, D) on its hyperplane, their errors (n,), and how many points had outputs."""
    D, m = units.weights.shape
    found = [[] for _ in range(m)]
    n_seen = np.zeros(m, dtype=int)
    for attempt in range(_ATTEMPTS):
        short = [k for k in range(m) if sum(len(part[0]) for part in found[k]) < D + 2 + _SPARE_POSITIONS // 2]
        if len(short) == 0:
            break
        which = np.repeat(np.array(short, dtype=int), D + _SPARE_POSITIONS)
        W = units.weights.T[which]
        U = points[rng.randint(len(points), size=len(which))] * rng.uniform(0.5, 1.0, (len(which), 1))
        U = U - (np.sum(U * W, axis=1) + units.biases[which])[:, None] * W
        distance = 1.0 + np.linalg.norm(U, axis=1)
        h = np.maximum(_WINDOW * 0.1**attempt, _WINDOW_ERRORS * units.errors[which] * distance)
        s, error, seen, good = _meet(probe, U, W, h, units.outgoing[which], units.errors[which])
        n_seen += np.bincount(which[seen], minlength=m)
        for k in short:
            mine = good & (which == k)
            found[k].append((U[mine] + s[mine, None] * W[mine], error[mine]))
    return [(*(np.concatenate(part) for part in zip(*parts, strict=True)), n) for parts, n in zip(found, n_seen)]


def _meet(probe, U, W, h, outgoing, errors):
    """Where outputs bend along normals (n, D) at points (n, D): distances, errors, masks of outputs and of bends."""
    F, tol = probe.query_block(U[:, None] + (np.array([-2.0, -1.0, 1.0, 2.0]) * h[:, None])[:, :, None] * W[:, None])
    tol = tol.max(axis=1)
    seen = np.isfinite(tol)
    tol = np.where(seen, tol, 1.0)
    left, right = (F[:, 1] - F[:, 0]) / h[:, None], (F[:, 3] - F[:, 2]) / h[:, None]
    s, jump = meeting_point(-h, F[:, 1], left, h, F[:, 2], right)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = _POSITION_ERROR * tol / np.linalg.norm(jump, axis=1)
    # Another unit within the window, however small, moves the crossing.
    allowed = (_FOREIGN_JUMP + _DIRECTION_ERRORS * errors) * np.abs(outgoing).max(axis=1)
    foreign = np.abs(jump - outgoing).max(axis=1) - allowed > _JUMP_ERRORS * tol / h
    return s, error, seen, seen & (np.abs(s) < h) & ~foreign
