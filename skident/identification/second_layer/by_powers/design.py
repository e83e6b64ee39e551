"""Which order of Taylor coefficients and how many free units identify a second layer, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.linalg import n_symmetric_entries

from ..kernel.patch import n_sign_patterns
from ..kernel.taylor import TaylorRule

__all__ = ["PowerDesign", "power_designs"]

# Largest reach in hidden coordinates and pairs of nodes, by order: beyond 4 rounding leaves too little.
_RULES = {2: (0.5, 2), 3: (0.6, 4), 4: (0.8, 6), 5: (0.85, 7)}
# m_2 from which on errors grow so much from step to step that more is asked.
_WIDE = 40
_WIDE_PAIRS, _WIDE_ROWS, _WIDE_MORE = {2: 2, 3: 5, 4: 8, 5: 10}, {2: 1.2, 3: 1.2, 4: 1.3, 5: 1.3}, 1
_DELICATE = 4  # order from which on further units want as many nodes as the first patch
_ROWS = 1.15  # times the rank that shows shifts
_LINEAR, _ALL = 1.1, 1.3  # times the unknowns of one further unit: equations linear in it, and all
_FULLEST = 0.93  # part of the space that m_2 powers may fill
_CROWDED = 0.75  # beyond this part, conditions get worse
_OF_PATTERNS = 0.95  # part of all sign patterns that may be needed before other units are held at levels
_HELD = 1.5  # times the cost where they are: such points lie farther out


@dataclass(frozen=True)
class PowerDesign:
    """A way to identify the second layer.

    Attributes
    ----------
    rule : TaylorRule
        With order p.
    rule_of_more : TaylorRule
        For the patches of further units.
    n_free : int
        k.
    n_first, n_more : int
        Points of the first patch, and of those of every further unit.
    n_queries : float
        Rows to ask, about.
    """

    rule: TaylorRule
    rule_of_more: TaylorRule
    n_free: int
    n_first: int
    n_more: int
    n_queries: float


def power_designs(n_inputs, widths, orders=(2, 3, 4)):
    """The plan that asks fewest rows, and others with ever fewer free units, for where its patches are out of reach.

    Parameters
    ----------
    n_inputs : int
        D.
    widths : tuple of int
        ``(m_1, m_2, m_L)``.
    orders : sequence of int, default=(2, 3, 4)
        That may be used.

    Returns
    -------
    list of PowerDesign
        Empty where powers do not determine the second layer, or points are too few.
    """
    plans = [_plan(n_inputs, widths, p, k) for p in orders for k in range(2, min(n_inputs, widths[0]))]
    plans, chosen = [plan for plan in plans if plan is not None], []
    while plans:
        chosen.append(min(plans, key=lambda plan: plan.n_queries))
        plans = [plan for plan in plans if plan.n_free < chosen[-1].n_free]
    return chosen


def _plan(D, widths, p, k):
    """The plan with k free units and order p, or None."""
    m_1, m_2, m_L = widths
    entries = n_symmetric_entries(k, p)
    if entries < m_2 + k + 1 or m_2 > _FULLEST * entries:
        return None
    reach, n_pairs = _RULES[p]
    wide = m_2 >= _WIDE
    rule = TaylorRule(p, reach, _WIDE_PAIRS[p] if wide else n_pairs)
    rule_of_more = rule if p >= _DELICATE else TaylorRule(p, reach, n_pairs)
    rank = m_2 + sum(min(n_symmetric_entries(k, q), m_2) for q in range(1, p))
    n_first = int(np.ceil(((_WIDE_ROWS[p] if wide else _ROWS) * rank + 4) / m_L)) + 2
    linear, beyond = n_symmetric_entries(k, p - 1), n_symmetric_entries(k + 1, p) - m_2
    n_more = int(np.ceil(m_2 * max(_LINEAR / linear, _ALL / beyond) / m_L)) + (_WIDE_MORE if wide else 0)
    there, there_then = n_sign_patterns(D, m_1, k), n_sign_patterns(D, m_1, k + 1)
    told = there_then * linear * m_L
    few, held = n_first > _OF_PATTERNS * there, D - k > 1 and m_1 > k + 1
    few_then = m_1 > k and n_more > there_then and told < 1.1 * m_2
    if (few and not held) or (few_then and D - k < 3):
        return None
    cost = n_first * rule.n_queries(k) + (m_1 - k) * n_more * rule_of_more.n_queries(k + 1)
    crowded = 1.0 + 5.0 * max(0.0, m_2 / entries - _CROWDED)
    few_cells = 4.0 if m_1 > D and D - k - 1 < 2 else 1.0
    return PowerDesign(rule, rule_of_more, k, n_first, n_more, cost * crowded * few_cells * (_HELD if few else 1.0))
