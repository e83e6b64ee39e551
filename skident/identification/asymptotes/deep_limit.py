"""Several hidden layers of units that grow linearly: scales and biases that their ReLU limit leaves open.

``f(R x) / R`` tends to a ReLU network without biases. It has the weights of f, but a unit of a ReLU network may have any
positive scale. Where a line crosses the activation boundary of one unit far out, all others are linear or zero: the
profile there has the width and the position of this unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

__all__ = ["EVEN_TAILS", "FARTHEST", "network_from_limit"]

EVEN_TAILS = {"gelu": 10.0, "silu": 45.0, "softplus": 45.0}  # pre-activation at which g(z) - relu(z) is rounding
_DISTANCE = 1e5  # of the crossings, in sqrt(D) standard deviations: the other units are linear or zero there
FARTHEST = 2.0 * _DISTANCE  # query, in the same units
_PAIRS = 600  # of points on both sides of a unit's boundary, among which crossings are chosen
_BISECTIONS = 60  # of the way between them: to rounding
_CLEAR = 0.4  # of the distance to the next boundary that a profile covers
_POINTS = 801  # of a profile: hundred per width in the end (budget)
_ENDS = 0.1  # share of a profile on either side that shows the two lines
_ZOOM = 30.0  # factor by which a profile is shortened at a time
_ZOOMS = 8  # from 1e5 to 1e-6 standard deviations
_NEAR_ROWS = 200  # that determine the biases of the outputs


@dataclass(frozen=True)
class _Crossing:
    """A point (D,) on a unit's boundary, the unit normal, the slope of its pre-activation, the jump (m_L,), its room."""

    point: np.ndarray
    normal: np.ndarray
    slope: float
    jump: np.ndarray
    room: float


def network_from_limit(oracle, limit, activation, rng):
    """The network of standardized inputs whose ReLU limit is `limit`, accurate to 1e-6 or so.

    `activation` is one of `EVEN_TAILS`. Some 3,000 queries per unit.
    """
    area = _tail_area(activation)
    weights, biases, factors = [], [], np.ones(limit.n_inputs)
    for layer, W in enumerate(limit.weights[:-1]):
        V, b, scales = np.empty_like(W), np.empty(W.shape[1]), np.empty(W.shape[1])
        for unit in range(W.shape[1]):
            crossing = _crossing(limit, layer, unit, rng)
            center, norm = _profile(oracle, crossing, area, EVEN_TAILS[activation.name])
            scales[unit] = norm / crossing.slope
            V[:, unit] = W[:, unit] / factors * scales[unit]
            inputs = _hidden(weights, biases, activation, center[None])[0]
            b[unit] = -(inputs @ V[:, unit])
        weights.append(V)
        biases.append(b)
        factors = scales
    last = limit.weights[-1] / factors[:, None]
    near = rng.standard_normal((_NEAR_ROWS, limit.n_inputs))
    offset = (oracle(near) - _hidden(weights, biases, activation, near) @ last).mean(axis=0)
    return FeedforwardNetwork([*weights, last], [*biases, offset], activation)


def _hidden(weights, biases, activation, X):
    """Outputs of the layers so far."""
    for W, b in zip(weights, biases, strict=True):
        X = activation(X @ W + b)
    return X


def _tail_area(activation):
    """The integral of ``g(z) - relu(z)``."""
    z = np.linspace(-60.0, 60.0, 120_001)
    return float(np.sum(activation(z) - np.maximum(z, 0.0)) * (z[1] - z[0]))


def _pre_activations(limit, X):
    """Pre-activations (n, m_l) of the hidden layers at points X (n, D), without biases."""
    Z, H = [], X
    for W in limit.weights[:-1]:
        Z.append(H @ W)
        H = np.maximum(Z[-1], 0.0)
    return Z


