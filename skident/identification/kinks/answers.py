"""Answers of a piecewise linear black box in units of their rounding, and the kinks that short lines show."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Answers", "Located", "locate"]

_CLEAR = 60.0  # roundings that a kink must move the answers by within a window
_LARGEST = 1e100  # error of an offset where nothing bends
_MEETS = 16.0  # roundings up to which two straight pieces meet on the answers


class Answers:
    """What a black box answers, every output in units of its rounding near the centre, and how accurate that is.

    Parameters
    ----------
    oracle : Oracle
    noise : ndarray of shape (m_L,)
        Rounding of every output near the centre, in the oracle's units.
    spread : ndarray of shape (m_L,)
        Deviation of every output's answers, in the same units.

    Attributes
    ----------
    n_inputs, n_outputs : int
    unit : float
        ``sqrt(D)``, the usual distance of inputs from the centre.
    resolution : float
        Rounding over deviation, of the output where that is best.
    """

    def __init__(self, oracle, noise, spread):
        self.oracle, self.noise = oracle, noise
        self.n_inputs, self.n_outputs, self.unit = oracle.n_inputs, len(noise), np.sqrt(oracle.n_inputs)
        self.resolution = float(np.min(noise / np.maximum(spread, np.finfo(float).tiny)))

    def ask(self, U):
        """Answers and their accuracy.

        Parameters
        ----------
        U : ndarray of shape (n, D)

        Returns
        -------
        F : ndarray of shape (n, m_L)
            In units of the rounding near the centre; 0 where it may not be asked.
        tol : ndarray of shape (n,)
            Accuracy of a row in the same units: 1 near the centre, growing with the distance and with the uncertainty
            of logits; infinite where these are lost and outside the range.

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        inside = self.allowed(U)
        F, tol = np.zeros((len(U), self.n_outputs)), np.full(len(U), np.inf)
        if inside.any():
            Y, error = self.oracle.ask(U[inside])
            F[inside] = Y / self.noise
            tol[inside] = 1.0 + np.linalg.norm(U[inside], axis=1) / self.unit + error / self.noise.min()
        return F, tol

    def ask_block(self, U):
        """Answers (..., m_L) and their accuracies (...) at a block of points (..., D); see `ask`.

        Parameters
        ----------
        U : ndarray of shape (..., D)

        Returns
        -------
        F : ndarray of shape (..., m_L)
        tol : ndarray of shape (...)

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        F, tol = self.ask(U.reshape(-1, U.shape[-1]))
        return F.reshape(*U.shape[:-1], -1), tol.reshape(U.shape[:-1])

    def allowed(self, U):
        """Which points may be asked.

        Parameters
        ----------
        U : ndarray of shape (n, D)

        Returns
        -------
        ndarray of bool, shape (n,)
        """
        if self.oracle.input_range is None:
            return np.ones(len(U), dtype=bool)
        low, high = (self.oracle.from_inputs(bound) for bound in self.oracle.input_range)
        return np.all((low <= U) & (high >= U), axis=1)


class Located(NamedTuple):
    """Single kinks in windows.

    Attributes
    ----------
    offset : ndarray of shape (n,)
        Position of the kink from the middle of its window; NaN where there is not just one.
    error : ndarray of shape (n,)
        Accuracy of the offset; infinite where the answers are lost.
    found : ndarray of bool, shape (n,)
    """

    offset: np.ndarray
    error: np.ndarray
    found: np.ndarray


def locate(answers, points, directions, width):
    """The kink in each of many short windows, where there is one and nothing else.

    Parameters
    ----------
    answers : Answers
    points, directions : ndarray of shape (n, D)
        Middles of the windows and unit vectors along them.
    width : float or ndarray of shape (n,)
        Half widths.

    Returns
    -------
    Located

    Raises
    ------
    BlackBoxError
        If the black box fails.

    Notes
    -----
    Five queries a window: two straight pieces that meet inside the inner half of it, on the answers in its middle.
    """
    n = len(points)
    if n == 0:
        return Located(np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool))
    w = np.broadcast_to(np.asarray(width, dtype=float), n)
    offsets = np.array([-1.0, -0.6, 0.0, 0.6, 1.0])
    F, tol = answers.ask_block(points[:, None] + (offsets * w[:, None])[:, :, None] * directions[:, None])
    tol = tol.max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        left, right = (F[:, 1] - F[:, 0]) / (0.4 * w)[:, None], (F[:, 4] - F[:, 3]) / (0.4 * w)[:, None]
        jump = right - left
        size = np.linalg.norm(jump, axis=1)
        t = -w - np.sum(jump * (F[:, 4] - F[:, 0] - right * (2.0 * w)[:, None]), axis=1) / size**2
        vertex = F[:, 0] + left * (t + w)[:, None]
        middle = vertex - np.where((t > 0)[:, None], left, right) * t[:, None]
        other = F[:, 4] + right * (t - w)[:, None]
        found = (size * w > _CLEAR * tol) & (np.abs(t) < 0.55 * w)
        found &= np.abs(middle - F[:, 2]).max(axis=1) < _MEETS * tol
        found &= np.abs(vertex - other).max(axis=1) < _MEETS * tol
        error = np.where(np.isfinite(tol), np.minimum(tol / size, _LARGEST), np.inf)
    return Located(np.where(found, t, np.nan), error, found)
