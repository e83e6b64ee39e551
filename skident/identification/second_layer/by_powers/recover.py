"""The second layer after a saturating first layer: by linear algebra on patches, with no random initialization."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.network import get_activation
from skident.oracle import NotIdentified

from ..assembling import PowerEvidence, network_from_curves, preactivations_of
from ..by_patch_and_extension.extension import extend_to_all_units, n_queries_of_extension
from ..by_patch_and_extension.patch_from_powers import known_patch_from_powers, n_queries_of_patch
from ..kernel.taylor import choose_reach
from .first_patch import powers_on_first_patch
from .further_units import recover_further_units

__all__ = ["recover_by_powers"]

_TRIES, _MORE = 4, 0.3  # at most, and how many more points the first patch of each has than that of the one before
_PAIRS = 1  # of nodes that each has more


def recover_by_powers(downstream, plan, n_units=None, *, tries=range(_TRIES), callback=None):
    """All that follows a first layer, if that is one hidden layer and a linear output.

    Parameters
    ----------
    downstream : Downstream
    plan : PowerDesign
    n_units : int, default=None
        m_2; None where the gap of the singular values has to tell it.
    tries : range, default=range(4)
        All of it may be tried so often, beginning with another patch; later ones ask more.
    callback : callable, default=None
        ``callback(n_known, m_1)``.

    Returns
    -------
    RecoveredNetwork

    Raises
    ------
    NotIdentified
        If no patch is in reach, the coefficients are no sum of powers, a unit is not found, or the network found does
        not explain the answers.

    Notes
    -----
    ``f = R(h)`` with ``R(h) = sum_k v_k g(W_k . h + c_k) + v_0``. Where k first-layer units are free and all others
    stand still at signs s, the terms of order p of R are ``sum_k v_k g^(p)(y_k(s)) / p! (W_k . eta)^p``: for all s they
    lie in the span of m_2 powers. Shifts come from the null space of all orders, rows from a power method, and length,
    shift and output weights from the curves ``g^(p)``: of one cell first, from which `extend_to_all_units` finds the
    other units with few answers. Where that fails, or would ask more, rows at the other units come from linear
    equations on a patch for each of them, and curves at the end.
    """
    for attempt in tries[:-1]:
        try:
            return _find(downstream, plan, n_units, attempt, callback)
        except NotIdentified as error:
            if error.final:
                raise
    return _find(downstream, plan, n_units, tries[-1], callback)


def _find(downstream, plan, n_units, attempt, callback):
    """One try: other patches, with more points and more nodes, than the one before."""
    more, of_more = (replace(rule, n_pairs=rule.n_pairs + _PAIRS * attempt) for rule in (plan.rule, plan.rule_of_more))
    first = powers_on_first_patch(downstream, replace(plan, rule=more), n_units, generosity=1.0 + _MORE * attempt)
    found = None if attempt else _by_walking(downstream, plan, first, callback)
    return _one_after_the_other(downstream, plan, first, of_more, callback) if found is None else found


def _by_walking(downstream, plan, first, callback):
    """The second layer by a walk from one cell of the first patch, where that asks less; None where it fails."""
    k, m_2 = first.rows.shape
    walk = n_queries_of_extension((downstream.shape[1], m_2, downstream.n_outputs), k)
    walk += n_queries_of_patch(first.rule, k, downstream.n_outputs)
    if walk > (downstream.shape[1] - k) * plan.n_more * plan.rule_of_more.n_queries(k + 1):
        return None
    try:
        return extend_to_all_units(downstream, known_patch_from_powers(downstream, first), callback)
    except NotIdentified as error:
        if error.final:
            raise
    return None


def _one_after_the_other(downstream, plan, first, of_more, callback):
    """The second layer by Taylor coefficients on a patch for every further unit."""
    rule, more = first.rule, replace(first.rule, reach=plan.rule.reach)
    if of_more != more:
        rule, _ = choose_reach(
            downstream.query, first.sample.patch, downstream.chart(first.free), of_more, downstream.rng
        )
    rows = recover_further_units(downstream, replace(plan, rule_of_more=rule), first, callback)
    shifts = preactivations_of(downstream.activation, rows.theta)
    parts = [
        (sample.patch.outputs(get_activation(downstream.activation), shifts), sample.coefficients, sample.values)
        for sample in rows.samples
    ]
    outputs, coefficients, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    told = PowerEvidence(rows.rows, shifts, outputs, coefficients, values, first.rule.order)
    return network_from_curves(rows.downstream, told, {"powers": first.misfit, "rows": rows.misfit})
