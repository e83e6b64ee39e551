"""What answers do far out: settle, grow like a power of the distance, swing; and whether they are polynomials."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev

__all__ = ["growth", "polynomial_degree"]

_RAYS, _RADII = 12, (1e3, 1e4, 1e5)
_SETTLED = 1e-7  # change from radius to radius, beside the answers' own, from which they have settled
_BOUNDED = 3.0  # ratio of the largest answers at all radii, of bounded ones
_SWING = 0.05  # change from radius to radius, beside the answers' spread, of answers that swing
_POWER = 0.02  # error of an exponent of growth
_LINES, _POINTS = 3, 33  # on which polynomials are fitted
_POLYNOMIAL = 1e-10  # residual beside the values that is none


def growth(oracle, rng, noise=0.0):
    """The class of growth: what the answers do along rays from the centre.

    Parameters
    ----------
    oracle : Oracle
    rng : numpy.random.RandomState
    noise : float or ndarray of shape (m_L,), default=0.0
        Standard deviation of the answers' errors beyond rounding.

    Returns
    -------
    kind : {"settles", "swings", "power", "unclear"}
    exponent : float
        Of ``"power"``: 1 for answers that grow linearly.

    Notes
    -----
    ``36`` queries a radius, at one to three radii: answers at r, 2 r and 4 r. Those of units that hardly depend on a
    ray settle late, so three rays in four must agree.
    """
    E = rng.standard_normal((_RAYS, oracle.n_inputs))
    exponent, spreads, moves = np.nan, [], []
    for radius in _RADII:
        Y = oracle(np.concatenate([k * radius * E for k in (1.0, 2.0, 4.0)])).reshape(3, _RAYS, -1)
        spread = np.maximum(np.abs(Y - Y[0].mean(axis=0)).max(axis=(0, 1)), 1e-300)
        near, far = (np.max(np.abs(Y[k + 1] - Y[k]) / spread, axis=1) for k in (0, 1))
        if np.mean(np.maximum(near, far) < _SETTLED + 16.0 * np.max(noise / spread)) >= 0.75:
            return "settles", 0.0
        moving = near > 1e-4 * near.max()
        exponents = np.log2(np.maximum(far[moving], 1e-300) / near[moving])
        exponent = float(np.median(exponents))
        steady = np.mean(np.abs(exponents - round(exponent)) < _POWER) >= 0.75
        if steady and round(exponent) >= 1:
            return "power", float(round(exponent))
        spreads.append(float(spread.max()))
        moves.append(float(np.median(near)) if np.ptp(exponents) > 0.5 else 0.0)
    bounded = max(spreads) < _BOUNDED * min(spreads)
    return ("swings" if bounded and min(moves) > _SWING else "unclear"), exponent


def polynomial_degree(oracle, rng, degrees, noise=0.0):
    """The first of some degrees of which the answers are polynomials on lines through the centre; None if none.

    Parameters
    ----------
    oracle : Oracle
    rng : numpy.random.RandomState
    degrees : sequence of int
    noise : float or ndarray of shape (m_L,), default=0.0
        Standard deviation of the answers' errors beyond rounding.

    Returns
    -------
    int or None
    """
    E, t = rng.standard_normal((_LINES, oracle.n_inputs)), np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS)
    Y = oracle((3.0 * t[:, None, None] * E).reshape(-1, oracle.n_inputs)).reshape(_POINTS, -1)
    for degree in degrees:
        Q, _ = np.linalg.qr(chebyshev.chebvander(t, degree))
        if np.abs(Y - Q @ (Q.T @ Y)).max() <= _POLYNOMIAL * np.abs(Y).max() + 16.0 * np.max(noise):
            return degree
    return None
