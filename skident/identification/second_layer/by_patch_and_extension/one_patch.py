"""One patch, all of it: the shallow network that is left where D - 1 first-layer units are free, to rounding error."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import n_symmetric_entries
from skident.oracle import NotIdentified

from ..downstream import Downstream
from ..kernel.curves_of_regions import fit_curves_of_regions
from ..kernel.taylor import TaylorRule
from .grow_on_patch import completed
from .known_patch import KnownPatch
from .opposite_regions import opposite_regions
from .patch_fit import PatchFit, Shallow
from .powers_at_centers import powers_at_centers

__all__ = ["PatchDesign", "RecoveredPatch", "recover_patch", "patch_design"]

_PAIRS = {2: 4, 3: 6, 4: 7, 5: 8}  # of nodes, by order, with one output
_PAIRS_OF_SEVERAL = {2: 6, 3: 10, 4: 10, 5: 10}  # and with more: what is left of the smallest units is in the noise
_REACH = 0.9  # at most
_FULLEST, _ROOMY = 0.93, 0.75  # part of the space that m_2 powers may fill, of one output and of several
_ROWS, _FEWEST_ROWS, _ANSWERS = 3.5, 1.75, 2.8  # coefficients and at least centres a unit, and answers an unknown
_HELD_OUT, _WIDE = 40, 0.97  # points a cell that are not fitted, and outputs of free units at most
_KNOWN = 1e-9  # misfit of the answers held out that a patch that is known leaves
_LOOKS, _DEPENDENT = 3, 1e-4  # points a cell and output, and part of outputs that is not worth while
_CURVED = 0.5  # misfit of a curve that tells nothing


@dataclass(frozen=True)
class PatchDesign:
    """A way to know one patch.

    Attributes
    ----------
    rule : TaylorRule
        With order p.
    n_centres : int
        In each of the two cells, of Taylor coefficients.
    n_points : int
        In each cell, of answers that are fitted.
    n_queries : float
        Rows to ask, about.
    """

    rule: TaylorRule
    n_centres: int
    n_points: int
    n_queries: float


@dataclass(frozen=True)
class RecoveredPatch:
    """A patch that is known.

    Attributes
    ----------
    downstream : Downstream
        With the free units' lengths put right.
    patch : KnownPatch
        In the first of the two cells.
    opposite : KnownPatch
        In the other one.
    misfit : float
        Of the answers held out, relative.
    """

    downstream: Downstream
    patch: KnownPatch
    opposite: KnownPatch
    misfit: float


def patch_design(n_inputs, widths):
    """Which order of Taylor coefficients and how many centres and points tell one patch.

    Parameters
    ----------
    n_inputs : int
        D.
    widths : tuple of int
        ``(m_1, m_2, m_L)``.

    Returns
    -------
    PatchDesign or None
        None where powers do not determine the rows, or first-layer units are too few.
    """
    m_1, m_2, m_L = widths
    k = n_inputs - 1
    if k < 2 or m_1 <= n_inputs:
        return None
    for order, n_pairs in (_PAIRS if m_L == 1 else _PAIRS_OF_SEVERAL).items():
        entries = m_L * n_symmetric_entries(k, order)
        if m_2 <= (_FULLEST if m_L == 1 else _ROOMY) * entries and m_2 + k + m_L <= entries:
            rule = TaylorRule(order, _REACH, n_pairs, cubic=True)
            n_centres = int(np.ceil(0.5 * max(_ROWS / m_L, _FEWEST_ROWS) * (m_2 + k))) + 1
            n_unknown = m_2 * (k + 2 + m_L) + 3 * k + m_L
            n_points = int(np.ceil(0.5 * _ANSWERS * n_unknown / m_L)) + _HELD_OUT
            n_queries = 2 * (n_centres * rule.n_queries(k) + n_points)
            return PatchDesign(rule, n_centres, n_points, float(n_queries))
    return None


def recover_patch(downstream, plan, n_units):
    """The shallow network on a patch with D - 1 free units, and these units' shifts and lengths.

    Parameters
    ----------
    downstream : Downstream
        With tanh units, shifts not known, and lengths good to 1e-4.
    plan : PatchDesign
    n_units : int
        m_2.

    Returns
    -------
    RecoveredPatch

    Raises
    ------
    NotIdentified
        If no such cells are in reach, too few powers are found or outputs are independent, or the network found does
        not explain answers that were not fitted.

    Notes
    -----
    Rows from Taylor coefficients at many centres, lengths and shifts from curves, then a fit to answers over the whole
    cube of outputs of the free units in both cells. Output weights eliminated, its Jacobian has a condition of about
    1e6 for 64 units and seven inputs, so that answers exact to 1e-15 tell everything to 1e-9.
    """
    cells = opposite_regions(downstream)
    seen = _with_independent_outputs(downstream, cells)
    if seen.n_outputs < downstream.n_outputs:
        plan = _plan_with_fewer(seen, n_units)
    found = powers_at_centers(seen, cells, plan.rule, plan.n_centres, n_units)
    rows, shifts, misfits = fit_curves_of_regions(found)
    start = Shallow(rows, shifts, found.deltas, found.stretch).units(misfits < _CURVED)
    fit, held_out = (_answers(downstream, cells, n) for n in (plan.n_points - _HELD_OUT, _HELD_OUT))
    shallow = completed(fit, start, n_units, downstream.rng)
    readout, offset = fit.readout(shallow)
    left = held_out.Y * held_out.size + held_out.offset - held_out.outputs(shallow)[1] @ readout - offset
    misfit = float(np.linalg.norm(left)) / held_out.size
    if not misfit < _KNOWN:
        raise NotIdentified(
            "second layer",
            "residual",
            f"the network found where {len(cells.free)} units are free misfits the answers there by {misfit:.1e}",
        )
    return _told(downstream, cells, shallow, (readout, offset), misfit)


def _with_independent_outputs(downstream, cells):
    """The same, or with combinations of its outputs where some depend on others: they tell no more units."""
    if downstream.n_outputs == 1:
        return downstream
    Y = _answers(downstream, cells, _LOOKS * downstream.n_outputs).Y
    _, s, Vt = np.linalg.svd(Y, full_matrices=False)
    n = max(1, int(np.sum(s > _DEPENDENT * s[0])))
    if n == downstream.n_outputs:
        return downstream
    return replace(downstream, query=lambda U: downstream.query(U) @ Vt[:n].T, n_outputs=n)


def _plan_with_fewer(downstream, n_units):
    """What serves with so many outputs."""
    (D, m_1), n = downstream.shape, downstream.n_outputs
    plan = patch_design(D, (m_1, n_units, n))
    if plan is None:
        raise NotIdentified(
            "second layer", "residual", f"with {n} independent outputs, powers do not tell {n_units} units"
        )
    return plan


def _answers(downstream, cells, n):
    """Answers at n points a cell, all over the cube of outputs."""
    T = np.arctanh(downstream.rng.uniform(-_WIDE, _WIDE, (2 * n, len(cells.free))))
    which = np.repeat([0, 1], n)
    return PatchFit(T, which, downstream.query(cells.at(T, which)), before_a_step=downstream.look_at_the_time)


def _told(downstream, cells, shallow, outer, misfit):
    """What is known then."""
    weights, biases = downstream.weights.copy(), downstream.biases.copy()
    weights[:, cells.free] *= shallow.stretch
    biases[cells.free] *= shallow.stretch
    patches = []
    for point, delta, shifts in zip(cells.points, shallow.deltas, shallow.shifts, strict=True):
        signs = np.sign(point @ weights + biases)
        signs[cells.free] = 0.0
        patches.append(KnownPatch(cells.free, np.tanh(delta), point, signs, shallow.rows, shifts, *outer))
    return RecoveredPatch(replace(downstream, weights=weights, biases=biases), *patches, misfit)
