"""The second layer from one patch with D - 1 free units, all of it by Taylor coefficients and a fit, then extension."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import n_symmetric_entries, svd
from skident.network import get_activation
from skident.oracle import NotIdentified

from ...constants import MAX_FILL, MAX_OUTPUT
from ..downstream import Downstream
from ..kernel.curves import fit_curves_in_regions
from ..kernel.taylor import TaylorRule
from .extension import extend_to_all_units, n_queries_of_extension
from .known_units import KnownPatch, KnownUnits
from .patch_fit import PatchFit, PatchNetwork, grow_to_width
from .powers_at_centers import powers_at_centers
from .saturation_regions import opposite_regions

__all__ = [
    "ExtensionDesign",
    "extension_design",
    "patch_design",
    "recover_by_extension",
    "recover_patch",
]

_MAX_TRIES = 3  # patches
_MAX_INPUTS = 10  # beyond, patches with fewer free units determine all of it by linear algebra
_EXTENSION_COST = 3  # times its planned queries: walls are tried again
# Taylor coefficients at centers. Pairs of nodes by order; more with several outputs: small units are in the noise.
_N_PAIRS = {2: 4, 3: 6, 4: 7, 5: 8}
_N_PAIRS_IF_SEVERAL = {2: 6, 3: 10, 4: 10, 5: 10}
_MAX_REACH = 0.9  # of the cube of hidden coordinates: 1 is the saturated unit
_MAX_FILL_IF_SEVERAL = 0.75  # same for several outputs
_COEFFICIENTS_PER_UNIT = 3.5  # rows of coefficients, of all outputs together
_CENTERS_PER_UNIT = 1.75  # at least
# Outputs that are fitted.
_OUTPUTS_PER_UNKNOWN = 2.8  # overdetermined, so that a wrong minimum shows
_N_HELD_OUT = 40  # validation points per region
_MAX_RESIDUAL = 1e-9  # relative, of the held-out outputs: right networks leave 1e-13
_MAX_CURVE_RESIDUAL = 0.5  # relative; curves beyond are no unit
# Outputs that depend on others determine no more units.
_POINTS_PER_OUTPUT = 3  # per region
_MIN_INDEPENDENT = 1e-4  # singular value of outputs, relative: smaller ones are mostly rounding in the coefficients


@dataclass(frozen=True)
class PatchDesign:
    """Taylor rule, numbers of centers and of fitted points in each of two regions, estimated number of queries."""

    rule: TaylorRule
    n_centers: int
    n_points: int
    n_queries: float


@dataclass(frozen=True)
class ExtensionDesign:
    """The design of the patch, and the estimated number of queries with the extension."""

    patch: PatchDesign
    n_queries: float


@dataclass(frozen=True)
class RecoveredPatch:
    """Both regions as `KnownPatch`, the relative residual of held-out outputs, norms of free units put right."""

    downstream: Downstream
    patch: KnownPatch
    opposite: KnownPatch
    residual: float


def extension_design(n_inputs, widths):
    """The design for widths ``(m_1, m_2, m_L)``; None for more than ten inputs, or if no patch can be recovered."""
    design = patch_design(n_inputs, widths) if n_inputs <= _MAX_INPUTS else None
    if design is None:
        return None
    n_queries = design.n_queries + _EXTENSION_COST * n_queries_of_extension(widths, n_inputs - 1)
    return ExtensionDesign(design, n_queries)


def patch_design(n_inputs, widths):
    """The lowest order that determines one patch; None if powers do not determine it, or m_1 <= D."""
    (m_1, m_2, m_L), k = widths, n_inputs - 1
    if k < 2 or m_1 <= n_inputs:
        return None
    for order, n_pairs in (_N_PAIRS if m_L == 1 else _N_PAIRS_IF_SEVERAL).items():
        n_entries = m_L * n_symmetric_entries(k, order)
        max_fill = MAX_FILL if m_L == 1 else _MAX_FILL_IF_SEVERAL
        if m_2 <= max_fill * n_entries and m_2 + k + m_L <= n_entries:
            rule = TaylorRule(order, _MAX_REACH, n_pairs, in_cube=True)
            n_centers = int(np.ceil(0.5 * max(_COEFFICIENTS_PER_UNIT / m_L, _CENTERS_PER_UNIT) * (m_2 + k))) + 1
            n_unknown = m_2 * (k + 2 + m_L) + 3 * k + m_L
            n_points = int(np.ceil(0.5 * _OUTPUTS_PER_UNKNOWN * n_unknown / m_L)) + _N_HELD_OUT
            n_queries = 2 * (n_centers * rule.n_queries(k) + n_points)
            return PatchDesign(rule, n_centers, n_points, float(n_queries))
    return None


def recover_by_extension(downstream, design, n_units, callback=None):
    """The network downstream of tanh units, if that is one hidden layer of `n_units` and a linear output.

    For (64, 64) units and eight inputs, about a third of the queries that patches with fewer free units take.
    ``callback(n_known, m_1)``; raises NotIdentified after three patches.
    """
    failures = []
    for _ in range(_MAX_TRIES):
        try:
            found = recover_patch(downstream, design.patch, n_units)
            return extend_to_all_units(found.downstream, found.patch, callback)
        except NotIdentified as error:
            if error.final:
                raise
            failures.append(str(error))
    raise NotIdentified("second layer", "residual", "; ".join(dict.fromkeys(failures)))


def recover_patch(downstream, design, n_units):
    """The `RecoveredPatch` with D - 1 free tanh units, whose corrections are unknown and norms accurate to 1e-4.

    Directions of W2 from Taylor coefficients at many centers, norms and biases from curves, then a fit to outputs over
    the whole cube of free outputs in both regions. With output weights eliminated, its Jacobian has a condition of
    about 1e6 for 64 units and seven inputs: outputs accurate to 1e-15 determine everything to 1e-9.
    """
    regions = opposite_regions(downstream)
    reduced = _with_independent_outputs(downstream, regions)
    if reduced.n_outputs < downstream.n_outputs:
        design = _design_for_fewer_outputs(reduced, n_units)
    powers = powers_at_centers(reduced, regions, design.rule, design.n_centers, n_units)
    W2, biases, residuals = fit_curves_in_regions(powers.W2, powers.outputs, powers.coefficients, powers.order)
    start = PatchNetwork(W2, biases, powers.corrections, powers.norm_factors).subset(residuals < _MAX_CURVE_RESIDUAL)
    n_fitted = design.n_points - _N_HELD_OUT
    fit, held_out = (_outputs_in_regions(downstream, regions, n) for n in (n_fitted, _N_HELD_OUT))
    network = grow_to_width(fit, start, n_units, downstream.rng)
    output_weights, offset = fit.output_layer(network)
    predicted = held_out.hidden_outputs(network)[1] @ output_weights + offset
    residual = float(np.linalg.norm(held_out.Y * held_out.size + held_out.offset - predicted)) / held_out.size
    if not residual < _MAX_RESIDUAL:
        n_free = len(regions.free)
        message = (
            f"the network recovered with {n_free} free units leaves {residual:.1e} of held-out outputs unexplained"
        )
        raise NotIdentified("second layer", "residual", message)
    return _recovered_patch(downstream, regions, network, (output_weights, offset), residual)


def _with_independent_outputs(downstream, regions):
    """The same, or with combinations of its outputs if some of them depend on others."""
    if downstream.n_outputs == 1:
        return downstream
    Y = _outputs_in_regions(downstream, regions, _POINTS_PER_OUTPUT * downstream.n_outputs).Y
    _, s, Vt = svd(Y, full_matrices=False)
    n = max(1, int(np.sum(s > _MIN_INDEPENDENT * s[0])))
    if n == downstream.n_outputs:
        return downstream
    return replace(downstream, query=lambda X: downstream.query(X) @ Vt[:n].T, n_outputs=n)


def _design_for_fewer_outputs(downstream, n_units):
    (D, m_1), n = downstream.shape, downstream.n_outputs
    design = patch_design(D, (m_1, n_units, n))
    if design is None:
        message = f"with {n} independent outputs, powers do not determine {n_units} units"
        raise NotIdentified("second layer", "residual", message)
    return design


def _outputs_in_regions(downstream, regions, n):
    """The `PatchFit` of n points per region, all over the cube of free outputs."""
    T = np.arctanh(downstream.rng.uniform(-MAX_OUTPUT, MAX_OUTPUT, (2 * n, len(regions.free))))
    which = np.repeat([0, 1], n)
    return PatchFit(T, which, downstream.query(regions.at(T, which)), check_deadline=downstream.check_deadline)


def _recovered_patch(downstream, regions, network, output_layer, residual):
    downstream = downstream.rescaled(regions.free, network.norm_factors)
    patches = []
    for point, corrections, biases in zip(regions.points, network.corrections, network.biases, strict=True):
        signs = np.sign(downstream.preactivations(point))
        signs[regions.free] = 0.0
        known = KnownUnits(get_activation("tanh"), regions.free, corrections, network.W2, biases, *output_layer)
        patches.append(KnownPatch(known, point, signs))
    return RecoveredPatch(downstream, *patches, residual)
