"""Units of one hidden ReLU layer grown from the residuals of coarse outputs, whose lines lose most boundaries."""

from __future__ import annotations

import numpy as np

from skident.fitting.errors_of_fit import FitSample
from skident.fitting.robust_polish import residual_scale, robust_polish
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from .units import ReLUUnits
from .unsigned import output_std, query_rows, screened, significant, units_of, with_linear_part

__all__ = ["grown_units"]

_QUERIES = 6000  # budget: 16 outputs per parameter of a network 10-32-1
_QUERIES_PER_INPUT = 500  # the same of many inputs
_GROWTH = 8  # units added at a time
_MOST_STEPS = 16  # after which networks are too large for the queries
_ROUNDS = 6  # of each fit
_TOLERATED = 0.5  # of the last relative residual that a fit counts as errors of the outputs
_SIGNIFICANT = 6.0  # standard errors below which a unit is redundant
_FIRST_PRUNED = 3  # steps after which units are pruned: the first ones only approximate
_QUANTILE = 0.9  # of the residuals, that gives their scale: units still missing show in few outputs
_IDLE = 2  # steps in a row that add no significant unit, after which they are complete or nearly so
_NEARLY = 4.0  # scale up to which that is taken for completeness


def grown_units(oracle, rng):
    """The `ReLUUnits`, nearly complete, of a network fitted step by step: eight units more, polish, pruning.

    Errors of the outputs count as at least a share of the last step's residual, relative to the distance from the
    center, so that all distances weigh the same until the fit is as accurate as the outputs. Raises `NotIdentified` if
    the residuals do not fall to these errors.
    """
    D, p = oracle.n_inputs, len(oracle.accuracy.std)
    guess = FeedforwardNetwork([np.eye(D), np.zeros((D, p))], [np.zeros(D), np.zeros(p)], "relu")
    rows = query_rows(oracle, guess, max(_QUERIES, _QUERIES_PER_INPUT * D), rng)
    distance = 1.0 + np.linalg.norm(rows.inputs, axis=1, keepdims=True) / np.sqrt(D)
    units = ReLUUnits(np.eye(D)[:, :1], np.zeros(1), np.ones((1, p)), np.zeros(1))
    std, tolerated, counts = rows.std, np.inf, []
    for n_steps in range(_MOST_STEPS):
        rows = FitSample(rows.inputs, rows.outputs, np.hypot(std, min(tolerated, 1.0) * distance))
        network, _ = with_linear_part(units, rows)
        fit = robust_polish(network, rows.inputs, rows.outputs, rows.std, max_rounds=_ROUNDS, quantile=_QUANTILE)
        residual = np.abs(fit.network(rows.inputs) - rows.outputs)
        std = output_std(oracle, fit.network, rows.inputs, rows.outputs)
        tolerated = min(tolerated, _TOLERATED * residual_scale(residual / distance, _QUANTILE))
        rows = FitSample(rows.inputs, rows.outputs, np.hypot(std, tolerated * distance))
        units = units_of(fit.network)
        if n_steps >= _FIRST_PRUNED:
            units = units.take(significant(fit, rows, _SIGNIFICANT))
        counts.append(len(units))
        scale = residual_scale(residual / std, _QUANTILE)
        idle = len(counts) > _IDLE and max(counts[-_IDLE:]) <= counts[-_IDLE - 1]
        if n_steps >= _FIRST_PRUNED and idle and scale < _NEARLY:
            return units
        units = units.joined(screened(fit, rows, rng, _GROWTH))
    raise NotIdentified(
        "activation boundaries",
        "unexplained",
        f"{counts[-1]} units leave residuals of {scale:.1e} times the outputs' error: there are more units, or the "
        "black box is no network with one hidden layer of ReLU units.",
    )
