"""What the layers behind a first one that is wider than the input take, before they are searched."""

import warnings

from sklearn.exceptions import ConvergenceWarning

from skident.oracle import OutOfBudgetError

from ..constants import HELD_OUT_PER_PARAMETER

_SLOW_UNITS = 64  # of a first layer wider than the input, from which the search takes minutes
_PER_UNIT = 5_000  # queries of a search per unit of it, beyond those of other searches (budget)
_LEAST_PER_UNIT = 2_000  # queries that a unit of the next layer takes, at least
_CROSSINGS = 2  # boundaries per unit of the next layer on a line, at most: one to two were counted
_SLOW = (
    "the first layer has at least {} units and is wider than the {} inputs: the layers behind it take minutes and "
    "{:,} queries or more, and rare units may be missing. max_seconds and max_queries bound the search."
)
_TOO_FEW = (
    "max_queries leaves {:,.0f} queries, and the layers behind a first one of {} units need {:,} or more: raise "
    "max_queries"
)


def further_queries(probe, n_units, n_lines, n_unexplained):
    """Queries that a search behind a first layer of many units may take beyond others: 0 but for wide ones.

    A wide first layer is warned of. Raises `OutOfBudgetError` if `max_queries` are too few for what follows it; the
    width of the next layer is estimated from the bends on lines that no hyperplane explains.
    """
    if n_units < _SLOW_UNITS or n_units <= probe.n_inputs:
        return 0
    width = n_unexplained // (_CROSSINGS * max(n_lines, 1))
    needed = _LEAST_PER_UNIT * width + HELD_OUT_PER_PARAMETER * n_units * width // probe.n_outputs
    left = probe.oracle.budget.queries_left
    if left < needed:
        raise OutOfBudgetError(_TOO_FEW.format(left, n_units, needed))
    warnings.warn(_SLOW.format(n_units, probe.n_inputs, needed), ConvergenceWarning, stacklevel=2)
    return _PER_UNIT * n_units
