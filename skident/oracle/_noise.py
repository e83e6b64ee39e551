"""How noisy a black box's answers are: what is left on short lines once everything smooth is taken away."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

__all__ = ["NoiseLevel", "above_rounding", "measure_noise"]

_POINTS = 11  # a line
_DEGREE = 5  # of the smooth part on a line: what a network leaves of it falls with the sixth power of the spacing
_SPACING = 1e-4
_WIDER = (1e-3, 1e-2)  # where answers are rounded so coarsely that neighbours agree
_CLOSER = (1e-5, 1e-6, 1e-7)  # where what was seen may be a steep function
_FALLS = 0.3  # factor by which noise does not fall on closer points
_AGREE = 0.3  # fraction of exactly equal neighbours from which on the spacing is too small for the rounding
_REPEATED = 1e-13  # relative difference that another order of summation can make
_BENT = 10.0  # a line whose residual is this many times the usual one has a kink


class NoiseLevel(NamedTuple):
    """What `measure_noise` found.

    Attributes
    ----------
    std : ndarray of shape (m_L,)
        Standard deviation of every output's noise, in the units of the answers.
    repeatable : bool
        Whether the same rows got the same answers again.
    """

    std: np.ndarray
    repeatable: bool


def measure_noise(oracle, U, rng, *, n_lines=4):
    """Standard deviation of the noise in a black box's answers, also of noise that repeats itself, as rounding does.

    Parameters
    ----------
    oracle : Oracle
        Asked in its standardised coordinates.
    U : ndarray of shape (n, D)
        Where the black box is used; lines start at random rows.
    rng : numpy.random.RandomState
    n_lines : int, default=4

    Returns
    -------
    std : ndarray of shape (m_L,)
        In the units of the answers: an estimate of the root mean square noise of every output. About 1e-16 of the
        answers for exact float64 arithmetic; 0 for an output that is constant there.
    repeatable : bool
        Whether the same rows got the same answers (to rounding) in another order.

    Raises
    ------
    BlackBoxError
        If the black box fails.

    Notes
    -----
    On a line of 11 points spaced by h a polynomial of degree 5 is fitted; the residual's 11 - 6 = 5 degrees of freedom
    hold the noise, and of a function that bends over a length a only about ``(2.5 h / a)^6 / 360``. This is the
    statistically efficient form of a difference table (Moré and Wild, "Estimating computational noise", SIAM J. Sci.
    Comput. 33, 2011). Lines that meet a kink are left out as outliers. Rounding coarser than the answers' change
    from point to point would not show; there the spacing grows tenfold, twice at most. Where more than rounding is
    left, it shrinks as long as that makes it less: noise does not depend on the spacing, a steep function does.
    ``11 (n_lines + 1)`` queries, ``11 n_lines`` more for every other spacing. The estimate is good to about 15 %.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle, measure_noise
    >>> box = lambda X: np.tanh(X @ [1.0, 2.0]).round(4)
    >>> U = np.random.RandomState(0).standard_normal((50, 2))
    >>> std, repeatable = measure_noise(Oracle(box, 2), U, np.random.RandomState(0))
    >>> print(repeatable, 1e-5 < std[0] < 1e-4)
    True True
    """
    lines = _Lines(oracle, U[rng.randint(len(U), size=n_lines)], rng)
    F = lines.at_spacing(_SPACING)
    again = lines.at_spacing(_SPACING, 1)[0]
    largest = np.abs(F).max(axis=(0, 1))
    with_offset = largest + np.abs(oracle.output_center / oracle.output_scale)
    repeatable = bool(np.all(np.abs(again - F[0]).max(axis=0) <= _REPEATED * with_offset))
    std, agree = _residual_std(F), _agreeing(F)
    coarse = agree > _AGREE
    for spacing in _WIDER:
        if not coarse.any():
            break
        F = lines.at_spacing(spacing)
        wider = _residual_std(F)
        # Rounded answers differ by whole units, more than the residual; saturated ones begin to move smoothly.
        std = np.where(coarse & (_smallest_move(F) >= wider), wider, std)
        coarse &= _agreeing(F) > _AGREE
    steep = (agree <= _AGREE) & (std > 64 * np.finfo(float).eps * with_offset)
    for spacing in _CLOSER:
        if not steep.any():
            break
        F = lines.at_spacing(spacing)
        closer = _residual_std(F)
        steep &= (closer < _FALLS * std) & (_agreeing(F) <= _AGREE)
        std = np.where(steep, closer, std)
    return NoiseLevel(std, repeatable)


class _Lines:
    """Equally spaced points on short lines."""

    def __init__(self, oracle, starts, rng):
        self.oracle, self.starts, self.directions = oracle, starts, rng.standard_normal(starts.shape)

    def at_spacing(self, spacing, n_lines=None):
        """Answers (n_lines, _POINTS, m_L)."""
        steps = spacing * np.arange(_POINTS)[None, :, None]
        U = self.starts[:n_lines, None] + steps * self.directions[:n_lines, None]
        return self.oracle(U.reshape(-1, self.oracle.n_inputs)).reshape(len(U), _POINTS, -1)


def _agreeing(F):
    """Fraction of neighbours with equal answers, (m_L,)."""
    return np.mean(np.diff(F, axis=1) == 0, axis=(0, 1))


def _smallest_move(F):
    """The smallest difference of neighbours that differ, (m_L,); infinite where none do."""
    moves = np.abs(np.diff(F, axis=1))
    return np.where(moves > 0, moves, np.inf).min(axis=(0, 1))


def _residual_std(F):
    """Root mean square residual an output, (m_L,), of polynomials on lines (k, n, m_L), without the bent ones."""
    Q, _ = np.linalg.qr(chebyshev.chebvander(np.linspace(-1, 1, _POINTS), _DEGREE))
    F = F - F[:, :1]  # else the projection's own rounding is that of the offset
    residual = F - Q @ (Q.T @ F)
    variance = np.sum(residual**2, axis=1) / (_POINTS - _DEGREE - 1)
    # Rounded answers can be constant on a line, or linear by chance; neither tells what a usual residual is.
    moves = np.ptp(F, axis=1) > 0
    moves |= ~moves.any(axis=0)
    usual = np.nanquantile(np.where(moves, variance, np.nan), 2 / 3, axis=0, method="higher")
    used = moves & (variance <= _BENT**2 * usual)
    return np.sqrt(np.sum(variance * used, axis=0) / used.sum(axis=0))


def above_rounding(noise, Y):
    """Noise of every output, (m_L,), and at least rounding; None where there is no more than rounding.

    Parameters
    ----------
    noise : float, ndarray of shape (m_L,) or None
        Standard deviation, absolute.
    Y : ndarray of shape (n, m_L)
        Answers; their rounding is taken as 64 units in the last place of the largest one.

    Returns
    -------
    ndarray of shape (m_L,) or None
    """
    rounding = 64 * np.finfo(float).eps * np.maximum(np.abs(Y).max(axis=0), np.finfo(float).tiny)
    sigma = np.broadcast_to(0.0 if noise is None else np.asarray(noise, dtype=float), Y.shape[1])
    return None if np.all(sigma <= rounding) else np.maximum(sigma, rounding)
