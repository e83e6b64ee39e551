"""The second layer by powers: the design (order, number of free units), one patch, then all other units."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import n_symmetric_entries
from skident.network import get_activation
from skident.oracle import NotIdentified

from ...constants import MAX_FILL
from ..by_patch_and_extension.extension import extend_to_all_units, n_queries_of_extension
from ..by_patch_and_extension.patch_from_powers import known_patch_from_powers, n_queries_of_patch
from ..downstream import PowerSums, network_from_curves, preactivations_of
from ..kernel.patch import n_sign_patterns
from ..kernel.taylor import TaylorRule, choose_reach
from .first_patch import powers_on_first_patch
from .further_units import recover_further_units

__all__ = ["PowerDesign", "power_designs", "recover_by_powers"]

_PATCH_TRIES = 4  # each with another first patch
_MORE_POINTS = 0.3  # relative, on the first patch of each further try
_MORE_PAIRS = 1  # of nodes, in each further try


def recover_by_powers(downstream, design, n_units=None, *, callback=None):
    """The network downstream, if that is one hidden layer of `n_units` (None: to be detected) and a linear output.

    If k first-layer units are free and all others are constant, the terms of order p of f are
    ``sum_j v_j g^(p)(y_j) / p! (W_j . eta)^p``, y_j depending on the point: at all points they lie in the span of m_2
    powers. Bias corrections come from the null space of all orders, directions of W2 from a power method, norms, biases
    and output weights from the curves ``g^(p)``. From there, `extend_to_all_units` recovers the other first-layer units
    with few queries; if that fails or costs more, they are freed one by one on further patches.
    `callback` is called with the numbers of known units and of all units. Raises NotIdentified.
    """
    for attempt in range(_PATCH_TRIES):
        try:
            return _recover(downstream, design, n_units, attempt, callback)
        except NotIdentified as error:
            if error.final or attempt == _PATCH_TRIES - 1:
                raise


def _recover(downstream, design, n_units, attempt, callback):
    """One try: a new first patch, with more points and more nodes than that of the try before."""
    rules = (design.rule, design.further_rule)
    rule, further_rule = (replace(rule, n_pairs=rule.n_pairs + _MORE_PAIRS * attempt) for rule in rules)
    first = powers_on_first_patch(
        downstream, replace(design, rule=rule), n_units, n_points_factor=1.0 + _MORE_POINTS * attempt
    )
    network = None if attempt else _by_extension(downstream, design, first, callback)
    return _by_further_patches(downstream, design, first, further_rule, callback) if network is None else network


def _by_extension(downstream, design, first, callback):
    """The network by extension from the first patch; None if that costs more queries or fails."""
    k, m_2 = first.W2.shape
    n_queries = n_queries_of_extension((downstream.shape[1], m_2, downstream.n_outputs), k)
    n_queries += n_queries_of_patch(first.rule, k, downstream.n_outputs)
    if n_queries > (downstream.shape[1] - k) * design.n_further * design.further_rule.n_queries(k + 1):
        return None
    try:
        return extend_to_all_units(downstream, known_patch_from_powers(downstream, first), callback)
    except NotIdentified as error:
        if error.final:
            raise
    return None


def _by_further_patches(downstream, design, first, further_rule, callback):
    """The network from Taylor coefficients on a patch for every further unit."""
    rule = first.rule
    if further_rule != replace(first.rule, reach=design.rule.reach):
        chart = downstream.chart(first.free)
        rule = choose_reach(downstream.query, first.sample.patch, chart, further_rule, downstream.rng)
    found = recover_further_units(downstream, replace(design, further_rule=rule), first, callback)
    g = get_activation(downstream.activation)
    corrections = preactivations_of(downstream.activation, found.center_outputs)
    parts = [(s.patch.outputs(g, corrections), s.coefficients, s.values) for s in found.samples]
    outputs, coefficients, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    sums = PowerSums(found.W2, corrections, outputs, coefficients, values, first.rule.order)
    return network_from_curves(found.downstream, sums, {"powers": first.residual, "further units": found.residual})


# By order. The largest reach in hidden coordinates and pairs of nodes: where truncation meets rounding for typical
# units. Higher orders leave too few digits.
_REACH = {2: 0.5, 3: 0.6, 4: 0.8}
_N_PAIRS = {2: 2, 3: 4, 4: 6}
# Wide second layers, whose errors grow from one step to the next: more accurate coefficients, and more of them.
_WIDE = 40  # second-layer units
_N_PAIRS_IF_WIDE = {2: 2, 3: 5, 4: 8}
_ROWS_PER_RANK_IF_WIDE = {2: 1.2, 3: 1.2, 4: 1.3}
_MORE_POINTS_IF_WIDE = 1  # on the patch of each further unit
_ACCURATE_ORDER = 4  # from this order on, patches of further units need as many nodes as the first patch
# Overdetermination: coefficients per unknown, so that noise is averaged and a wrong rank shows.
_ROWS_PER_RANK = 1.15  # rows of coefficients per rank of those that determine the bias corrections
_MORE_ROWS = 4  # in addition
_EQUATIONS_PER_LINEAR_UNKNOWN = 1.1  # of a further unit: equations linear in its weights, which give the start
_EQUATIONS_PER_UNKNOWN = 1.3  # of a further unit: all equations
# Cost factors: ways that work less often, or farther out, are taken only if they cost that much less.
_CROWDED = 0.75  # fill beyond which the powers get worse conditioned
_CROWDED_SLOPE = 5.0  # cost factor per fill beyond
_MAX_PATTERN_SHARE = 0.95  # of all sign patterns needed, beyond which units have to be held at levels
_HELD_COST = 1.5  # if so: these points lie farther out
_FEW_PATTERNS_COST = 4.0  # if m_1 > D and only one direction remains to saturate the other units


@dataclass(frozen=True)
class PowerDesign:
    """Taylor rules, the number k of free units, points per patch and the estimated number of queries.

    `rule` and `n_first` are those of the first patch, `further_rule` and `n_further` of the patch of each further unit.
    """

    rule: TaylorRule
    further_rule: TaylorRule
    n_free: int
    n_first: int
    n_further: int
    n_queries: float


def power_designs(n_inputs, widths):
    """The design with fewest queries, then ones with ever fewer free units, in case no patch is in reach.

    `widths` are ``(m_1, m_2, m_L)``. Empty if powers do not determine the second layer.
    """
    designs = [_design(n_inputs, widths, p, k) for p in _N_PAIRS for k in range(2, min(n_inputs, widths[0]))]
    designs, chosen = [design for design in designs if design is not None], []
    while designs:
        chosen.append(min(designs, key=lambda design: design.n_queries))
        designs = [design for design in designs if design.n_free < chosen[-1].n_free]
    return chosen


def _design(D, widths, p, k):
    """The design with k free units and order p; None if powers, points or sign patterns do not suffice."""
    m_1, m_2, _ = widths
    fill = m_2 / n_symmetric_entries(k, p)
    if n_symmetric_entries(k, p) < m_2 + k + 1 or fill > MAX_FILL:
        return None
    rule = TaylorRule(p, _REACH[p], _N_PAIRS_IF_WIDE[p] if m_2 >= _WIDE else _N_PAIRS[p])
    further_rule = rule if p >= _ACCURATE_ORDER else TaylorRule(p, _REACH[p], _N_PAIRS[p])
    n_first, n_further = _n_points(widths, p, k)
    units_held = n_first > _MAX_PATTERN_SHARE * n_sign_patterns(D, m_1, k)
    if units_held and not (D - k > 1 and m_1 > k + 1):
        return None
    if D - k < 3 and not _further_patterns_suffice(D, widths, p, k, n_further):
        return None
    n_queries = n_first * rule.n_queries(k) + (m_1 - k) * n_further * further_rule.n_queries(k + 1)
    n_queries *= 1.0 + _CROWDED_SLOPE * max(0.0, fill - _CROWDED)
    n_queries *= _FEW_PATTERNS_COST if m_1 > D and D - k - 1 < 2 else 1.0
    n_queries *= _HELD_COST if units_held else 1.0
    return PowerDesign(rule, further_rule, k, n_first, n_further, n_queries)


def _n_points(widths, p, k):
    """Points of the first patch, whose coefficients have a known rank, and of the patch of each further unit."""
    _, m_2, m_L = widths
    wide = m_2 >= _WIDE
    rank = m_2 + sum(min(n_symmetric_entries(k, q), m_2) for q in range(1, p))
    n_rows = (_ROWS_PER_RANK_IF_WIDE[p] if wide else _ROWS_PER_RANK) * rank + _MORE_ROWS
    n_linear, n_beyond = n_symmetric_entries(k, p - 1), n_symmetric_entries(k + 1, p) - m_2
    n_equations = max(_EQUATIONS_PER_LINEAR_UNKNOWN / n_linear, _EQUATIONS_PER_UNKNOWN / n_beyond) * m_2
    n_further = int(np.ceil(n_equations / m_L)) + (_MORE_POINTS_IF_WIDE if wide else 0)
    return int(np.ceil(n_rows / m_L)) + 2, n_further


def _further_patterns_suffice(D, widths, p, k, n_further):
    """Whether sign patterns with k + 1 free units are enough, or all of them give enough linear equations."""
    m_1, m_2, m_L = widths
    n_patterns = n_sign_patterns(D, m_1, k + 1)
    n_equations = n_patterns * n_symmetric_entries(k, p - 1) * m_L
    return m_1 <= k or n_further <= n_patterns or n_equations >= _EQUATIONS_PER_LINEAR_UNKNOWN * m_2
