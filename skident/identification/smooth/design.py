"""How many units are free, and at how many places, so that few queries determine the units of the second layer."""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, comb, inf

_FILL = 0.8  # second-layer units over products, at most: generic units are the only ones in their span
_WIDE_FILL = 0.5  # of square-free products behind wide first layers: errors of derivatives matter more there
_ORDERS = range(2, 5)  # of the derivatives
_LEVEL_ORDERS = range(2, 4)  # of the derivatives at levels of the free units
_STEPS = 2  # of differences of order three and more: their truncation is mostly too large for one
_FEWER_KNOWN = 2  # free units that further ones may lack, for more places
_CONTEXTS = 1.35  # equations per second-layer unit
_MORE_CONTEXTS = 2  # in addition, for few units
_SHARE_OF_CONTEXTS = 0.8  # of the sign patterns of the other units, that random rays reach


@dataclass(frozen=True)
class Design:
    """Derivatives of `order` by `n_free` units, and queries.

    With `levels`, the free units are at many pre-activations, so that products may have entries twice. Of `n_joint`
    outputs, products with the output weights count. `fill`: units over products, at most. `group` further units at a
    time are measured beside `n_known` free ones at `n_further` places, by derivatives of `further_order`.
    """

    order: int
    n_free: int
    n_queries: float
    levels: bool
    n_joint: int
    fill: float
    n_known: int = 0
    further_order: int = 0
    group: int = 0
    n_further: int = 0

    def most(self, n_products):
        """Units up to which a span of products is believed: beyond, it has products of no units in it."""
        return min(int(self.fill * n_products), n_products - self.n_free - self.n_joint + 1)


def n_contexts(n_inputs, m, n_free):
    """Number of places where some units are at z = 0: sign patterns of the others; infinite if all can be chosen."""
    if m <= n_inputs:
        return inf if n_free < m else 1.0
    return 2.0 * sum(comb(m - n_free - 1, j) for j in range(n_inputs - n_free)) if n_inputs > n_free else 0.0


@lru_cache(maxsize=256)
def cheapest_design(n_inputs, m_1, m_2, n_outputs):
    """The design with the fewest queries for so many second-layer units; None if there is none."""
    designs = [_design(n_inputs, m_1, m_2, n_outputs, order, False, 1) for order in _ORDERS]
    for n_joint in {1, n_outputs}:
        designs += [_design(n_inputs, m_1, m_2, n_outputs, order, True, n_joint) for order in _LEVEL_ORDERS]
    return _cheapest(designs)


def _cheapest(designs):
    """The one with the fewest queries; those with derivatives of one order, which show the curves of units, first."""
    designs = [d for d in designs if d is not None]
    return min(designs, key=lambda design: (design.further_order != design.order, design.n_queries), default=None)


def _design(n_inputs, m_1, m_2, n_outputs, p, levels, n_joint):
    """The design of one order, with the fewest free units."""
    fill = _WIDE_FILL if m_1 >= 3 * n_inputs and not levels else _FILL
    numbers = ((k, n_joint * n_products(k, p, levels)) for k in range(p + 1, min(m_1, n_inputs) + 1))
    k = next((k for k, d in numbers if fill * d >= m_2 <= d - k - n_joint + 1), None)
    if k is None or (m_1 > n_inputs == k):
        return None
    n = _CONTEXTS * m_2 * n_joint / n_outputs + _MORE_CONTEXTS + (2 * k if levels else 0)
    if not levels and n > _SHARE_OF_CONTEXTS * n_contexts(n_inputs, m_1, k):
        return None
    first = Design(p, k, n * _n_points(k, p, levels), levels, n_joint, fill, further_order=p)
    if m_1 == k:
        return first
    designs = [
        _further(first, n_inputs, m_1, m_2, n_outputs, group, known, q)
        for q in (_ORDERS if levels else [p])
        for known in range(max(1, k - _FEWER_KNOWN), k + 1)
        for group in range(1, m_1 - k + 1)
    ]
    return _cheapest(designs)


def _further(first, n_inputs, m_1, m_2, n_outputs, group, known, q):
    """The design with further units at derivatives of order q beside some known ones; None if these are too few."""
    levels, products = first.levels, n_monomials if first.levels else comb
    own, beside = products(known, q), products(known, q - 1)
    if own * first.n_joint < m_2 or not beside or (known + group == m_1 <= n_inputs):  # one unit makes the places
        return None
    n = ceil(1.3 * m_2 / (n_outputs * beside)) + (not levels)
    if m_1 > n_inputs and n_contexts(n_inputs, m_1, known + group) < n:
        return None
    points = _n_points(known, q, levels) + group * _n_points(known, q - 1, levels)
    total = first.n_queries + ceil((m_1 - first.n_free) / group) * n * points
    return replace(first, n_queries=total, n_known=known, further_order=q, group=group, n_further=n)


def n_products(k, p, levels):
    """Products of p of k entries, all different; at levels, also those with one of them squared."""
    return comb(k, p) + (k * comb(k - 1, p - 2) if levels and p > 1 else 0)


def n_monomials(k, p):
    """Products of p of k entries, any of them repeated."""
    return comb(k + p - 1, p)


def _n_points(k, p, levels):
    """Points of the differences of these at one place."""
    n = 2 * sum(comb(k, q) for q in range(p + 1)) + (k * (k - 1) if levels and p > 2 else 0)
    return _STEPS * n if p > 2 else n
