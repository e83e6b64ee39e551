"""The span of the first layer's weights, from Jacobians at random points: further queries stay within it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from skident.budget.constants import TINY
from skident.linalg import lapack, svd
from skident.network import FeedforwardNetwork

from ...constants import CANDIDATES, FAR_RADII, RANK_TOL
from .shared_jacobians import Space, jacobians_at

__all__ = ["InputSpan", "SpanSearch"]

_SPAN_RADII = (30.0, 100.0, 10.0, 300.0)  # standard deviations of random points: far out, few units always rest
_FIRST_STEP = 1.0  # first step of a Jacobian, in units of the inputs; it shrinks until the outputs are straight
_MORE_ROWS = 1.05  # rows of all Jacobians over the dimension of the span
_TRIED_PAIRS = 2  # of points without a Jacobian, after which there is none
_LAST_JACOBIANS = 1  # that must leave it as it is: where most units rest, all rows may have few dimensions
_NARROW = 0.9  # dimension over that of the inputs from which nothing is saved
_MORE_POINTS = 1.2  # outputs per direction over units of the first layer, at most (budget)
_POOL = 100  # points of which the fewest are chosen that determine all units; they are not queried
_DETERMINED = 1e-2  # smallest singular value, columns scaled to norm 1, of points that determine all units
_FAR = 1e3  # steps outside of the span, in units of the inputs: all units hardly change there
_TRIES = 4  # steps, each a tenth of the one before, of which one must be explained by the first layer (budget)
_EXPLAINED = 1e-3  # relative residual of the outputs' changes: an activation boundary that was crossed leaves more
_NOISE = 30.0  # errors of the outputs that are rounding


@dataclass(frozen=True)
class InputSpan:
    """The span of the weights of the first layer's units: an orthonormal `basis` (D, r), accurate to about 1e-10."""

    basis: np.ndarray

    def space(self, space):
        """The `Space` of coordinates in the basis, of a `Space` of all inputs."""
        r = self.basis.shape[1]
        return Space(lambda C: space.query(C @ self.basis.T), r, space.output_error, np.sqrt(r), space.reach)

    @classmethod
    def of(cls, network):
        """The span of a network's first layer, or None if it is nearly the whole space."""
        W = network.weights[0]
        return cls(lapack.qr(W)[0]) if W.shape[1] < _NARROW * W.shape[0] else None

    def within(self, network):
        """A network of all inputs in coordinates of the basis."""
        return network.with_parameters([self.basis.T @ network.weights[0], *network.weights[1:]], network.biases)

    def in_all_inputs(self, space, network, rng):
        """The network in all inputs, from one in the coordinates of the basis.

        The weights' parts outside of the span follow from long steps orthogonal to it, which change the units by
        little: about ``1.1 m_1 / m_L`` points, with one query for each of the other ``D - r`` directions.
        """
        W = self.basis @ network.weights[0]
        others = lapack.null_space(self.basis.T)  # (D, D - r)
        whole = FeedforwardNetwork([W, *network.weights[1:]], list(network.biases), "relu")
        points, B = _points_where_all_units_act(self.space(space), network, rng)
        for step in _FAR * space.unit * 10.0 ** -np.arange(_TRIES):
            changes = np.concatenate([_changes(space, c @ self.basis.T, step * others) for c in points])
            E = lapack.lstsq(B, changes, rcond=None)[0] / step  # (m_1, D - r)
            error = _NOISE * space.error_at(step * others[:, 0], changes)
            if np.abs(B @ E * step - changes).max() < max(error, _EXPLAINED * np.abs(changes).max()):
                return whole.with_parameters([W + others @ E.T, *whole.weights[1:]], whole.biases)
        return whole


