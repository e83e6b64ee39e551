"""The second layer by powers on a patch, then by extension from it or by further patches, with no random networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.network import get_activation
from skident.oracle import NotIdentified

from ..by_patch_and_extension.extension import extend_to_all_units, n_queries_of_extension
from ..by_patch_and_extension.patch_from_powers import known_patch_from_powers, n_queries_of_patch
from ..downstream import PowerSums, network_from_curves, preactivations_of
from ..kernel.taylor import choose_reach
from .first_patch import powers_on_first_patch
from .further_units import recover_further_units

__all__ = ["recover_by_powers"]

_MAX_TRIES = 4  # each with another first patch
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
    for attempt in range(_MAX_TRIES):
        try:
            return _recover(downstream, design, n_units, attempt, callback)
        except NotIdentified as error:
            if error.final or attempt == _MAX_TRIES - 1:
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
