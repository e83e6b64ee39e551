"""The second layer from one patch that is known entirely, and a walk from there to all first-layer units."""

from __future__ import annotations

from dataclasses import dataclass

from skident.oracle import NotIdentified

from .extension import extend_to_all_units, n_queries_of_extension
from .one_patch import PatchDesign, patch_design, recover_patch

__all__ = ["ExtensionDesign", "recover_by_extension", "extension_design"]

_TRIES = 3  # patches
_MOST_INPUTS = 10  # beyond, patches with fewer free units tell all of it by linear algebra
_MOST_RECOVERED = 3  # times the walk, which looks at walls again


@dataclass(frozen=True)
class ExtensionDesign:
    """A way to identify the second layer where few units can be free.

    Attributes
    ----------
    patch : PatchDesign
    n_queries : float
        Rows to ask, about.
    """

    patch: PatchDesign
    n_queries: float


def extension_design(n_inputs, widths):
    """How many rows the patch and the walk take.

    Parameters
    ----------
    n_inputs : int
        D.
    widths : tuple of int
        ``(m_1, m_2, m_L)``.

    Returns
    -------
    ExtensionDesign or None
        None for more than ten inputs, and where no patch can be known entirely.
    """
    plan = patch_design(n_inputs, widths) if n_inputs <= _MOST_INPUTS else None
    if plan is None:
        return None
    return ExtensionDesign(plan, plan.n_queries + _MOST_RECOVERED * n_queries_of_extension(widths, n_inputs - 1))


def recover_by_extension(downstream, plan, n_units, callback=None):
    """All that follows a first layer of tanh units, if that is one hidden layer and a linear output.

    Parameters
    ----------
    downstream : Downstream
        Its shifts not known.
    plan : ExtensionDesign
    n_units : int
        m_2.
    callback : callable, default=None
        ``callback(n_known, m_1)``.

    Returns
    -------
    RecoveredNetwork

    Raises
    ------
    NotIdentified
        If none of three patches is known in the end, or no way leads from it to all units.

    Notes
    -----
    See `recover_patch` and `extend_to_all_units`. About a third of the rows that patches with fewer free units take for
    (64, 64) units and eight inputs, where their Taylor coefficients are of order 4 and hardly serve.
    """
    failures = []
    for _ in range(_TRIES):
        try:
            found = recover_patch(downstream, plan.patch, n_units)
            return extend_to_all_units(found.downstream, found.patch, callback)
        except NotIdentified as error:
            if error.final:
                raise
            failures.append(str(error))
    raise NotIdentified("second layer", "residual", "; ".join(dict.fromkeys(failures)))
