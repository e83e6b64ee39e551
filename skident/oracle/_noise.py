"""Measure the noise of a black box's outputs: the residual of smooth fits on short lines (ECnoise)."""

from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from skident.budget.constants import SUM_ROUNDING

ROUNDING_ULPS = 64  # ulps of the largest output that a network's own arithmetic may lose
_N_POINTS = 11  # per line: 5 degrees of freedom remain for the noise
_DEGREE = 5  # of the smooth part of a line; what a network adds to the residual falls with spacing^6
_SPACING = 1e-4  # standard deviations of an input: (2.5 h)^6 / 360 is far below eps for a unit of norm 1
_WIDER_SPACINGS = (1e-3, 1e-2)  # for outputs rounded so coarsely that neighboring points give equal ones
_CLOSER_SPACINGS = (1e-5, 1e-6, 1e-7)  # for what may be a steep function instead of noise
_NOISE_RATIO = 0.3  # noise does not depend on the spacing: a residual that falls below this factor is a function's
_MAX_EQUAL = 0.3  # share of equal neighbors above which the spacing is too small for the rounding
_NOISE_LINES = 24  # further lines for outputs that do not repeat: their noise to 6 % instead of 16 %
_CROSSED = 10.0  # residual of a line, over the usual one, above which it crosses an activation boundary


class NoiseLevel(NamedTuple):
    """Result of `measure_noise`.

    Attributes
    ----------
    std : ndarray of shape (m_L,)
        Standard deviation of every output's noise, in units of the outputs.
    repeatable : bool
        Whether the same inputs gave the same outputs again, to rounding.
    """

    std: np.ndarray
    repeatable: bool


def measure_noise(oracle, U, rng, *, n_lines=4):
    """Standard deviation of the noise in a black box's outputs, including deterministic noise such as rounding.

    Parameters
    ----------
    oracle : Oracle
        Queried in its standardized coordinates.
    U : ndarray of shape (n, D)
        Typical points; lines start at random rows.
    rng : numpy.random.RandomState
    n_lines : int, default=4

    Returns
    -------
    NoiseLevel
        `std` (m_L,) is good to about 15 %, and to 6 % if outputs do not repeat: 1e-16 of the outputs for float64
        arithmetic, 0 for a constant output.

    Notes
    -----
    On a line of 11 points of spacing h, a polynomial of degree 5 is fitted. The 5 degrees of freedom of the residual
    hold the noise; a function that bends over a length a adds only about ``(2.5 h / a)^6 / 360``. This is the
    statistically efficient form of the difference table of Moré and Wild, "Estimating computational noise", SIAM J.
    Sci. Comput. 33 (2011). Lines that cross an activation boundary are left out as outliers. If neighboring outputs are
    equal, the spacing grows tenfold, at most twice. If the residual exceeds rounding, the spacing shrinks as long as
    the residual does: noise does not depend on the spacing, a steep function does. ``11 (n_lines + 1)`` queries,
    ``11 n_lines`` per further spacing, and 264 if outputs do not repeat.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.oracle import Oracle, measure_noise
    >>> model = lambda X: np.tanh(X @ [1.0, 2.0]).round(4)
    >>> U = np.random.RandomState(0).standard_normal((50, 2))
    >>> std, repeatable = measure_noise(Oracle(model, 2), U, np.random.RandomState(0))
    >>> print(repeatable, 1e-5 < std[0] < 1e-4)
    True True
    """
    lines = _Lines(oracle, U, n_lines, rng)
    F = lines.query(_SPACING)
    again = lines.query(_SPACING, 1)[0]
    with_offset = np.abs(F).max(axis=(0, 1)) + np.abs(oracle.output_center / oracle.output_scale)
    repeatable = bool(
        np.all(np.abs(again - F[0]).max(axis=0) <= SUM_ROUNDING * with_offset + _input_rounding(oracle, F))
    )
    std, equal = _residual_std(F), _equal_neighbors(F)
    if not repeatable:
        std = _residual_std(_Lines(oracle, U, _NOISE_LINES, rng).query(_SPACING))
    coarse = equal > _MAX_EQUAL
    for spacing in _WIDER_SPACINGS:
        if not coarse.any():
            break
        F = lines.query(spacing)
        wider = _residual_std(F)
        # Rounded outputs differ by whole units, more than the residual; saturated ones begin to move smoothly.
        std = np.where(coarse & (_smallest_change(F) >= wider), wider, std)
        coarse &= _equal_neighbors(F) > _MAX_EQUAL
    steep = (equal <= _MAX_EQUAL) & (std > ROUNDING_ULPS * np.finfo(float).eps * with_offset)
    for spacing in _CLOSER_SPACINGS:
        if not steep.any():
            break
        F = lines.query(spacing)
        closer = _residual_std(F)
        steep &= (closer < _NOISE_RATIO * std) & (_equal_neighbors(F) <= _MAX_EQUAL)
        std = np.where(steep, closer, std)
    return NoiseLevel(std, repeatable)


