"""Units of a ReLU layer from the kinks of the answers along lines.

As ``relu(z) = (z + |z|) / 2``, a network with one hidden layer is ``f(u) = a + g . u + sum_i c_i |w_i . u + b_i| / 2``.
Across the hyperplane of unit i the gradient jumps by the rank-one matrix ``c_i w_i^T``, which gives the unit up to its
sign.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from skident.oracle import NotIdentified

from ..kernel.gradient import gradients_at

__all__ = [
    "Line",
    "ReLUUnits",
    "linear_part",
    "match_kinks",
    "refine_units",
    "units_at_kinks",
]

_EPS = float(np.finfo(float).eps)


@dataclass
class ReLUUnits:
    """Hidden units up to their signs.

    Attributes
    ----------
    weights : ndarray of shape (D, m_1)
        Unit vectors as columns.
    biases : ndarray of shape (m_1,)
    outgoing : ndarray of shape (m_1, m_L)
        Jump of the gradient along the unit vector.
    errors : ndarray of shape (m_1,)
        Accuracy of the unit vectors.
    """

    weights: np.ndarray
    biases: np.ndarray
    outgoing: np.ndarray
    errors: np.ndarray

    def __len__(self):
        return len(self.biases)

    def take(self, index):
        """Some of the units.

        Parameters
        ----------
        index : ndarray
            Of integers or booleans.

        Returns
        -------
        ReLUUnits
        """
        return ReLUUnits(self.weights[:, index], self.biases[index], self.outgoing[index], self.errors[index])

    def joined(self, other):
        """These units and others.

        Parameters
        ----------
        other : ReLUUnits

        Returns
        -------
        ReLUUnits
        """
        return ReLUUnits(
            np.hstack([self.weights, other.weights]),
            np.concatenate([self.biases, other.biases]),
            np.concatenate([self.outgoing, other.outgoing]),
            np.concatenate([self.errors, other.errors]),
        )


@dataclass
class Line:
    """The points ``origin + t direction`` with ``|t| <= reach``, or ``low <= t <= high``.

    Attributes
    ----------
    origin, direction : ndarray of shape (D,)
        The direction has norm 1.
    reach : float or tuple of two float
        ``(low, high)`` where the line is no longer on one side than on the other.
    """

    origin: np.ndarray
    direction: np.ndarray
    reach: float | tuple

    @property
    def ends(self):
        """``(low, high)``."""
        return self.reach if isinstance(self.reach, tuple) else (-self.reach, self.reach)

    def at(self, t):
        """Points of the line.

        Parameters
        ----------
        t : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n, D)
        """
        return self.origin + t[:, None] * self.direction


def units_at_kinks(probe, line, kinks, which, rng, careful=False):
    """Units whose hyperplanes cross a line, from the jumps of the gradient.

    Parameters
    ----------
    probe : Probe
    line : Line
    kinks : LineKinks
        Of the probe's answers on the line.
    which : ndarray of shape (q,)
        The kinks to take.
    rng : numpy.random.RandomState
    careful : bool, default=False
        See `gradients_at`.

    Returns
    -------
    ReLUUnits
        One a kink, oriented along the direction; the error is infinite where the jump is not of rank one.
    anchor : tuple of ndarray of shape (D,), ndarray of shape (m_L, D) and float
        A point of the line, the gradient of the answers there, and its accuracy: where that is best.

    Notes
    -----
    ``D + 2`` queries for every straight piece next to one of the kinks, and ``2 D`` more for pieces where a kink came
    in between, careful ones, or where answers are not exact.
    """
    pieces = _pieces(kinks, line, probe.unit)
    used = np.unique(np.concatenate([which, which + 1]))
    # Not the middle: between the two bends of a unit that clips, the answers are odd about it.
    low, high = pieces[used].T
    middle = low + rng.uniform(0.35, 0.65, len(used)) * (high - low)
    centers = line.at(middle)
    gradients, errors = gradients_at(probe, centers, np.minimum(middle - low, high - middle), rng, careful)
    left, right = np.searchsorted(used, which), np.searchsorted(used, which + 1)
    units = _rank_one(gradients[right] - gradients[left], errors[left] + errors[right], line.direction)
    units.biases = -np.sum(units.weights.T * line.at(kinks.positions[which]), axis=1)
    best = int(np.argmin(errors))
    return units, (centers[best], gradients[best], errors[best])


def _pieces(kinks, line, unit):
    """Straight pieces between kinks (k + 1, 2): a piece next to an unresolved stretch ends there."""
    t, ends = kinks.positions, line.ends
    low, high = np.concatenate([[ends[0]], t]), np.concatenate([t, [ends[1]]])
    for a, b in kinks.unresolved:
        piece = np.searchsorted(t, 0.5 * (a + b))
        # The longer part remains.
        if a - low[piece] > high[piece] - b:
            high[piece] = min(a, high[piece])
        else:
            low[piece] = max(b, low[piece])
    # Outer pieces: hyperplanes are about as far from there as the last kink is from the centre.
    low[0] = max(low[0], high[0] - 2.0 * (unit + abs(high[0])))
    high[-1] = min(high[-1], low[-1] + 2.0 * (unit + abs(low[-1])))
    return np.column_stack([low, high])


def _rank_one(jumps, size, direction):
    """Unit vectors and outgoing weights from gradient jumps (q, m_L, D), with errors of norm (q,) in every row."""
    s, Vt = np.linalg.svd(jumps, full_matrices=False)[1:]
    w = Vt[:, 0] * np.where(Vt[:, 0] @ direction < 0, -1.0, 1.0)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.where(np.isfinite(size) & (s[:, 0] > 0), size / s[:, 0], np.inf)
    if s.shape[1] > 1:
        errors = np.where(s[:, 1] > 16.0 * np.sqrt(jumps.shape[1]) * size, np.inf, errors)
    return ReLUUnits(w.T, np.zeros(len(w)), np.einsum("qmd,qd->qm", jumps, w), errors)


def match_kinks(units, line, kinks, strong=1e5):
    """Which units a line confirms, by a kink at the right place and of the right size.

    Parameters
    ----------
    units : ReLUUnits
    line : Line
    kinks : LineKinks
    strong : float, default=1e5
        Size from which on a kink is seen on every line.

    Returns
    -------
    lost : ndarray of shape (m_1,)
        Units that should have a kink on the line, of a known size at a known place, and have none.
    met : ndarray of shape (m_1,)
        Index of every unit's kink, -1 where it has none.

    Notes
    -----
    Units whose kink is too faint to be seen on every line are never lost.
    """
    if len(units) == 0:
        return np.zeros(0, dtype=bool), np.zeros(0, dtype=int)
    across = units.weights.T @ line.direction
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -(units.biases + units.weights.T @ line.origin) / across
        slack = (1e-10 + 10.0 * units.errors) * (1.0 + np.linalg.norm(line.at(t), axis=1)) / np.abs(across)
    jumps = units.outgoing * np.abs(across)[:, None]  # of the slope along the line
    low, high = line.ends
    margin = 0.005 * (high - low)
    expected = np.abs(jumps).max(axis=1) * np.sqrt(len(line.origin)) > strong
    expected &= (t > low + margin) & (t < high - margin)
    for a, b in kinks.unresolved:
        expected &= (t < a - slack) | (t > b + slack)
    if len(kinks.positions) == 0:
        return expected, np.full(len(units), -1)
    sizes = np.abs(units.outgoing).max(axis=1, keepdims=True)
    allowed = 1e-3 * np.abs(jumps) + (1e-10 + 10.0 * units.errors[:, None]) * sizes
    distance = np.abs(t[:, None] - kinks.positions)
    other = np.abs(jumps[:, None] - kinks.jumps) > allowed[:, None] + 8.0 * kinks.errors[:, None]
    distance[np.any(other, axis=2)] = np.inf
    nearest = distance.argmin(axis=1)
    same = distance[np.arange(len(t)), nearest] <= slack + kinks.blurs[nearest]
    return expected & ~same, np.where(same, nearest, -1)


def linear_part(units, point, gradient):
    """What the gradient at a point is beyond the units' own: ``2 g`` for ``f = a + g . u + sum_i c_i |z_i| / 2``.

    Parameters
    ----------
    units : ReLUUnits
    point : ndarray of shape (D,)
    gradient : ndarray of shape (m_L, D)

    Returns
    -------
    ndarray of shape (m_L, D)
    """
    sides = np.sign(units.weights.T @ point + units.biases)
    return 2.0 * gradient - (units.outgoing.T * sides) @ units.weights.T


def refine_units(probe, units, U):
    """Units and linear part by linear least squares, without their signs.

    Which side of every hyperplane a point is on is known, and then
    ``f(u) = (a, g) . (1, u) + sum_i s_i(u) V_i (u, 1) / 2`` is linear in a, g and ``V_i = c_i (w_i, b_i)^T``.

    Parameters
    ----------
    probe : Probe
    units : ReLUUnits
        Accurate enough to tell the sides.
    U : ndarray of shape (n, D)
        Points on both sides of every hyperplane; ``n > (m_1 + 1) (D + 1)``.

    Returns
    -------
    ReLUUnits
    linear : ndarray of shape (m_L, D)
        ``2 g``.

    Raises
    ------
    NotIdentified
        If no point lies between two hyperplanes.

    Notes
    -----
    A QR decomposition of ``n`` by ``(m_1 + 1) (D + 1)`` numbers.
    """
    n, D = U.shape
    m = len(units)
    Z = np.column_stack([U, np.ones(n)])
    sides = np.where(U @ units.weights + units.biases > 0, 0.5, -0.5)
    design = np.concatenate([Z[:, None], sides[:, :, None] * Z[:, None]], axis=1).reshape(n, -1)
    scale = np.linalg.norm(design, axis=0)
    Q, R = scipy.linalg.qr(design / scale, mode="economic")
    diagonal = np.abs(np.diag(R))
    if diagonal.min() < 1e-10 * diagonal.max():
        raise NotIdentified("activation boundaries", "rank", "the points do not tell the units apart.")
    V = scipy.linalg.solve_triangular(R, Q.T @ probe(U)) / scale[:, None]
    V = np.swapaxes(V.reshape(m + 1, D + 1, -1), 1, 2)  # (m_1 + 1, m_L, D + 1)
    wb = np.linalg.svd(V[1:], full_matrices=False)[2][:, 0]
    wb /= np.linalg.norm(wb[:, :D], axis=1, keepdims=True)
    wb *= np.where(np.sum(wb[:, :D] * units.weights.T, axis=1) < 0, -1.0, 1.0)[:, None]
    outgoing = np.einsum("kmd,kd->km", V[1:], wb) / np.sum(wb**2, axis=1)[:, None]
    return ReLUUnits(wb[:, :D].T, wb[:, D], outgoing, units.errors), 2.0 * V[0, :, :D]
