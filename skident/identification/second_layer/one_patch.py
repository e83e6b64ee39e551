"""One patch, all of it: the shallow network that is left where D - 1 first-layer units are free, to rounding error."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import n_symmetric_entries
from skident.oracle import NotIdentified

from .curves_of_cells import fit_curves_of_cells
from .downstream import Behind
from .grow_in_cells import completed
from .kernel.taylor import TaylorRule
from .known_patch import KnownPatch
from .opposite_cells import opposite_cells
from .patch_fit import PatchFit, Shallow
from .rows_at_centres import rows_at_centres

__all__ = ["OnePatchPlan", "PatchFound", "find_one_patch", "plan_one_patch"]

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
class OnePatchPlan:
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
class PatchFound:
    """A patch that is known.

    Attributes
    ----------
    behind : Behind
        With the free units' lengths put right.
    patch : KnownPatch
        In the first of the two cells.
    opposite : KnownPatch
        In the other one.
    misfit : float
        Of the answers held out, relative.
    """

    behind: Behind
    patch: KnownPatch
    opposite: KnownPatch
    misfit: float


def plan_one_patch(n_inputs, widths):
    """Which order of Taylor coefficients and how many centres and points tell one patch.

    Parameters
    ----------
    n_inputs : int
        D.
    widths : tuple of int
        ``(m_1, m_2, m_L)``.

    Returns
    -------
    OnePatchPlan or None
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
            return OnePatchPlan(rule, n_centres, n_points, float(n_queries))
    return None


def find_one_patch(behind, plan, n_units):
    """The shallow network on a patch with D - 1 free units, and these units' shifts and lengths.

    Parameters
    ----------
    behind : Behind
        With tanh units, shifts not known, and lengths good to 1e-4.
    plan : OnePatchPlan
    n_units : int
        m_2.

    Returns
    -------
    PatchFound

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
    cells = opposite_cells(behind)
    seen = _with_independent_outputs(behind, cells)
    if seen.n_outputs < behind.n_outputs:
        plan = _plan_with_fewer(seen, n_units)
    found = rows_at_centres(seen, cells, plan.rule, plan.n_centres, n_units)
    rows, shifts, misfits = fit_curves_of_cells(found)
    start = Shallow(rows, shifts, found.deltas, found.stretch).units(misfits < _CURVED)
    fit, held_out = (_answers(behind, cells, n) for n in (plan.n_points - _HELD_OUT, _HELD_OUT))
    shallow = completed(fit, start, n_units, behind.rng)
    readout, offset = fit.readout(shallow)
    left = held_out.Y * held_out.size + held_out.offset - held_out.outputs(shallow)[1] @ readout - offset
    misfit = float(np.linalg.norm(left)) / held_out.size
    if not misfit < _KNOWN:
        raise NotIdentified(
            "second layer",
            "residual",
            f"the network found where {len(cells.free)} units are free misfits the answers there by {misfit:.1e}",
        )
    return _told(behind, cells, shallow, (readout, offset), misfit)


def _with_independent_outputs(behind, cells):
    """The same, or with combinations of its outputs where some depend on others: they tell no more units."""
    if behind.n_outputs == 1:
        return behind
    Y = _answers(behind, cells, _LOOKS * behind.n_outputs).Y
    _, s, Vt = np.linalg.svd(Y, full_matrices=False)
    n = max(1, int(np.sum(s > _DEPENDENT * s[0])))
    if n == behind.n_outputs:
        return behind
    return replace(behind, ask=lambda U: behind.ask(U) @ Vt[:n].T, n_outputs=n)


def _plan_with_fewer(behind, n_units):
    """What serves with so many outputs."""
    (D, m_1), n = behind.shape, behind.n_outputs
    plan = plan_one_patch(D, (m_1, n_units, n))
    if plan is None:
        raise NotIdentified(
            "second layer", "residual", f"with {n} independent outputs, powers do not tell {n_units} units"
        )
    return plan


def _answers(behind, cells, n):
    """Answers at n points a cell, all over the cube of outputs."""
    T = np.arctanh(behind.rng.uniform(-_WIDE, _WIDE, (2 * n, len(cells.free))))
    which = np.repeat([0, 1], n)
    return PatchFit(T, which, behind.ask(cells.at(T, which)), before_a_step=behind.look_at_the_time)


def _told(behind, cells, shallow, outer, misfit):
    """What is known then."""
    weights, biases = behind.weights.copy(), behind.biases.copy()
    weights[:, cells.free] *= shallow.stretch
    biases[cells.free] *= shallow.stretch
    patches = []
    for point, delta, shifts in zip(cells.points, shallow.deltas, shallow.shifts, strict=True):
        signs = np.sign(point @ weights + biases)
        signs[cells.free] = 0.0
        patches.append(KnownPatch(cells.free, np.tanh(delta), point, signs, shallow.rows, shifts, *outer))
    return PatchFound(replace(behind, weights=weights, biases=biases), *patches, misfit)
