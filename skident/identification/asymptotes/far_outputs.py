"""Far from the centre, where answers are linear between units: how far they are rounded, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.oracle import NotIdentified

__all__ = ["FarLine", "far_gradients", "rounding_far_out"]

_RAYS = 64
_LINEAR = 1e-11  # second differences along rays, relative to the answers, that are rounding
_MARGIN = 15.0  # times the median rounding that none exceeds
_SHRINK, _TRIES = 0.3, 16


@dataclass(frozen=True)
class FarLine:
    """A line ``origin + t direction`` and the answers on it.

    Attributes
    ----------
    oracle : Oracle
    origin, direction : ndarray of shape (D,)
        The direction has length 1.
    rounding : ndarray of shape (m_L,)
        Of the answers, a unit of the inputs' norm.
    """

    oracle: object
    origin: np.ndarray
    direction: np.ndarray
    rounding: np.ndarray

    def at(self, t):
        """Points of the line.

        Parameters
        ----------
        t : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n, D)
        """
        return self.origin + np.asarray(t)[:, None] * self.direction

    def ask(self, t):
        """Answers on the line.

        Parameters
        ----------
        t : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n, m_L)
        """
        return self.oracle(self.at(t))

    def tolerance(self, t):
        """Rounding of the answers, at the farthest of some positions.

        Parameters
        ----------
        t : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (m_L,)
        """
        return self.rounding * np.linalg.norm(self.at(t), axis=1).max()


def rounding_far_out(oracle, radius, rng):
    """Rounding of the answers far out, from second differences along rays, where no unit bends.

    Parameters
    ----------
    oracle : Oracle
    radius : float
    rng : numpy.random.RandomState

    Returns
    -------
    ndarray of shape (m_L,)
        What hardly any answer's error exceeds, a unit of the norm of the inputs.

    Raises
    ------
    NotIdentified
        If the answers do not grow linearly along rays.
    """
    rays = rng.standard_normal((_RAYS, oracle.n_inputs))
    rays *= radius / np.linalg.norm(rays, axis=1, keepdims=True)
    near, middle, far = (oracle(factor * rays) for factor in (1.0, 1.5, 2.0))
    sag = np.abs(near - 2.0 * middle + far)
    size = np.abs(far).max(axis=0)
    # A ray may run along a unit's hyperplane, most of them do not.
    rounding = np.median(sag, axis=0) + np.finfo(float).eps * size
    if not np.all(rounding <= _LINEAR * size):
        raise NotIdentified(
            "profiles",
            "curved",
            f"along rays, {radius:.1e} to {2.0 * radius:.1e} standard deviations from the centre, the answers are off "
            f"a line by {np.max(rounding / np.maximum(size, np.finfo(float).tiny)):.1e} of their size: they do not "
            "grow linearly, or are not exact.",
        )
    return _MARGIN * rounding / (2.0 * radius)


def far_gradients(line, t, rooms, rng):
    """Gradients of the answers at positions of a line between bends, by central differences.

    Parameters
    ----------
    line : FarLine
    t : ndarray of shape (n,)
    rooms : ndarray of shape (n,)
        Steps to begin with; they are shortened until no unit bends within.
    rng : numpy.random.RandomState

    Returns
    -------
    ndarray of shape (n, m_L, D)

    Raises
    ------
    NotIdentified
        If no step is short enough.
    """
    D = len(line.direction)
    frame = np.linalg.qr(rng.standard_normal((D, D)))[0]
    points, middle = line.at(t), line.ask(t)
    slopes = np.zeros((len(t), D, middle.shape[1]))
    steps = np.repeat(np.asarray(rooms)[:, None], D, axis=1)
    point, axis = (index.ravel() for index in np.indices(steps.shape))
    for _ in range(_TRIES):
        h = steps[point, axis][:, None]
        ahead, behind = (line.oracle(points[point] + sign * h * frame[axis]) for sign in (1.0, -1.0))
        slopes[point, axis] = (ahead - behind) / (2.0 * h)
        allowed = line.rounding * (np.linalg.norm(points[point], axis=1)[:, None] + h)
        bent = np.any(np.abs(ahead - 2.0 * middle[point] + behind) > 4.0 * allowed, axis=1)
        point, axis = point[bent], axis[bent]
        if len(point) == 0:
            return np.swapaxes(slopes, 1, 2) @ frame
        steps[point, axis] *= _SHRINK
    raise NotIdentified(
        "profiles", "crowded", "units bend wherever gradients were looked for, however short the steps."
    )
