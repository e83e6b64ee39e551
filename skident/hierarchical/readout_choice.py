"""The paper's form or linear readouts: whichever explains the data, or predicts better."""

from __future__ import annotations

from .few_rows import has_few_rows
from .linear_fits import fit_linear
from .shrinkage import shrunk
from .sum_fits import EXPLAINED, fit_sum

__all__ = ["fit_auto"]

_HOPELESS = 0.02  # relative loss above which three starts of the sum are enough
_PROMISING = 2.0  # ratio of the sum's error without penalty to that of linear readouts up to which penalties are tried


def fit_auto(problem, search, l2="auto"):
    """The paper's form where it explains the data or predicts at least as well as linear readouts do.

    Parameters
    ----------
    problem : Problem
        One output.
    search : Search
    l2 : float or "auto", default="auto"
        As `fit_sum` and `fit_linear` take it.

    Returns
    -------
    Fit
        Not finite if neither form has finite outputs.
    """
    if has_few_rows(problem):
        return fit_linear(problem, search, l2, cross_validate=True)
    found = fit_sum(problem, search, l2, hopeless=_HOPELESS)
    if found.loss < EXPLAINED:
        return found
    if not found.finite:
        return fit_linear(problem, search, l2)
    other = fit_linear(problem, search, l2, cross_validate=True)
    if found.error >= _PROMISING * other.error:
        return other
    found = shrunk(problem, search, found, l2)
    return found if found.error < other.error else other
