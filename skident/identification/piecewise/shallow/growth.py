"""Units of one hidden ReLU layer grown from the residuals of coarse outputs, whose lines lose most boundaries.

Errors of the outputs count as at least a share of the last step's residual, relative to the distance from the center:
all outputs, of which the smallest may be accurate, weigh the same until the fit is as accurate as they are.
"""

import numpy as np

from skident.fitting.errors_of_fit import FitSample
from skident.fitting.robust_polish import residual_scale, robust_polish
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified

from ...constants import SIGNIFICANT, TOLERATED
from .screening import screened, screened_beside
from .units import ReLUUnits
from .unsigned import output_std, query_rows, significant, units_of, with_linear_part

_QUERIES = 6000  # budget: 16 outputs per parameter of a network 10-32-1
_QUERIES_PER_INPUT = 500  # `_QUERIES` of many inputs
_GROWTH = 8  # units added at a time
_MOST_STEPS = 16  # after which networks are too large for the queries
_FIT_ROUNDS = 6  # of each fit
_FIRST_PRUNED = 3  # steps after which units are pruned: the first ones only approximate
_QUANTILE = 0.9  # of the residuals, that gives their scale: units still missing show in few outputs
_IDLE = 2  # steps in a row that add no significant unit, after which they are complete or nearly so
_NEARLY = 4.0  # scale up to which that is taken for completeness
_CLOSE_ROUNDS = 6  # searches for units close to others: each adds at most four, and most networks have fewer pairs
_CLOSE_TOLERATED = 0.01  # errors tolerated at first, of the outputs' spread: pairs taken for one leave such errors


class _TolerantFits:
    """Fits of units, one after another, to the same outputs, with fewer and fewer errors that are tolerated."""

    def __init__(self, oracle, rows, tolerated):
        self.oracle, self.inputs, self.outputs, self.std = oracle, rows.inputs, rows.outputs, rows.std
        self.tolerated, self.scale = tolerated, np.inf
        self.distance = 1.0 + np.linalg.norm(rows.inputs, axis=1, keepdims=True) / np.sqrt(oracle.n_inputs)

    @property
    def rows(self):
        """The `FitSample` with the errors that are tolerated."""
        return FitSample(self.inputs, self.outputs, np.hypot(self.std, self.tolerated * self.distance))

    def fit(self, units):
        """The `RobustFit` of units without signs; `scale` is that of its residuals over the outputs' errors."""
        rows = self.rows
        network, _ = with_linear_part(units, rows)
        fit = robust_polish(network, rows.inputs, rows.outputs, rows.std, max_rounds=_FIT_ROUNDS, quantile=_QUANTILE)
        residual = np.abs(fit.network(rows.inputs) - rows.outputs)
        self.std = output_std(self.oracle, fit.network, rows.inputs, rows.outputs)
        self.tolerated = min(self.tolerated, TOLERATED * residual_scale(residual / self.distance, _QUANTILE))
        self.scale = residual_scale(residual / self.std, _QUANTILE)
        return fit


def with_close_units(oracle, units, rows, rng):
    """The `ReLUUnits` and others with nearly equal hyperplanes, that a fit to a `FitSample` has as one unit."""
    fits = _TolerantFits(oracle, rows, _CLOSE_TOLERATED)
    for _ in range(_CLOSE_ROUNDS):
        fit = fits.fit(units)
        units = units_of(fit.network).take(significant(fit, fits.rows, SIGNIFICANT))
        new = screened_beside(fit, fits.rows, rng)
        if len(new) == 0:
            break
        units = units.joined(new)
    return units


def grown_units(oracle, rng):
    """The `ReLUUnits`, nearly complete, of a network fitted step by step: eight units more, polish, pruning.

    Raises `NotIdentified` if the residuals do not fall to the errors of the outputs.
    """
    D, p = oracle.n_inputs, len(oracle.accuracy.std)
    guess = FeedforwardNetwork([np.eye(D), np.zeros((D, p))], [np.zeros(D), np.zeros(p)], "relu")
    fits = _TolerantFits(oracle, query_rows(oracle, guess, max(_QUERIES, _QUERIES_PER_INPUT * D), rng), 1.0)
    units, counts = ReLUUnits(np.eye(D)[:, :1], np.zeros(1), np.ones((1, p)), np.zeros(1)), []
    for n_steps in range(_MOST_STEPS):
        fit = fits.fit(units)
        units = units_of(fit.network)
        if n_steps >= _FIRST_PRUNED:
            units = units.take(significant(fit, fits.rows, SIGNIFICANT))
        counts.append(len(units))
        idle = len(counts) > _IDLE and max(counts[-_IDLE:]) <= counts[-_IDLE - 1]
        if n_steps >= _FIRST_PRUNED and idle and fits.scale < _NEARLY:
            return units
        units = units.joined(screened(fit, fits.rows, rng, _GROWTH))
    raise NotIdentified(
        "activation boundaries",
        "unexplained",
        f"{counts[-1]} units leave residuals of {fits.scale:.1e} times the outputs' error: there are more units, or "
        "the black box is no network with one hidden layer of ReLU units.",
    )