def _crossing(limit, layer, unit, rng):
    """The `_Crossing` of a unit's boundary with much room and a large jump."""
    D = limit.n_inputs
    A, B = rng.standard_normal((2, _PAIRS, D))
    above, below = (_pre_activations(limit, X)[layer][:, unit] for X in (A, B))
    opposite = above * below < 0
    A, B, above = A[opposite], B[opposite], above[opposite]
    if len(A) == 0:
        raise NotIdentified("profiles", "units", f"unit {unit} of layer {layer + 1} is never active far out.")
    for _ in range(_BISECTIONS):
        middle = 0.5 * (A + B)
        same = _pre_activations(limit, middle)[layer][:, unit] * above > 0
        A, B = np.where(same[:, None], middle, A), np.where(same[:, None], B, middle)
    X = 0.5 * (A + B)
    X *= (np.sqrt(D) / np.linalg.norm(X, axis=1))[:, None]
    return _best_crossing(limit, layer, unit, X)


def _best_crossing(limit, layer, unit, X):
    """The crossing among points X (n, D) on a unit's boundary."""
    n, room = len(X), np.full(len(X), np.inf)
    gradients, active = np.broadcast_to(np.eye(limit.n_inputs), (n, limit.n_inputs, limit.n_inputs)), []
    normal, H = None, X
    for depth, W in enumerate(limit.weights[:-1]):
        Z, gradients = H @ W, gradients @ W
        norms = np.linalg.norm(gradients, axis=1)
        distance = np.where(norms > 0, np.abs(Z) / np.where(norms > 0, norms, 1.0), np.inf)
        if depth == layer:
            normal, distance[:, unit] = gradients[:, :, unit], np.inf
        room = np.minimum(room, distance.min(axis=1))
        active.append(Z > 0)
        H, gradients = np.maximum(Z, 0.0), gradients * active[-1][:, None]
    effect = np.broadcast_to(limit.weights[layer + 1][unit], (n, limit.weights[layer + 1].shape[1]))
    for depth in range(layer + 1, limit.n_layers - 1):
        effect = (effect * active[depth]) @ limit.weights[depth + 1]
    slope = np.linalg.norm(normal, axis=1)
    jump = effect * slope[:, None]
    best = int(np.argmax(np.linalg.norm(jump, axis=1) * room))
    if slope[best] == 0 or not np.any(jump[best]):
        raise NotIdentified("profiles", "units", f"unit {unit} of layer {layer + 1} has no effect far out.")
    return _Crossing(X[best], normal[best] / slope[best], float(slope[best]), jump[best], float(room[best]))


def _profile(oracle, crossing, area, tail):
    """Where (D,) the pre-activation of a unit is 0 near a crossing, and its slope along the normal."""
    start = _DISTANCE * crossing.point
    outputs = crossing.jump / np.linalg.norm(crossing.jump)
    half, center = _CLEAR * _DISTANCE * crossing.room, 0.0
    for _ in range(_ZOOMS):
        t = np.linspace(-half, half, _POINTS)
        y = oracle(start + (center + t)[:, None] * crossing.normal) @ outputs
        n = max(2, int(_ENDS * _POINTS))
        left, right = (np.polynomial.polynomial.polyfit(t[part], y[part], 1) for part in (slice(n), slice(-n, None)))
        jump = right[1] - left[1]
        if jump <= 0:
            raise NotIdentified("profiles", "units", "a unit bends the other way than its ReLU limit.")
        corner = float(np.clip((left[0] - right[0]) / jump, -half, half))
        beside = np.where(t < corner, left[0] + left[1] * t, right[0] + right[1] * t)
        bend = float(np.sum(y - beside) * (t[1] - t[0])) / area
        width = np.sqrt(max(bend, 0.0) / jump)  # one over the slope
        center += corner
        wanted = max(2.0 * tail * width, half / _ZOOM)
        if wanted > 0.5 * half:
            break
        half = wanted
    if width <= 0:
        raise NotIdentified("profiles", "units", "a unit bends at a point, as one that is piecewise linear.")
    return start + center * crossing.normal, 1.0 / width
