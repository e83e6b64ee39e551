"""A interval of a far line on which one unit changes, and all else is constant or linear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Interval", "find_interval"]

_FAR, _REACH = 1e4, 3.0  # distance of a line from the centre, and how far it goes, in units of that
_COARSE, _FINE = 121, 41  # points of a line, and of a part of it
_ROUNDINGS = 64.0  # of the largest answer, by which second differences may be off
_SHARP = 1e-9  # width of a interval, beside the distance, from which it is a kink or a jump
_ZOOMS = 60


@dataclass(frozen=True)
class Interval:
    """Where one unit changes on a line ``start + t direction``.

    Attributes
    ----------
    start, direction : ndarray of shape (D,)
    output : ndarray of shape (m_L,)
        Combination of the outputs that is looked at.
    low, high : float
        t at its ends.
    sharp : {"", "kink", "jump"}
    error : float
        Of the combined answers there.
    """

    start: np.ndarray
    direction: np.ndarray
    output: np.ndarray
    low: float
    high: float
    sharp: str
    error: float

    def answers(self, oracle, t):
        """Combined answers at some t.

        Parameters
        ----------
        oracle : Oracle
        t : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n,)
        """
        return oracle(self.start + t[:, None] * self.direction) @ self.output


def find_interval(oracle, rng, noise):
    """One interval on a random line.

    Parameters
    ----------
    oracle : Oracle
    rng : numpy.random.RandomState
    noise : ndarray of shape (m_L,)
        Standard deviation of the answers' errors beyond rounding.

    Returns
    -------
    Interval or None
        None if no unit changes on that line by itself.

    Notes
    -----
    Second differences of the answers show where they bend; the part is refined until the bend fills it, or is as sharp
    as can be seen. ``121 + 41 k`` queries, k some 4 for smooth units and 8 for kinks.
    """
    E = np.linalg.qr(rng.standard_normal((oracle.n_inputs, 2)))[0].T * np.sqrt(oracle.n_inputs)
    start, direction = _FAR * E[0], E[1]
    t = _FAR * _REACH * (np.linspace(-1.0, 1.0, _COARSE) + rng.uniform(-0.5, 0.5) / _COARSE)
    Y = oracle(start + t[:, None] * direction)
    size = Y.std(axis=0)
    if not size.max() > 0:
        return None
    output = np.where(size > 1e-12 * size.max(), rng.uniform(0.5, 1.5, len(size)) / np.maximum(size, 1e-300), 0.0)
    error = float(np.linalg.norm(output * noise))
    interval = Interval(start, direction, output, t[0], t[-1], "", 0.0)
    parts = [(run, t) for run in _bends(Y @ output, error) if run[1] - run[0] <= 3]
    if not parts:
        return None
    (first, last), t = parts[rng.randint(len(parts))]
    return _refined(interval, oracle, t[first], t[last + 2], error)


def _bends(y, error):
    """Runs of second differences that are not 0, apart from others by two or more: first and last of each."""
    y = y - y.mean()
    level = _ROUNDINGS * np.finfo(float).eps * np.abs(y).max() + 16.0 * error
    bent = np.flatnonzero(np.abs(np.diff(y, 2)) > 4.0 * level)
    if not len(bent):
        return []
    cuts = np.flatnonzero(np.diff(bent) > 3)
    runs = [(part[0], part[-1]) for part in np.split(bent, cuts + 1)]
    return [(a, b) for a, b in runs if a >= 3 and b <= len(y) - 6]


def _refined(interval, oracle, low, high, error):
    """The interval between two t within which it lies; None if there is nothing any more."""
    for _ in range(_ZOOMS):
        t = np.linspace(low, high, _FINE)
        y = interval.answers(oracle, t)
        steepest = np.abs(np.diff(y)).max() / (t[1] - t[0])
        level = _ROUNDINGS * np.finfo(float).eps * (np.abs(y).max() + steepest * _FAR) + 16.0 * error
        centred = y - np.linspace(y[0], y[-1], _FINE)
        bent = np.flatnonzero(np.abs(np.diff(centred, 2)) > 4.0 * level)
        if not len(bent):
            return None if high - low > _SHARP * _FAR else _sharp(interval, oracle, low, high, error)
        bent = bent[: 1 + np.argmax(np.append(np.diff(bent), 4) > 3)]  # the first bend, where there are several
        step = t[1] - t[0]
        new_low, new_high = t[bent[0]] - step, t[bent[-1] + 2] + step
        if high - low <= _SHARP * _FAR:
            return _sharp(interval, oracle, low, high, error)
        if new_high - new_low > 0.6 * (high - low):
            level = level / _ROUNDINGS
            return Interval(interval.start, interval.direction, interval.output, low, high, "", level)
        low, high = max(low, new_low), min(high, new_high)
    return None


def _sharp(interval, oracle, low, high, error):
    """Whether answers jump there, or only bend."""
    width = high - low
    t = np.array([low - 400.0 * width, low, high, high + 400.0 * width])
    y = interval.answers(oracle, t)
    slope = max(abs(y[1] - y[0]), abs(y[3] - y[2])) / (400.0 * width)
    level = _ROUNDINGS * np.finfo(float).eps * np.abs(y).max() + 16.0 * error
    sharp = "jump" if abs(y[2] - y[1]) > 8.0 * slope * width + 8.0 * level else "kink"
    return Interval(interval.start, interval.direction, interval.output, low, high, sharp, level)
