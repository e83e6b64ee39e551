"""The span of the first layer's weights, from Jacobians at random points: further queries stay within it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from skident.network import FeedforwardNetwork

from .shared_jacobians import Space, jacobian_at

__all__ = ["InputSpan", "find_input_span"]

_RADII = (10.0, 1.0, 30.0, 3.0)  # standard deviations of random points: far out, biases matter less and patterns vary
_PATIENCE = 4  # Jacobians in a row that add nothing to the span, after which it is complete: points and opposites
_STEP = 1.0  # first step of a Jacobian, in units of the inputs; it shrinks until the outputs are straight
_RANK_TOL = 1e-9  # pivot over the largest, below which it is rounding, if no Jacobian has a larger error
_MORE_ROWS = 1.1  # rows of all Jacobians over the dimension of the span: errors of the basis are removed at the end
_NARROW = 0.9  # dimension over that of the inputs from which nothing is saved
_CANDIDATES = 30  # points among which the one farthest from activation boundaries is chosen
_MORE_POINTS = 1.3  # outputs per direction over units of the first layer: fewer determine some of them badly
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
        points = _far_from_boundaries(self.space(space), network, n, rng)
        B = _derivatives_by_first_layer(network, points).reshape(-1, len(b))
        for step in _FAR * space.unit * 10.0 ** -np.arange(_TRIES):
            changes = np.concatenate([_changes(space, c @ self.basis.T, step * others) for c in points])
            E = np.linalg.lstsq(B, changes, rcond=None)[0] / step  # (m_1, D - r)
            error = _NOISE * space.error_at(step * others[:, 0], changes)
            if np.abs(B @ E * step - changes).max() < max(error, _EXPLAINED * np.abs(changes).max()):
                return whole.with_parameters([W + others @ E.T, *whole.weights[1:]], whole.biases)
        return whole


def find_input_span(space, rng):
    """The `InputSpan` of a model of ReLU units in a `Space`; None if it is nearly the whole space.

    About ``1.1 r / m_L`` Jacobians for a span of dimension r, with ``D + 12`` queries each.
    """
    D, rows, ranks, tol = space.n_coordinates, [], [0], _RANK_TOL
    for point in _opposite_points(D, rng):
        J = jacobian_at(space, space.within_reach(point[None])[0], _STEP, rng)
        size = np.linalg.norm(J.value)
        if not J.confirmed or size == 0.0:
            return None
        rows.append(J.value / size)
        tol = max(tol, J.error * np.sqrt(J.value.size) / size)
        basis, R = scipy.linalg.qr(np.concatenate(rows).T, mode="economic", pivoting=True)[:2]
        sizes = np.abs(np.diag(R))
        ranks.append(int(np.sum(sizes > tol * sizes[0])))
        if ranks[-1] >= _NARROW * D:
            return None
        if ranks[-1] == ranks[-1 - _PATIENCE :][0] and R.shape[1] >= _MORE_ROWS * ranks[-1]:
            return InputSpan(basis[:, : ranks[-1]])
    raise AssertionError("unreachable")


def _opposite_points(D, rng):
    """Random points (D,) without end, each followed by its opposite: most units are active at one of the two."""
    for radius in itertools.cycle(_RADII):
        point = radius * rng.standard_normal(D)
        yield point
        yield -point


def _changes(space, point, moves):
    """Changes (m_L, k) of the outputs from a point (D,) by moves (D, k)."""
    F = space.query(point + np.vstack([np.zeros(len(point)), moves.T]))
    return (F[1:] - F[0]).T


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
