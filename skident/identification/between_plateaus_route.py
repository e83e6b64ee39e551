"""The route of clipped outputs with smooth units: a fit to the outputs strictly between the plateaus."""

from __future__ import annotations

import numpy as np

from skident.fitting.batched_fits import Rows, network_of
from skident.fitting.width_search import Limits, search_weights, search_widths

from .attempts import polished_attempt

__all__ = ["by_outputs_between"]

_SPREADS = (1.0, 2.0, 4.0)  # of the rows, in standard deviations: units that bend far from the data show too
_FEWEST, _PER_PARAMETER = 2000, 12  # rows: for networks of up to some 30 units, and of more
_SEARCHING = 0.75  # share of the time for the search; the rest is for the polish and the validation


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
    `search_widths` on 2,000 rows: far out, where units would show one by one, most outputs are clipped.
    """
    oracle, rng = inquiry.oracle, inquiry.rng
    architecture = inquiry.architecture((oracle.n_outputs,) if inquiry.widths is None else inquiry.widths)
    n = max(_FEWEST, _PER_PARAMETER * architecture.n_parameters(oracle.n_inputs)) // oracle.n_outputs + oracle.n_inputs

    def draw(n, factor):
        return factor * rng.choice(_SPREADS, (n, 1)) * rng.standard_normal((n, oracle.n_inputs))

    with inquiry.log.stage("fit between the plateaus", oracle) as entry:
        limits = Limits(max_neurons=inquiry.limits.max_neurons, deadline=oracle.clock.share(_SEARCHING))
        rows = Rows(*oracle.ask_near(draw, n))
        search = search_widths if inquiry.widths is None else search_weights
        fitted = search(rows, architecture, limits, rng).fitted
        misfit = entry["residual"] = float(np.sqrt(fitted.cost / max(rows.total, np.finfo(float).tiny)))
    network = network_of(fitted.x, oracle.n_inputs, fitted.architecture)
    return polished_attempt(inquiry, network, misfit, "between", "between the plateaus")
