"""Clipped outputs of smooth networks: a fit to the outputs strictly between the plateaus."""

from __future__ import annotations

import numpy as np

from skident.fitting.batched_fits import WeightedSamples, network_of
from skident.fitting.width_search import SearchLimits, search_weights, search_widths
from skident.optim import WorkBudget

from ..attempt import Attempt, polished_attempt
from ..constants import SEARCH_SHARE, SPREADS

__all__ = ["METHOD"]

_MIN_SAMPLES = 1000  # samples, which networks of up to about 30 units need (tuned on honesty/clipped)
_PER_PARAMETER = 12  # outputs per parameter for larger networks (tuned on honesty/clipped)
_MAX_UNITS = 20  # hidden units: larger networks take minutes and mostly fail (honesty/clipped)
_POLISHABLE = 1e-5  # relative residual from which the polish converges to the network
_LIMIT = 1e-3  # relative residual of a fit that is not close, from which other samples are tried
# Hidden widths of the starts, which are pruned: at first, and on other samples if these ended in local minima.
_SIZES = (((4,), (9,), (16,)), ((16,), (28,)))
# With two hidden layers (tuned on honesty/clipped).
_DEEP_SIZES = (((6, 4), (11, 8)), ((11, 8),))


class ClippedOutputs:
    """A network fitted to the outputs that are not clipped, and polished on these.

    At large inputs, where units could be observed one at a time, most outputs are clipped.
    """

    name = "between the plateaus"

    def refuses(self, problem):
        """See `Method`."""
        return None if problem.oracle.output_bounds is not None else "the outputs are not clipped."

    def run(self, problem, step, state):
        """See `Method`: the network before the clip."""
        network, residual = _fit(problem)
        if residual > max(_POLISHABLE, problem.fit_tol):
            error = problem.held_out.error_of(network)
            return Attempt(network, error, "between", residual, self.name)
        return polished_attempt(problem, network, residual, "between", self.name)


METHOD = ClippedOutputs()


def _fit(problem):
    """A network fitted to samples between the plateaus, and its relative residual."""
    oracle, rng = problem.oracle, problem.rng
    architecture = problem.architecture((oracle.n_outputs,) if problem.widths is None else problem.widths)
    n_values = max(_MIN_SAMPLES, _PER_PARAMETER * architecture.n_parameters(oracle.n_inputs))
    n = n_values // oracle.n_outputs + oracle.n_inputs

    def draw(n, factor):  # never farther out
        return rng.choice(SPREADS, (n, 1)) * rng.standard_normal((n, oracle.n_inputs))

    with problem.log.stage("fit between the plateaus", oracle) as entry:
        max_units = min(problem.max_neurons(), _MAX_UNITS)
        budget = WorkBudget(deadline=oracle.budget.share(SEARCH_SHARE))
        search = search_widths if problem.widths is None else search_weights
        network, residual = None, np.inf
        for sizes, deep_sizes in zip(_SIZES, _DEEP_SIZES, strict=True):
            sizes = sizes + deep_sizes if problem.discover else sizes
            limits = SearchLimits(max_neurons=max_units, budget=budget, sizes=sizes)
            rows = WeightedSamples(*oracle.query_precise(draw, n))
            fitted = search(rows, architecture, limits, rng).fitted
            left = float(np.sqrt(fitted.cost / max(rows.total, np.finfo(float).tiny)))
            if network is None or left < residual:
                network, residual = network_of(fitted.x, oracle.n_inputs, fitted.architecture), left
            if residual < _LIMIT or limits.spent:
                break
        entry["residual"] = residual
    return network, residual
