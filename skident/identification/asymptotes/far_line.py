"""Lines far from the center, where outputs are linear between units: rounding of the outputs, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.oracle import NotIdentified

__all__ = ["CURVED", "FarLine", "far_gradients", "rounding_far_out"]

CURVED = 6.0  # times their rounding bound, from which deviations of outputs from a line are curvature
_RAYS = 64  # along which rounding is measured; few of them run along a unit's hyperplane
_MAX_ROUNDING = 1e-11  # of the outputs: larger median second differences are no rounding
_MARGIN = 15.0  # times the median rounding, that hardly any output's error exceeds
_SHORTER = 0.3  # factor of a step that crosses a unit
_TRIES = 16  # such factors: 4e-9 of the first step
_STEP_CURVED = 4.0  # as `CURVED`, of second differences: 1 + 2 + 1 outputs


@dataclass(frozen=True)
class FarLine:
    """The line ``origin + t direction`` (unit vector), and the outputs' rounding (m_L,) per unit of norm."""

    oracle: object
    origin: np.ndarray
    direction: np.ndarray
    rounding: np.ndarray

    def at(self, t):
        """Points (n, D) at positions (n,)."""
        return self.origin + np.asarray(t)[:, None] * self.direction

    def outputs(self, t):
        """Outputs (n, m_L) at positions (n,)."""
        return self.oracle(self.at(t))

    def tolerance(self, t):
        """Rounding of the outputs (m_L,) at the farthest of positions (n,)."""
        return self.rounding * np.linalg.norm(self.at(t), axis=1).max()


def rounding_far_out(oracle, radius, rng):
    """Bound of the outputs' rounding (m_L,) per unit of the inputs' norm, from second differences along rays.

    Raises NotIdentified if the outputs do not grow linearly along rays.
    """
    rays = rng.standard_normal((_RAYS, oracle.n_inputs))
    rays *= radius / np.linalg.norm(rays, axis=1, keepdims=True)
    near, middle, far = (oracle(factor * rays) for factor in (1.0, 1.5, 2.0))
    deviation = np.abs(near - 2.0 * middle + far)
    size = np.abs(far).max(axis=0)
    rounding = np.median(deviation, axis=0) + np.finfo(float).eps * size
    if not np.all(rounding <= _MAX_ROUNDING * size):
        raise NotIdentified(
            "profiles",
            "curved",
            f"along rays, {radius:.1e} to {2.0 * radius:.1e} standard deviations from the center, the outputs deviate "
            f"from a line by {np.max(rounding / np.maximum(size, np.finfo(float).tiny)):.1e} of their size: they do "
            "not grow linearly, or are not exact.",
        )
    return _MARGIN * rounding / (2.0 * radius)


def far_gradients(line, t, steps, rng):
    """Gradients (n, m_L, D) at positions (n,) between units, by central differences.

    The first steps (n,) are shortened until they cross no unit. Raises NotIdentified if none is short enough.
    """
    D = len(line.direction)
    frame = np.linalg.qr(rng.standard_normal((D, D)))[0]
    points, middle = line.at(t), line.outputs(t)
    slopes = np.zeros((len(t), D, middle.shape[1]))
    steps = np.repeat(np.asarray(steps)[:, None], D, axis=1)
    point, axis = (index.ravel() for index in np.indices(steps.shape))
    for _ in range(_TRIES):
        h = steps[point, axis][:, None]
        ahead, behind = (line.oracle(points[point] + sign * h * frame[axis]) for sign in (1.0, -1.0))
        slopes[point, axis] = (ahead - behind) / (2.0 * h)
        tol = _STEP_CURVED * line.rounding * (np.linalg.norm(points[point], axis=1)[:, None] + h)
        crosses = np.any(np.abs(ahead - 2.0 * middle[point] + behind) > tol, axis=1)
        point, axis = point[crosses], axis[crosses]
        if len(point) == 0:
            return np.swapaxes(slopes, 1, 2) @ frame
        steps[point, axis] *= _SHORTER
    raise NotIdentified("profiles", "crowded", "however short the steps of a gradient are, they cross units.")
