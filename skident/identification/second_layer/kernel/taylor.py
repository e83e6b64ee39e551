"""Taylor coefficients on patches, as packed symmetric tensors in hidden coordinates."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from skident.linalg import n_symmetric_entries, symmetric_power

from ...query_points import query_block

__all__ = ["TaylorRule", "choose_reach", "probing_directions", "taylor_coefficients"]

_SETS = 400  # of axes that a direction may combine, at most
_SHRINK, _REACHES = 0.7, 12  # from one reach to the next that is tried, and how many there are
_WORSE = 2  # reaches in a row that are worse than the best one: rounding grows from there on
_LINES = 8  # along which reaches are compared


@dataclass(frozen=True)
class TaylorRule:
    """How Taylor coefficients are read off answers.

    Attributes
    ----------
    order : int
        p, the highest.
    reach : float
        How far along a direction of hidden coordinates the outermost nodes lie.
    n_pairs : int
        Pairs of Chebyshev nodes along it.
    cubic : bool, default=False
        Whether the reach is that of the coordinate that moves most, as suits a cube, or that of all together.
    """

    order: int
    reach: float
    n_pairs: int
    cubic: bool = False

    @property
    def nodes(self):
        """Relative to `reach`, the positive ones: (n_pairs,)."""
        return np.cos((2.0 * np.arange(1, self.n_pairs + 1) - 1.0) * np.pi / (4.0 * self.n_pairs))

    def scaled(self, directions):
        """What is reached is the rule's reach times these.

        Parameters
        ----------
        directions : ndarray of shape (v, k)
            Unit vectors.

        Returns
        -------
        ndarray of shape (v, k)
        """
        return directions / np.abs(directions).max(axis=1, keepdims=True) if self.cubic else directions

    def n_queries(self, n_free):
        """Queries a point with so many free units.

        Parameters
        ----------
        n_free : int
            k.

        Returns
        -------
        int
        """
        return 1 + 2 * self.n_pairs * n_symmetric_entries(n_free, self.order)


@functools.lru_cache(maxsize=16)
def probing_directions(n_free, order):
    """Unit vectors on which symmetric tensors are well determined by their values.

    Parameters
    ----------
    n_free, order : int
        k and p.

    Returns
    -------
    ndarray of shape (C(k + p - 1, p), k)
        Axes and combinations of up to p of them, or random ones: chosen by QR with pivoting of their symmetric powers.
    """
    k, rng, candidates = n_free, np.random.RandomState(0), []
    for size in range(1, min(k, order) + 1):
        sets = list(itertools.combinations(range(k), size))
        for axes in [sets[i] for i in rng.permutation(len(sets))[:_SETS]]:
            for signs in itertools.product([1.0, -1.0], repeat=size - 1):
                direction = np.zeros(k)
                direction[list(axes)] = (1.0, *signs)
                candidates.append(direction)
    candidates = np.concatenate([candidates, rng.standard_normal((2 * n_symmetric_entries(k, order), k))])
    candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
    pivots = scipy.linalg.qr(symmetric_power(candidates, order).T, pivoting=True, mode="r")[1]
    chosen = candidates[pivots[: n_symmetric_entries(k, order)]]
    chosen.flags.writeable = False
    return chosen


def taylor_coefficients(ask, patch, chart, rule):
    """Taylor coefficients of every output at every point of a patch.

    Parameters
    ----------
    ask : callable
        Points (n, D) to answers (n, m_L).
    patch : Patch
        With k free units and n points.
    chart : Chart
        Hidden coordinates of its free units.
    rule : TaylorRule
        With order p.

    Returns
    -------
    list of ndarray of shape (n, m_L, C(k + q - 1, q)), q = 0, ..., p
        Packed tensors ``T_q`` of ``f = sum_q T_q . h^{(x) q}``, h being the chart's coordinates.

    Notes
    -----
    Even and odd parts along each of ``C(k + p - 1, p)`` directions, at Chebyshev nodes; in hidden coordinates the
    function is smooth, so that nodes may lie far out, where rounding is divided by little.
    """
    directions = rule.scaled(probing_directions(len(patch.free), rule.order))
    along = _along(ask, patch, chart, rule, directions)
    return [a if q == 0 else a @ np.linalg.pinv(symmetric_power(directions, q)).T for q, a in enumerate(along)]


def _along(ask, patch, chart, rule, directions):
    """Answers at the points (n, m_L, 1) and coefficients along directions (n, m_L, v) of orders 1, ..., p."""
    x = rule.nodes
    H = np.concatenate([[np.zeros(len(directions[0]))], *(s * rule.reach * t * directions for t in x for s in (1, -1))])
    Y = np.swapaxes(query_block(ask, patch.at(chart.preactivations(H))), 1, 2)
    middle = Y[..., :1]
    moved = (Y[..., 1:] - middle).reshape(*Y.shape[:2], rule.n_pairs, 2, len(directions))
    even, odd = 0.5 * (moved[..., 0, :] + moved[..., 1, :]), 0.5 * (moved[..., 0, :] - moved[..., 1, :])
    degrees = 2.0 * np.arange(1, rule.n_pairs + 1)
    even = np.einsum("ab,nmbv->nmav", np.linalg.inv(x[:, None] ** degrees), even)
    odd = np.einsum("ab,nmbv->nmav", np.linalg.inv(x[:, None] ** (degrees - 1.0)), odd)
    parts = [(odd if q % 2 else even)[:, :, (q - 1) // 2] / rule.reach**q for q in range(1, rule.order + 1)]
    return [middle, *parts]


def choose_reach(ask, patch, chart, rule, rng):
    """The rule with the reach at which truncation and rounding of the highest order are least.

    Parameters
    ----------
    ask : callable
    patch : Patch
    chart : Chart
    rule : TaylorRule
        With the largest reach.
    rng : numpy.random.RandomState

    Returns
    -------
    TaylorRule
        With one of eleven reaches: the one that agrees best with the next smaller one along eight random directions.
    float
        How well, relative to the coefficients.
    """
    some = rng.permutation(len(patch.points))[:_LINES]
    directions = rng.standard_normal((1 + _LINES // len(some), len(patch.free)))
    directions = rule.scaled(directions / np.linalg.norm(directions, axis=1, keepdims=True))
    part = patch.some(some)
    rules = [replace(rule, reach=rule.reach * _SHRINK**j) for j in range(_REACHES)]
    before, errors, best = _along(ask, part, chart, rules[0], directions)[-1], [], 0
    for smaller in rules[1:]:
        seen = _along(ask, part, chart, smaller, directions)[-1]
        errors.append(np.linalg.norm(before - seen) / (np.linalg.norm(seen) + np.finfo(float).tiny))
        best, before = int(np.argmin(errors)), seen
        if len(errors) > best + _WORSE:
            break
    return rules[best], float(errors[best])
