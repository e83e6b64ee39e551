"""Steps of the outputs on far lines, where every unit is saturated except near its hyperplane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Steps", "find_steps"]

_RADIUS = 2000.0  # distance of lines, in sqrt(D) standard deviations: 32 steps on a line are 10 widths apart
_WIDEST = 1.45  # angle from the middle of a line to its ends, as viewed from the center: 92 % of the crossings
_CELLS = 500  # outputs per line (budget); 16 intervals per unit of 32
_HALF = 3  # intervals on either side whose means are compared: all of a step lies between them
_DETECTED = 5.0  # standard errors of a jump: 1e-4 false steps per line
_ZOOM_POINTS = 17  # outputs per zoom (budget)
_ZOOMS = 5  # zooms, each into a quarter
_RESOLVED = 0.02  # share of the squared jump that a sharp step leaves on an interval at most
_RESOLVED_NOISE = 2.5  # `_RESOLVED` over the variance of the outputs' errors


@dataclass(frozen=True)
class Steps:
    """Steps on lines: points (B, D) near them, directions (B, D) of the lines, widths (B,) and heights (B,)."""

    points: np.ndarray
    directions: np.ndarray
    widths: np.ndarray
    heights: np.ndarray

    def __len__(self):
        return len(self.widths)


def find_steps(query, n_inputs, std, n_lines, rng):
    """The `Steps` of outputs ``query(U)`` (n,) with errors of standard deviation `std` on some far lines.

    A line's middle is a random far point. Points are equally spaced in the angle viewed from the center, in which the
    crossings of random hyperplanes through the center are uniform.
    """
    far = _RADIUS * np.sqrt(n_inputs)
    V = rng.standard_normal((n_lines, n_inputs))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    A = _RADIUS * rng.standard_normal((n_lines, n_inputs))
    A -= np.sum(A * V, axis=1, keepdims=True) * V
    t = far * np.tan(np.linspace(-_WIDEST, _WIDEST, _CELLS))
    F = _on_lines(query, A, V, np.broadcast_to(t, (n_lines, _CELLS)))
    found = [(k, low, high) for k, f in enumerate(F) for low, high in _intervals(f, std)]
    if not found:
        empty = np.empty((0, n_inputs))
        return Steps(empty, empty, np.empty(0), np.empty(0))
    lines, low, high = np.array(found).T
    return _zoomed(query, A[lines], V[lines], t[low], t[high], std)


def _on_lines(query, A, V, t):
    """Outputs (B, k) at points (B, D) + t (B, k) times directions (B, D)."""
    U = A[:, None] + t[..., None] * V[:, None]
    return query(U.reshape(-1, U.shape[-1])).reshape(t.shape)


def _intervals(f, std):
    """Intervals between which a line's outputs f (k,) jump, the highest first, without overlaps."""
    total = np.concatenate([[0.0], np.cumsum(f)])
    k = np.arange(_HALF, len(f) - _HALF)
    jump = np.abs(total[k + _HALF] - 2.0 * total[k] + total[k - _HALF]) / _HALF
    used, found = np.zeros(len(f), dtype=bool), []
    for j in np.argsort(-jump):
        if jump[j] < _DETECTED * std * np.sqrt(2.0 / _HALF):
            break
        if not used[k[j]]:
            low, high = k[j] - _HALF, k[j] + _HALF
            used[low : high + 1] = True
            found.append((low, high))
    return found


def _zoomed(query, A, V, low, high, std):
    """The `Steps` within intervals of lines: zooms to the largest jump, as long as the step looks sharp."""
    each, left = np.arange(len(A)), np.arange(1, _ZOOM_POINTS)
    for _ in range(_ZOOMS):
        t = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, _ZOOM_POINTS)
        F = _on_lines(query, A, V, t)
        sums = np.cumsum(F, axis=1)
        jumps = (sums[:, -1:] - sums[:, :-1]) / (_ZOOM_POINTS - left) - sums[:, :-1] / left
        gains = left * (_ZOOM_POINTS - left) / _ZOOM_POINTS * jumps**2
        k = gains.argmax(axis=1)
        center, height = (t[each, k] + t[each, k + 1]) / 2.0, jumps[each, k]
        unexplained = np.var(F, axis=1) - gains[each, k] / _ZOOM_POINTS
        sharp = unexplained < np.maximum(_RESOLVED * height**2, _RESOLVED_NOISE * std**2)
        width = np.where(sharp, 0.25, 1.0) * (high - low)
        low, high = center - width / 2.0, center + width / 2.0
    return Steps(A + center[:, None] * V, V, high - low, height)
