"""The span of the first layer's weights, from Jacobians at random points: further queries stay within it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from skident.network import FeedforwardNetwork

from .shared_jacobians import Space, jacobians_at

__all__ = ["InputSpan", "find_input_span"]

_RADII = (10.0, 1.0, 30.0, 3.0)  # standard deviations of random points: far out, biases matter less and patterns vary
_STEP = 1.0  # first step of a Jacobian, in units of the inputs; it shrinks until the outputs are straight
_RANK_TOL = 1e-9  # pivot over the largest, below which it is rounding, if no Jacobian has a larger error
_MORE_ROWS = 1.15  # rows of all Jacobians over the dimension of the span, which the last 13 % leave as it is
_LEAST_JACOBIANS = 8  # units of the second layer that are off at four points and their opposites hide those before them
_NARROW = 0.9  # dimension over that of the inputs from which nothing is saved
_CANDIDATES = 30  # points among which the one farthest from activation boundaries is chosen
_MORE_POINTS = 1.3  # outputs per direction over units of the first layer: fewer determine some of them badly
_SETS = 20  # of points among which the one that determines the units best is chosen; they are not queried
_SETS_OF_SIZE = 5  # of them with the same number of points
_DETERMINED = 1e-2  # smallest singular value, columns scaled to norm 1, of points that determine all units
_TINY = np.finfo(float).tiny  # instead of zero, where something is divided by
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

    def in_all_inputs(self, space, network, rng):
        """The network in all inputs, from one in the coordinates of the basis.

        The weights' parts outside of the span follow from long steps orthogonal to it, which change the units by
        little: ``1.3 m_1 / m_L`` points, with one query for each of the other ``D - r`` directions.
        """
        W, b = self.basis @ network.weights[0], network.biases[0]
        others = scipy.linalg.null_space(self.basis.T)  # (D, D - r)
        whole = FeedforwardNetwork([W, *network.weights[1:]], list(network.biases), "relu")
        n = int(np.ceil(_MORE_POINTS * len(b) / network.n_outputs))
        points, B = _points_where_all_units_act(self.space(space), network, n, rng)
        for step in _FAR * space.unit * 10.0 ** -np.arange(_TRIES):
            changes = np.concatenate([_changes(space, c @ self.basis.T, step * others) for c in points])
            E = np.linalg.lstsq(B, changes, rcond=None)[0] / step  # (m_1, D - r)
            error = _NOISE * space.error_at(step * others[:, 0], changes)
            if np.abs(B @ E * step - changes).max() < max(error, _EXPLAINED * np.abs(changes).max()):
                return whole.with_parameters([W + others @ E.T, *whole.weights[1:]], whole.biases)
        return whole


def find_input_span(space, rng):
    """The `InputSpan` of a model of ReLU units in a `Space`; None if it is nearly the whole space.

    About ``1.15 r / m_L`` Jacobians for a span of dimension r, with ``D + 12`` queries each.
    """
    D, rows, tol = space.n_coordinates, [], _RANK_TOL
    for points in _opposite_points(D, rng):
        found = jacobians_at(space, space.within_reach(points), np.full(len(points), _STEP), rng)
        for J in found:
            size = np.linalg.norm(J.value)
            if not J.confirmed or size == 0.0:
                return None
            rows.append(J.value / size)
            tol = max(tol, J.error * np.sqrt(J.value.size) / size)
        basis, R = scipy.linalg.qr(np.concatenate(rows).T, mode="economic", pivoting=True)[:2]
        sizes = np.abs(np.diag(R))
        rank = int(np.sum(sizes > tol * sizes[0]))
        if rank >= _NARROW * D:
            return None
        if R.shape[1] >= _MORE_ROWS * rank and len(rows) >= _LEAST_JACOBIANS:
            return InputSpan(basis[:, :rank])
    raise AssertionError("unreachable")


def _opposite_points(D, rng):
    """Two random points and their opposites (4, D), without end: most units are active at one of the two."""
    for radii in itertools.cycle([_RADII[:2], _RADII[2:]]):
        points = np.array(radii)[:, None] * rng.standard_normal((2, D))
        yield np.concatenate([points, -points])


def _changes(space, point, moves):
    """Changes (m_L, k) of the outputs from a point (D,) by moves (D, k)."""
    F = space.query(point + np.vstack([np.zeros(len(point)), moves.T]))
    return (F[1:] - F[0]).T


def _points_where_all_units_act(space, network, n, rng):
    """The points (n, r) of several sets that determine all units of the first layer best, and derivatives (n m_L, m_1).

    A unit that acts on no output at any of them, because units behind it are off, keeps the error of its weights.
    """
    best = None
    for k in range(_SETS):
        points = _far_from_boundaries(space, network, n + k // _SETS_OF_SIZE, rng)
        B = _derivatives_by_first_layer(network, points).reshape(-1, len(network.biases[0]))
        sizes = np.linalg.norm(B, axis=0)
        least = (
            np.linalg.svd(B / np.where(sizes > 0, sizes, 1.0), compute_uv=False)[-1] if len(B) >= B.shape[1] else 0.0
        )
        if best is None or least > best[0]:
            best = least, points, B
        if best[0] > _DETERMINED:
            break
    return best[1:]


def _derivatives_by_first_layer(network, X):
    """Derivatives (n, m_L, m_1) of the outputs by the pre-activations of the first layer at X (n, D)."""
    m = len(network.biases[0])
    behind = FeedforwardNetwork([np.eye(m), *network.weights[1:]], [np.zeros(m), *network.biases[1:]], "relu")
    return behind.jacobian(X @ network.weights[0] + network.biases[0])


def _far_from_boundaries(space, network, n, rng):
    """Random points (n, D), each the one of several on which no unit is near its activation boundary."""
    radii = np.array(_RADII)[np.arange(n * _CANDIDATES) % len(_RADII)]
    X = space.within_reach(radii[:, None] * rng.standard_normal((n * _CANDIDATES, network.n_inputs)))
    H, room = X, np.full(len(X), np.inf)
    for W, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
        Z = H @ W + b
        room = np.minimum(room, np.min(np.abs(Z) / np.linalg.norm(W, axis=0), axis=1))
        H = np.maximum(Z, 0.0)
    best = room.reshape(n, _CANDIDATES).argmax(axis=1)
    return X.reshape(n, _CANDIDATES, -1)[np.arange(n), best]