class _Lines:
    """Equally spaced points on short lines through random rows of U (n, D)."""

    def __init__(self, oracle, U, n_lines, rng):
        self.oracle, self.starts = oracle, U[rng.randint(len(U), size=n_lines)]
        self.directions = rng.standard_normal(self.starts.shape)

    def query(self, spacing, n_lines=None):
        """Outputs (n_lines, _N_POINTS, m_L); an output that rests and then moves at every step is shown as resting."""
        steps = spacing * np.arange(_N_POINTS)[None, :, None]
        U = self.starts[:n_lines, None] + steps * self.directions[:n_lines, None]
        F = self.oracle(U.reshape(-1, self.oracle.n_inputs)).reshape(len(U), _N_POINTS, -1)
        moves = np.diff(F, axis=1) != 0
        n_changes = np.diff(moves, axis=1).sum(axis=1)
        crosses = n_changes == 1  # a boundary; the steps of rounding come and go
        return np.where(crosses[:, None], F[:, :1], F)


def _input_rounding(oracle, F):
    """Changes (m_L,) of outputs F (n_lines, n, m_L) that the rounding of inputs far from 0 can make."""
    steepest = np.abs(np.diff(F, axis=1)).max(axis=(0, 1)) / _SPACING
    return ROUNDING_ULPS * np.finfo(float).eps * np.max(np.abs(oracle.center) / oracle.scale) * steepest


def _equal_neighbors(F):
    """Share (m_L,) of neighboring points with equal outputs, on lines where the output varies; 1 if it does nowhere.

    A line on which an output is constant may lie where the units that it reads are off.
    """
    equal = np.mean(np.diff(F, axis=1) == 0, axis=1)
    varies = equal < 1
    return np.where(varies.any(axis=0), np.sum(equal * varies, axis=0) / np.maximum(varies.sum(axis=0), 1), 1.0)


def _smallest_change(F):
    """Smallest nonzero difference (m_L,) of neighboring outputs; infinite if all are equal."""
    changes = np.abs(np.diff(F, axis=1))
    return np.where(changes > 0, changes, np.inf).min(axis=(0, 1))


def _residual_std(F):
    """Root mean square residual (m_L,) of polynomial fits to the lines F (k, n, m_L), without outliers."""
    Q, _ = np.linalg.qr(chebyshev.chebvander(np.linspace(-1, 1, _N_POINTS), _DEGREE))
    F = F - F[:, :1]  # else the projection's own rounding is that of the offset
    residual = F - Q @ (Q.T @ F)
    variance = np.sum(residual**2, axis=1) / (_N_POINTS - _DEGREE - 1)
    # Rounded outputs can be constant on a line, or linear by chance: such lines do not define the usual residual.
    varies = np.ptp(F, axis=1) > 0
    varies |= ~varies.any(axis=0)
    usual = np.nanquantile(np.where(varies, variance, np.nan), 2 / 3, axis=0, method="higher")
    used = varies & (variance <= _CROSSED**2 * usual)
    return np.sqrt(np.sum(variance * used, axis=0) / used.sum(axis=0))


def above_rounding(noise, Y):
    """Noise of every output, at least its rounding; None if all noise is below rounding.

    Parameters
    ----------
    noise : float, ndarray of shape (m_L,) or None
        Standard deviation, absolute.
    Y : ndarray of shape (n, m_L)
        Outputs; their rounding is taken as 64 ulps of the largest one.

    Returns
    -------
    ndarray of shape (m_L,) or None
    """
    rounding = ROUNDING_ULPS * np.finfo(float).eps * np.maximum(np.abs(Y).max(axis=0), np.finfo(float).tiny)
    sigma = np.broadcast_to(0.0 if noise is None else np.asarray(noise, dtype=float), Y.shape[1])
    return None if np.all(sigma <= rounding) else np.maximum(sigma, rounding)
