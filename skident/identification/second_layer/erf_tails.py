"""Lengths and shifts of erf units from how fast the answers settle far from their hyperplanes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import erfcx

from skident.optim import BatchedNormalEquations, Ending, batched_levenberg_marquardt

from ..query_points import query_block
from .kernel.patch import rays_of_one_unit

__all__ = ["erf_norms_and_biases"]

_PLACES = 2  # along every unit's hyperplane, each with two sides
_REACH = np.geomspace(0.02, 60.0, 40)  # how far a tail is followed, in units of 1 / |w|
_MARGIN = 300.0  # |z| of all other units there
_LARGE, _SMALL = 3e-2, 1e-10  # relative deviations from the limit between which a tail is fitted
_PRECISE = 1e-11 / 2.0**-52  # smallest deviations of a tail, in units of the answers' rounding
_NODES, _POWERS = 20, 4
_STEP = 1e-6  # of the derivatives
_LENGTHS, _SHIFTS = np.geomspace(0.4, 2.5, 5), np.linspace(-1.2, 1.2, 5)  # starts, lengths times the one that is known
_ALIKE, _STEADY = 1e-2, 1e-3  # relative difference of two votes that are one, and misfit of a tail that counts


def erf_norms_and_biases(oracle, first, rng):
    """Units with the lengths and shifts that most of their tails agree on.

    Parameters
    ----------
    oracle : Oracle
        With exact answers.
    first : FirstLayer
        Directions exactly, lengths within a factor of three.
    rng : numpy.random.RandomState

    Returns
    -------
    first : FirstLayer
        Weights stretched, shifts so that the hyperplanes stay.
    shifts : ndarray of shape (m_1,)
        What is to be added to these pre-activations.
    support : ndarray of int, shape (m_1,)
        How many of four tails agree.

    Notes
    -----
    With all other units saturated, the answer at a distance s from unit i's hyperplane is an analytic function of
    ``v = erfc(z)``, ``z = |w_i| s + b_i``, whatever follows: ``f = f_inf + c_1 v + c_2 v^2 + ...``. As v falls like
    ``exp(-z^2)``, length and shift both show. Levenberg-Marquardt on the two, the c eliminated, deviations relative at
    every node. 240 queries a unit.
    """
    m, lengths = len(first.biases), first.norms
    votes = np.full((2 * _PLACES, m, 3), np.nan)  # length, shift, misfit
    for unit in range(m):
        base, rays, starts = rays_of_one_unit(
            first.weights, first.biases, unit, _PLACES, rng, margin=_MARGIN, farthest=0.5 * min(oracle.reach, 1e6)
        )
        for k, point in enumerate(base + starts[:, None] * rays):
            for side, sign in enumerate((1.0, -1.0)):
                a, b, misfit = _tail(oracle, point, sign * first.directions[:, unit], lengths[unit])
                votes[2 * k + side, unit] = a, sign * b, misfit
    found, shifts, support = _count(votes, lengths)
    stretch = found / lengths
    return replace(first, weights=first.weights * stretch, biases=first.biases * stretch), shifts, support


def _tail(oracle, base, normal, length):
    """Length, shift and misfit of one tail; the misfit is infinite where there is none to see."""
    s = _REACH / length
    F = query_block(oracle, base + s[:, None] * normal)
    D = np.linalg.norm(F - F[-1], axis=1)
    height = max(D.max(), np.finfo(float).tiny)
    least = max(_SMALL, _PRECISE * oracle.accuracy.eps * np.abs(F).max() / height)
    above, seen = (np.flatnonzero(D > limit * height) for limit in (_LARGE, least))
    if min(len(above), len(seen)) == 0 or seen[-1] <= above[-1] + 1 or seen[-1] >= len(s) - 2:
        return length, 0.0, np.inf
    nodes = np.linspace(s[above[-1]], s[seen[-1]], _NODES)
    problem = _Tails(nodes, query_block(oracle, base + nodes[:, None] * normal) - F[-1])
    starts = np.array([(np.log(length * a), b) for a in _LENGTHS for b in _SHIFTS])
    with np.errstate(over="ignore"):
        result = batched_levenberg_marquardt(problem, starts, Ending(max_iter=25, ftol=1e-6, rounding=1e-26))
    best = int(np.argmin(result.cost))
    return float(np.exp(result.x[best, 0])), float(result.x[best, 1]), float(np.sqrt(result.cost[best] / _NODES))


class _Tails:
    """Relative deviations explained by powers of ``erfc(e^x0 s + x1)``, for many x (B, 2) at once."""

    def __init__(self, s, D):
        self.s, self.size = s, np.maximum(np.linalg.norm(D, axis=1), np.finfo(float).tiny)
        self.D = D / self.size[:, None]

    def take(self, index):
        return self

    def move(self, x, steps):
        return x + steps

    def residual(self, x):
        """What is left (B, nodes, m_L)."""
        z = np.exp(np.clip(x[:, :1], -30.0, 30.0)) * self.s + x[:, 1:]
        with np.errstate(over="ignore", invalid="ignore"):
            log_v = np.log(erfcx(z)) - z**2
            log_v = log_v[..., None] * np.arange(1, _POWERS + 1) - np.log(self.size)[:, None]
            V = np.exp(log_v - log_v.max(axis=1, keepdims=True))
        V = np.where(np.isfinite(V), V, 0.0)
        Q, _ = np.linalg.qr(V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), np.finfo(float).tiny))
        return self.D - Q @ (np.swapaxes(Q, 1, 2) @ self.D)

    def cost(self, x):
        return np.sum(self.residual(x) ** 2, axis=(1, 2))

    def linearise(self, x):
        left = self.residual(x).reshape(len(x), -1)
        moved = [(self.residual(x + _STEP * e) - self.residual(x - _STEP * e)) / (2.0 * _STEP) for e in np.eye(2)]
        J = np.stack(moved, axis=1).reshape(len(x), 2, -1)
        return BatchedNormalEquations(J @ np.swapaxes(J, 1, 2), np.einsum("bjn,bn->bj", J, left), longest=np.ones(2))


def _count(votes, lengths):
    """The best of every unit's largest group of votes (2 P, m, 3): lengths, shifts, sizes of the groups."""
    a, b, misfit = np.moveaxis(np.where(votes[..., 2:] < _STEADY, votes, np.nan), 2, 0)
    with np.errstate(invalid="ignore"):
        alike = (np.abs(a[:, None] / a[None] - 1.0) < _ALIKE) & (np.abs(b[:, None] - b[None]) < _ALIKE)
    sizes = alike.sum(axis=1)
    in_largest = (sizes == sizes.max(axis=0)) & np.isfinite(a)
    chosen, units = np.argmin(np.where(in_largest, misfit, np.inf), axis=0), np.arange(a.shape[1])
    told = np.isfinite(a[chosen, units])
    found, shifts = (np.where(told, x[chosen, units], y) for x, y in ((a, lengths), (b, 0.0)))
    return found, shifts, np.where(told, sizes[chosen, units], 0)
