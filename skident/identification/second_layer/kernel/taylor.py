"""Taylor coefficients of a black box on patches, as packed symmetric tensors in hidden coordinates."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import lapack, n_symmetric_entries, symmetric_power

from ...query_points import query_block

__all__ = ["TaylorRule", "choose_reach", "probing_directions", "taylor_coefficients"]

_MAX_AXIS_SETS = 400  # budget of candidate directions per number of combined axes: the pivoted QR takes a second beyond
_REACH_RATIO = 0.7  # of successive reaches tried: truncation falls by about 0.7^(2 n_pairs - order) each time
_N_REACHES = 12  # budget of reaches tried, down to 0.02 of the largest
_MAX_WORSE = 2  # reaches in a row that are worse than the best one: rounding only grows from there on
_REACH_LINES = 8  # budget of lines along which reaches are compared: each reach costs 2 n_pairs queries per line


@dataclass(frozen=True)
class TaylorRule:
    """Finite-difference rule for Taylor coefficients up to an order: Chebyshev nodes along directions.

    The outermost of `n_pairs` pairs of nodes lie at distance `reach`: of the largest coordinate if `in_cube`, else of
    all hidden coordinates together.
    """

    order: int
    reach: float
    n_pairs: int
    in_cube: bool = False

    @property
    def nodes(self):
        """The positive nodes relative to the reach, (n_pairs,)."""
        return np.cos((2.0 * np.arange(1, self.n_pairs + 1) - 1.0) * np.pi / (4.0 * self.n_pairs))

    def scaled(self, directions):
        """Unit vectors (v, k), scaled so that the reach applies to the largest coordinate if `in_cube`."""
        return directions / np.abs(directions).max(axis=1, keepdims=True) if self.in_cube else directions

    def with_reach(self, reach):
        """The same with another reach."""
        return replace(self, reach=reach)

    def n_queries(self, n_free):
        """Queries per point with k free units."""
        return 1 + 2 * self.n_pairs * n_symmetric_entries(n_free, self.order)


@functools.lru_cache(maxsize=16)
def probing_directions(n_free, order):
    """Unit vectors (C(k + p - 1, p), k) whose values determine a symmetric tensor well; read-only and cached.

    Axes and combinations of up to p of them, or random ones: chosen by pivoted QR of their symmetric powers.
    """
    k, rng, candidates = n_free, np.random.RandomState(0), []
    for size in range(1, min(k, order) + 1):
        sets = list(itertools.combinations(range(k), size))
        for axes in [sets[i] for i in rng.permutation(len(sets))[:_MAX_AXIS_SETS]]:
            for signs in itertools.product([1.0, -1.0], repeat=size - 1):
                direction = np.zeros(k)
                direction[list(axes)] = (1.0, *signs)
                candidates.append(direction)
    candidates = np.concatenate([candidates, rng.standard_normal((2 * n_symmetric_entries(k, order), k))])
    candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
    pivots = lapack.scipy_qr(symmetric_power(candidates, order).T, pivoting=True, mode="r")[1]
    chosen = candidates[pivots[: n_symmetric_entries(k, order)]]
    chosen.flags.writeable = False
    return chosen


def taylor_coefficients(query, patch, chart, rule):
    """Packed tensors ``T_q`` of ``f = sum_q T_q . h'^{(x) q}`` at every point of a patch, h' the chart's coordinates.

    A list for q = 0, ..., p of arrays (n, m_L, C(k + q - 1, q)). In hidden coordinates f is smooth, so that nodes may
    lie far out, where rounding is divided by little.
    """
    directions = rule.scaled(probing_directions(len(patch.free), rule.order))
    along = _coefficients_along(query, patch, chart, rule, directions)
    return [a if q == 0 else a @ lapack.pinv(symmetric_power(directions, q)).T for q, a in enumerate(along)]


def _coefficients_along(query, patch, chart, rule, directions):
    """Outputs at the points (n, m_L, 1), and coefficients (n, m_L, v) of orders 1, ..., p along directions (v, k)."""
    x = rule.nodes
    H = np.concatenate([[np.zeros(len(directions[0]))], *(s * rule.reach * t * directions for t in x for s in (1, -1))])
    Y = np.swapaxes(query_block(query, patch.at(chart.preactivations(H))), 1, 2)
    center = Y[..., :1]
    moved = (Y[..., 1:] - center).reshape(*Y.shape[:2], rule.n_pairs, 2, len(directions))
    even, odd = 0.5 * (moved[..., 0, :] + moved[..., 1, :]), 0.5 * (moved[..., 0, :] - moved[..., 1, :])
    degrees = 2.0 * np.arange(1, rule.n_pairs + 1)
    even = np.einsum("ab,nmbv->nmav", lapack.inv(x[:, None] ** degrees), even)
    odd = np.einsum("ab,nmbv->nmav", lapack.inv(x[:, None] ** (degrees - 1.0)), odd)
    parts = [(odd if q % 2 else even)[:, :, (q - 1) // 2] / rule.reach**q for q in range(1, rule.order + 1)]
    return [center, *parts]


def choose_reach(query, patch, chart, rule, rng):
    """The rule with the reach where truncation and rounding of the highest order are smallest, up to the rule's own.

    Of successively smaller reaches, the one whose coefficients along random directions agree best with the next.
    """
    some = rng.permutation(len(patch.points))[:_REACH_LINES]
    directions = rng.standard_normal((1 + _REACH_LINES // len(some), len(patch.free)))
    directions = rule.scaled(directions / np.linalg.norm(directions, axis=1, keepdims=True))
    part = patch.subset(some)
    rules = [rule.with_reach(rule.reach * _REACH_RATIO**j) for j in range(_N_REACHES)]
    before, errors, best = _coefficients_along(query, part, chart, rules[0], directions)[-1], [], 0
    for smaller in rules[1:]:
        after = _coefficients_along(query, part, chart, smaller, directions)[-1]
        errors.append(np.linalg.norm(before - after) / (np.linalg.norm(after) + np.finfo(float).tiny))
        best, before = int(np.argmin(errors)), after
        if len(errors) > best + _MAX_WORSE:
            break
    return rules[best]
