"""The route of clipped outputs with smooth units: a fit to the outputs strictly between the plateaus."""

from __future__ import annotations

import numpy as np

from skident.fitting.batched_fits import WeightedSamples, network_of
from skident.fitting.width_search import SearchLimits, search_weights, search_widths
from skident.optim import WorkBudget

from ..solve import Attempt, polished_attempt, worst_error

__all__ = ["by_outputs_between"]

_SPREADS = (1.0, 2.0)  # of the rows, in standard deviations: farther out, more units are steps and fits get stuck
_FEWEST = 1000  # rows, which networks of up to 30 units or so need
_PER_PARAMETER = 12  # rows for larger networks
_MOST_UNITS = 20  # hidden units: larger networks take minutes and mostly fail, since far outputs are missing
_SEARCHING = 0.75  # share of the time for the search; the rest is for the polish and the validation
_CLOSE = 1e-5  # misfit from which the polish ends at the network
_LIMIT = 1e-3  # misfit below which a fit that is not close is a limit of networks: more units come no closer
# Hidden widths of the starts, which are pruned: at first, and on other rows where these ended in local minima.
_SIZES = (((4,), (9,), (16,)), ((16,), (28,)))
_DEEPER = (((6, 4), (11, 8)), ((11, 8),))


def by_outputs_between(inquiry, earlier):
    """A network fitted to the outputs that are not clipped, and polished on these.

    Parameters
    ----------
    inquiry : Inquiry
        Its oracle has `bounds`.
    earlier : list of Attempt

    Returns
    -------
    Attempt
        Of the network before the clip.

    Raises
    ------
    BlackBoxError
        If the black box fails, or hardly any output lies between the plateaus.
    OutOfBudgetError
        If the queries do not suffice for the fit.

    Notes
    -----
    `search_widths` on 1,000 rows: far out, where units would show one by one, most outputs are clipped.
    """
    oracle, rng = inquiry.oracle, inquiry.rng
    architecture = inquiry.architecture((oracle.n_outputs,) if inquiry.widths is None else inquiry.widths)
    n = max(_FEWEST, _PER_PARAMETER * architecture.n_parameters(oracle.n_inputs)) // oracle.n_outputs + oracle.n_inputs

    def draw(n, factor):  # never farther out
        return rng.choice(_SPREADS, (n, 1)) * rng.standard_normal((n, oracle.n_inputs))

    with inquiry.log.stage("fit between the plateaus", oracle) as entry:
        most = min(inquiry.limits.max_neurons, _MOST_UNITS)
        budget = WorkBudget(deadline=oracle.clock.share(_SEARCHING))
        search = search_widths if inquiry.widths is None else search_weights
        network, misfit = None, np.inf
        for sizes, deeper in zip(_SIZES, _DEEPER, strict=True):
            limits = SearchLimits(max_neurons=most, budget=budget, sizes=sizes + deeper if inquiry.discover else sizes)
            rows = WeightedSamples(*oracle.query_precise(draw, n))
            fitted = search(rows, architecture, limits, rng).fitted
            left = float(np.sqrt(fitted.cost / max(rows.total, np.finfo(float).tiny)))
            if network is None or left < misfit:
                network, misfit = network_of(fitted.x, oracle.n_inputs, fitted.architecture), left
            if misfit < _LIMIT or limits.spent:
                break
        entry["residual"] = misfit
    said = "between", misfit, "between the plateaus"
    if misfit > max(_CLOSE, inquiry.fit_tolerance):
        return Attempt(network, worst_error(inquiry.fresh.answers, network(inquiry.fresh.inputs)), *said)
    return polished_attempt(inquiry, network, misfit, said[0], said[2])
