"""Lengths of first-layer weights from how fast the answers settle far from a unit's hyperplane."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..query_points import query_block, random_tangents

__all__ = ["Tails", "norms_from_tails", "tail_norms"]

_RATES = {"tanh": 2.0, "sigmoid": 1.0}  # limits are approached as exp(-rate z)
_REACH = np.geomspace(0.05, 600.0, 48)  # where to look, in units of 1 / |w| as known
_LARGE, _SMALL = 1e-3, 3e-10  # relative deviations from the limit between which a tail is fitted
_PRECISE = 2e-11 / 2.0**-52  # smallest deviations of a tail, in units of the answers' rounding
_NODES = 14
_POWERS = 4
_LINES, _MORE_LINES = 3, 9  # places along a hyperplane, each with two sides; as many where no tail was clean
_STEADY = 3e-5  # misfit of a tail, relative at every node, that can be relied on


@dataclass(frozen=True)
class Tails:
    """What the tails of units on one side tell.

    Attributes
    ----------
    norms : ndarray of shape (m,)
        As they were where there is no tail to see.
    errors : ndarray of shape (m,)
        Relative misfits of the tails; infinite where there is none.
    distances : ndarray of shape (m, q)
        From the hyperplanes, where the answers were looked at.
    answers : ndarray of shape (m, q, m_L)
    """

    norms: np.ndarray
    errors: np.ndarray
    distances: np.ndarray
    answers: np.ndarray


def norms_from_tails(oracle, first, activation, rng):
    """First-layer units with lengths from their tails.

    Parameters
    ----------
    oracle : Oracle
    first : FirstLayer
        Directions exactly, lengths within a factor of ten.
    activation : str
        tanh or sigmoid; others are left as they are.
    rng : numpy.random.RandomState

    Returns
    -------
    FirstLayer
        Weights stretched, shifts so that the hyperplanes stay.

    Notes
    -----
    With all other units saturated, the answer at a distance s from unit i's hyperplane is an analytic function of
    ``v = exp(-rate |w_i| s)``, whatever follows: ``f = f_inf + c_1 v + c_2 v^2 + ...``. The shape near the hyperplane
    depends on what follows, and misleads where that is steep; the rate of the tail does not. ``|w_i|`` is the one
    unknown that is left when the ``c`` are eliminated, with relative weights from 3e-10 to 1e-3 of the step.
    About ``6 (48 + 14)`` queries a unit, three times as many at most where no tail is clean, as where a classifier's
    logits are lost; units without a clean tail keep their lengths.
    """
    if activation not in _RATES:
        return first
    lengths = first.norms
    best, misfit = lengths.copy(), np.full(len(lengths), _STEADY)
    for line in range(_MORE_LINES):
        base = first.points + random_tangents(first.directions.T, first.radius, rng) if line else first.points
        some = np.arange(len(lengths)) if line < _LINES else np.flatnonzero(misfit == _STEADY)
        if len(some) == 0:
            break
        for side in (1.0, -1.0):
            normals = side * first.directions[:, some]
            tails = tail_norms(oracle, base[some], normals, lengths[some], activation)
            better = tails.errors < misfit[some]
            best[some[better]], misfit[some[better]] = tails.norms[better], tails.errors[better]
    weights = first.weights * (best / lengths)
    return replace(first, weights=weights, biases=first.biases * (best / lengths))


def tail_norms(oracle, base, normals, lengths, activation, reach=_REACH):
    """Lengths of units from their tails on one side.

    Parameters
    ----------
    oracle : Oracle
    base : ndarray of shape (m, D)
        A point on every unit's hyperplane where all others are saturated.
    normals : ndarray of shape (D, m)
        Unit vectors, away from the hyperplane.
    norms : ndarray of shape (m,)
        As known.
    activation : {"tanh", "sigmoid"}
    reach : ndarray of shape (q,), default=geomspace(0.05, 600, 48)
        Where the end of the tail is looked for, in units of ``1 / length``.

    Returns
    -------
    Tails
    """
    rate, m = _RATES[activation], len(lengths)
    found, error = lengths.copy(), np.full(m, np.inf)
    s = reach / lengths[:, None]
    F = _along(oracle, base, normals, s)
    height = np.abs(F - F[:, -1:]).max(axis=(1, 2))
    deviation = np.linalg.norm(F - F[:, -1:], axis=2) / np.maximum(height, np.finfo(float).tiny)[:, None]
    # A step that is small beside the answers is lost in their rounding sooner.
    lost = _PRECISE * oracle.accuracy.eps
    least = np.maximum(_SMALL, lost * np.abs(F).max(axis=(1, 2)) / np.maximum(height, np.finfo(float).tiny))
    above, seen = _last(deviation > _LARGE), _last(deviation > least[:, None])
    some = np.flatnonzero((above >= 0) & (seen > above + 1) & (seen < len(reach) - 2))
    if len(some) == 0:
        return Tails(found, error, s, F)
    near, far = s[some, above[some], None], s[some, seen[some], None]
    nodes = near + (far - near) * np.linspace(0.0, 1.0, _NODES)
    D = _along(oracle, base[some], normals[:, some], nodes) - F[some, -1:]
    for k, i in enumerate(some):
        found[i], error[i] = _rate_of(nodes[k], D[k], rate)
    return Tails(found, error, s, F)


def _last(seen):
    """The last true column of every row (m, k); -1 where there is none, as for a step that is lost in rounding."""
    return np.where(seen.any(axis=1), seen.shape[1] - 1 - np.argmax(seen[:, ::-1], axis=1), -1)


def _along(oracle, base, normals, s):
    """Answers at distances s (m, k) from the base points, (m, k, m_L)."""
    return query_block(oracle, base[:, None] + s[:, :, None] * normals.T[:, None])


def _rate_of(s, D, rate):
    """Length a whose powers of ``exp(-rate a s)`` explain the deviations D (k, m_L) best, and the relative misfit."""
    size = np.linalg.norm(D, axis=1)
    if size.min() <= 0:
        return 1.0, np.inf
    weighted = D / size[:, None]

    def misfits(a):
        V = np.exp(-rate * a[:, None] * (s - s[0]))[..., None] ** np.arange(1, _POWERS + 1) / size[:, None]
        Q, _ = np.linalg.qr(V / np.linalg.norm(V, axis=1, keepdims=True))
        return np.linalg.norm(weighted - Q @ (np.swapaxes(Q, 1, 2) @ weighted), axis=(1, 2)) / np.sqrt(len(s))

    # The far half of the tail is nearly one exponential: its slope is a start good to some per cent.
    half = len(s) // 2
    a = -np.polyfit(s[half:], np.log(size[half:]), 1)[0] / rate
    if not a > 0:
        return 1.0, np.inf
    width = 0.2
    for _ in range(14):
        trials = a * (1.0 + width * np.linspace(-1.0, 1.0, 21))
        left = misfits(trials)
        a, least, width = trials[int(np.argmin(left))], float(left.min()), width * 0.2
        if width < 1e-11:
            break
    return a, least
