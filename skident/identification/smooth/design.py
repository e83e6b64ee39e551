"""How many units are free, and at how many places, so that few queries determine the units of the second layer."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, comb, inf

__all__ = ["Design", "cheapest_design", "fill"]

_FILL = 0.8  # second-layer units over square-free products, at most: generic units are the only ones in their span
_WIDE_FILL = 0.5  # same behind wide first layers, whose further units are many: errors of derivatives matter more
_ORDERS = range(2, 5)  # of the derivatives
_TWICE_ORDERS = range(2, 4)  # same, if products may have one entry twice
_STEPS = 2  # of differences of order three and more: their truncation is mostly too large for one
_CONTEXTS = 1.35  # equations per second-layer unit
_MORE_CONTEXTS = 2  # in addition, for few units
_SHARE_OF_CONTEXTS = 0.8  # of the sign patterns of the other units, that random rays reach


@dataclass(frozen=True)
class Design:
    """Derivatives of `order` by `n_free` units; `group` further units at a time at `n_further` places; queries.

    If `twice`, products with one entry squared count too, and `n_lower` derivatives of lower order with them.
    """

    order: int
    n_free: int
    group: int
    n_further: int
    n_queries: float
    twice: bool = False

    @property
    def n_lower(self):
        """Derivatives of lower order that the products need."""
        return comb(self.n_free, self.order - 1) if self.twice else 0


def fill(n_inputs, m_1):
    """Share of the products up to which a span of units is believed."""
    return _WIDE_FILL if m_1 >= 3 * n_inputs else _FILL


def n_contexts(n_inputs, m, n_free, held=False):
    """Number of places where some units are at z = 0: sign patterns of the others; infinite if all can be chosen.

    If others may be `held` at levels, there are as many as wanted from two directions on.
    """
    if m <= n_inputs:
        return inf if n_free < m else 1.0
    if held and n_inputs >= n_free + 2:
        return inf
    return 2.0 * sum(comb(m - n_free - 1, j) for j in range(n_inputs - n_free)) if n_inputs > n_free else 0.0


def cheapest_design(n_inputs, m_1, m_2, n_outputs):
    """The design with the fewest queries for so many second-layer units; None if there is none."""
    kinds = [(order, False) for order in _ORDERS] + [(order, True) for order in _TWICE_ORDERS]
    designs = [_design(n_inputs, m_1, m_2, n_outputs, *kind) for kind in kinds]
    return min((d for d in designs if d is not None), key=lambda design: design.n_queries, default=None)


def _design(n_inputs, m_1, m_2, n_outputs, p, twice):
    """The design of one order, with the fewest free units."""
    numbers = ((k, n_products(k, p, twice)) for k in range(p + 1, min(m_1, n_inputs) + 1))
    k = next((k for k, d in numbers if fill(n_inputs, m_1) * d >= m_2 <= d - k), None)
    if k is None:
        return None
    n = _CONTEXTS * (m_2 + (comb(k, p - 1) if twice else 0)) / n_outputs + _MORE_CONTEXTS
    if n > _SHARE_OF_CONTEXTS * n_contexts(n_inputs, m_1, k, twice):
        return None
    upper, lower = (_n_points(k, q, twice) for q in (p, p - 1))
    if p > 2:
        upper, lower = _STEPS * upper, _STEPS * lower
    cost = n * upper
    if m_1 == k:
        return Design(p, k, 0, 0, cost, twice)
    n_further = ceil(1.3 * m_2 / (n_outputs * n_products(k, p - 1, twice)) + (not twice))
    best = None
    for group in range(1, m_1 - k + 1):
        last = m_1 <= n_inputs and k + group == m_1 and n_products(k - 1, p, twice) >= m_2  # beside one unit less
        some = n_contexts(n_inputs, m_1, k + group) >= n_further and (m_1 <= n_inputs or k + group < n_inputs)
        if last or some:
            total = cost + ceil((m_1 - k) / group) * n_further * (upper + group * lower)
            if best is None or total < best.n_queries:
                best = Design(p, k, group, n_further, total, twice)
    return best


def n_products(k, p, twice):
    """Products of p of k entries, all different; if `twice`, also those with one of them squared."""
    return comb(k, p) + (k * comb(k - 1, p - 2) if twice and p > 1 else 0)


def _n_points(k, p, twice):
    """Points of the differences of these at one place."""
    return 2 * sum(comb(k, q) for q in range(p + 1)) + (k * (k - 1) if twice and p > 2 else 0)