class SpanSearch:
    """The span of the first layer's weights of a model of ReLU units in a `Space`, from more and more Jacobians.

    About ``1.05 r / m_L`` Jacobians for a span of dimension r, with ``D + 12`` queries each.
    """

    def __init__(self, space, rng):
        self.space, self.rows, self.tol = space, [], RANK_TOL
        self.points, self.rng = _opposite_points(space.n_coordinates, rng), rng

    def extended(self, n_jacobians):
        """The `InputSpan` of so many Jacobians or more, of which the last adds nothing; None if it is not narrow."""
        D, rank = self.space.n_coordinates, 0
        while True:
            before = rank
            if not self._measure():
                return None
            basis, R = lapack.scipy_qr(np.concatenate(self.rows).T, mode="economic", pivoting=True)[:2]
            rank = int(np.sum(np.abs(np.diag(R)) > self.tol * np.abs(R[0, 0])))
            if rank >= _NARROW * D:
                return None
            enough = R.shape[1] >= _MORE_ROWS * rank and len(self.rows) >= n_jacobians
            if enough and (rank == before or self._rank(len(self.rows) - _LAST_JACOBIANS) == rank):
                return InputSpan(basis[:, :rank])

    def _measure(self):
        """Measure the Jacobians at two further points, or more if none is confirmed; whether one is, and not zero."""
        n = len(self.rows)
        for _ in range(_TRIED_PAIRS):
            points = next(self.points)
            for J in jacobians_at(
                self.space, self.space.within_reach(points), np.full(len(points), _FIRST_STEP), self.rng
            ):
                size = np.linalg.norm(J.value)
                if J.confirmed and size > 0.0:
                    self.rows.append(J.value / size)
                    self.tol = max(self.tol, J.error * np.sqrt(J.value.size) / size)
            if len(self.rows) > n:
                return True
        return False

    def _rank(self, n):
        """Rank of the first n Jacobians."""
        R = lapack.scipy_qr(np.concatenate(self.rows[:n]).T, mode="r", pivoting=True)[0]
        return int(np.sum(np.abs(np.diag(R)) > self.tol * np.abs(R[0, 0])))


def _opposite_points(D, rng):
    """A random point and its opposite (2, D), without end: most units are active at one of the two."""
    for radius in itertools.cycle(_SPAN_RADII):
        point = radius * rng.standard_normal(D)
        yield np.stack([point, -point])


def _changes(space, point, moves):
    """Changes (m_L, k) of the outputs from a point (D,) by moves (D, k)."""
    F = space.query(point + np.vstack([np.zeros(len(point)), moves.T]))
    return (F[1:] - F[0]).T


def _points_where_all_units_act(space, network, rng):
    """The fewest points (n, r) of a pool that determine all units of the first layer, and derivatives (n m_L, m_1).

    A unit that acts on no output at any of them, because units behind it are off, keeps the error of its weights. Each
    point is the one whose derivatives are farthest from the span of those before, or act on what is determined least.
    """
    points = _far_from_boundaries(space, network, _POOL, rng)
    B = _derivatives_by_first_layer(network, points)
    _, p, m = B.shape
    sizes = np.linalg.norm(B, axis=(0, 1))
    scaled = left = B / np.where(sizes > 0.0, sizes, 1.0)
    chosen = []
    for _ in range(int(np.ceil(_MORE_POINTS * m / p)) + 1):
        chosen.append(int(np.argmax(np.linalg.norm(left, axis=(1, 2)))))
        if len(chosen) * p < m:
            Q = lapack.orth(left[chosen[-1]].T)
            left = left - left @ Q @ Q.T
            continue
        rows = scaled[chosen].reshape(-1, m)
        values, V = svd(rows / np.maximum(np.linalg.norm(rows, axis=0), TINY), full_matrices=False)[1:]
        if values[-1] > _DETERMINED:
            break
        left = (scaled @ V[-1])[:, :, None]
    return points[chosen], B[chosen].reshape(-1, m)


def _derivatives_by_first_layer(network, X):
    """Derivatives (n, m_L, m_1) of the outputs by the pre-activations of the first layer at X (n, D)."""
    m = len(network.biases[0])
    behind = FeedforwardNetwork([np.eye(m), *network.weights[1:]], [np.zeros(m), *network.biases[1:]], "relu")
    return behind.jacobian(X @ network.weights[0] + network.biases[0])


def _far_from_boundaries(space, network, n, rng):
    """Random points (n, D), each the one of several on which no unit is near its activation boundary."""
    radii = np.array(FAR_RADII)[np.arange(n * CANDIDATES) % len(FAR_RADII)]
    X = space.within_reach(radii[:, None] * rng.standard_normal((n * CANDIDATES, network.n_inputs)))
    H, room = X, np.full(len(X), np.inf)
    for W, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
        Z = H @ W + b
        room = np.minimum(room, np.min(np.abs(Z) / np.linalg.norm(W, axis=0), axis=1))
        H = np.maximum(Z, 0.0)
    best = room.reshape(n, CANDIDATES).argmax(axis=1)
    return X.reshape(n, CANDIDATES, -1)[np.arange(n), best]
