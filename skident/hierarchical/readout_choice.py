"""The paper's form or linear readouts: whichever explains the data, or predicts better."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from skident.base.progress import StageLog

from .few_rows import has_few_rows
from .linear_fits import fit_linear
from .sum_fits import EXPLAINED, fit_sum

__all__ = ["fit_auto"]

_HOPELESS = 0.02  # relative loss above which three starts of the sum are enough


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
    if found.error >= other.error:
        return other
    error = _cross_validated_sum(problem, search, l2)
    return dataclasses.replace(found, error=error) if error < other.error else other


def _cross_validated_sum(problem, search, l2):
    """Relative squared error of `fit_sum` on held-out rows, from new starts.

    Its polynomials may explode between rows, which generalised cross-validation does not see.
    """
    n, total = len(problem.x), 0.0
    search = dataclasses.replace(search, n_init=min(2, search.n_init), log=StageLog())
    for fold in np.array_split(np.arange(n), 3):
        fit = fit_sum(problem.part(np.setdiff1d(np.arange(n), fold)), search, l2)
        if not fit.finite:
            return float("inf")
        with torch.no_grad():
            total += float(((fit.module(problem.x[fold]) - problem.y[fold]) ** 2).sum())
    error = total / float(((problem.y - problem.y.mean()) ** 2).sum())
    return error if np.isfinite(error) else float("inf")
