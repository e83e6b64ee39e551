"""Networks made smaller as long as an information criterion falls: the width of a network behind noisy answers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from skident.network import Architecture
from skident.optim import Ending, WorkBudget, batched_levenberg_marquardt

from .batched_fits import BatchedNetworkFits, network_of, parameters_of
from .penalised_fits import PenalisedNetworkFits, Prior
from .removal import removal_costs, remove_unit

__all__ = ["Fitted", "Scoring", "prune_by_score"]

_TRIED = 3  # units of a layer, the cheapest ones, that are left out in turn
_MENDING, _MENDING_FTOL = 60, 1e-4  # steps after a removal; the gain below which they end
_PATIENCE = 2  # removals in a row that make the score worse
_ROWS = 2000  # on which the costs of removals are estimated
# Of a parameter where there is a prior: the best of units that are not there gains, in 95 of 100 cases, 1.8 to 2.5
# times the number of its parameters (tanh, sin, softplus; 4 to 20 inputs, 1 to 3 outputs; 10 and 40 rows a parameter).
_PRICE = 2.5


@dataclass(frozen=True)
class Fitted:
    """A network fitted to rows.

    Attributes
    ----------
    architecture : Architecture
    x : ndarray of shape (P,)
    cost : float
        Weighted sum of squared residuals, and the penalty where there is a prior.
    score : float
        See `Scoring.score`.
    """

    architecture: Architecture
    x: np.ndarray
    cost: float
    score: float

    @property
    def widths(self):
        """``(m_1, ..., m_L)``."""
        return self.architecture.widths


@dataclass(frozen=True)
class Scoring:
    """The Bayesian information criterion of networks on given rows, or a test of every unit against noise.

    Attributes
    ----------
    rows : Rows
    good : float
        A cost that is rounding: lower ones count as this one.
    n_fixed : int
        Units at the end of the first layer that stay, see `with_linear_units`.
    budget : WorkBudget
        No step is made once it is spent; without limits by default.
    prior : Prior, default=None
        With one, fits are penalised and a unit that is not there is kept in one of 20 cases.
    """

    rows: object
    good: float
    n_fixed: int = 0
    budget: WorkBudget = field(default_factory=WorkBudget)
    prior: Prior | None = None

    def fits(self, architecture):
        """What is minimised.

        Parameters
        ----------
        architecture : Architecture

        Returns
        -------
        BatchedNetworkFits
        """
        if self.prior is None:
            return BatchedNetworkFits(architecture, self.rows)
        return PenalisedNetworkFits(architecture, self.rows, self.prior)

    def score(self, architecture, cost):
        """``N log(cost / N) + P log N`` with N answers and P parameters; with a prior ``cost / noise + 2.5 P``.

        Parameters
        ----------
        architecture : Architecture
        cost : float

        Returns
        -------
        float
        """
        N, P = self.rows.n_answers, architecture.n_parameters(self.rows.n_inputs)
        if self.prior is not None:
            return cost / self.prior.noise + _PRICE * P
        return N * np.log(max(cost, self.good) / N) + P * np.log(N)

    def fitted(self, architecture, x, cost):
        """A fit with its score.

        Parameters
        ----------
        architecture : Architecture
        x : ndarray of shape (P,)
        cost : float

        Returns
        -------
        Fitted
        """
        return Fitted(architecture, x, float(cost), float(self.score(architecture, cost)))

    def refit(self, architecture, starts, *, max_iter=_MENDING, ftol=_MENDING_FTOL):
        """The best of some starts after a few steps.

        Parameters
        ----------
        architecture : Architecture
        starts : ndarray of shape (B, P)
        max_iter : int
        ftol : float

        Returns
        -------
        Fitted
        """
        fits = self.fits(architecture)
        ending = Ending(max_iter=max_iter, ftol=ftol, target=self.good, budget=self.budget)
        result = batched_levenberg_marquardt(fits, starts, ending)
        best = int(np.argmin(result.cost))
        return self.fitted(architecture, result.x[best], result.cost[best])


def prune_by_score(fitted, scoring, at_least=None):
    """Leave out hidden units one at a time, and keep the network with the best score on the way.

    Parameters
    ----------
    fitted : Fitted
    scoring : Scoring
    at_least : sequence of int, default=None
        Widths to be reached, whatever the score; None for those of the best score.

    Returns
    -------
    Fitted

    Notes
    -----
    Of every layer the three units that cost least (`removal_costs`) are left out in turn, the others taking over, and
    the three networks are fitted in one batch; of all layers the network with the best score goes on. Two removals in a
    row that do not lower the best score end it, once no unit of the best network can be left out at all.
    """
    if at_least is not None:
        while smaller := _one_less(fitted, scoring, _TRIED, at_least):
            fitted = min(smaller, key=lambda one: one.cost)
        return fitted
    best, wasted = fitted, 0
    while not scoring.budget.spent:
        # The last look is at all units: two sines of one frequency are one, though neither is cheap to leave out.
        last = wasted == _PATIENCE
        smaller = _one_less(best, scoring, sum(best.widths)) if last else _one_less(fitted, scoring, _TRIED)
        fitted = min(smaller, key=lambda one: one.score, default=best)
        if fitted.score < best.score:
            best, wasted = fitted, 0
        elif last or not smaller:
            break
        else:
            wasted += 1
    return best


def _one_less(fitted, scoring, n_tried, at_least=None):
    """The best fit with one unit less, for every layer that has two or more, or more than asked for."""
    D, widths = scoring.rows.n_inputs, fitted.widths
    network = network_of(fitted.x, D, fitted.architecture)
    costs, takeovers = removal_costs(network, scoring.rows.U[:_ROWS])
    smaller = []
    for layer, (cost, takeover) in enumerate(zip(costs, takeovers, strict=True)):
        able = len(cost) - (scoring.n_fixed if layer == 0 else 0)
        if able <= (1 if at_least is None else at_least[layer]):
            continue
        units = np.argsort(cost[:able])[:n_tried]
        starts = np.array([parameters_of(remove_unit(network, layer, j, takeover[:, j])) for j in units])
        architecture = fitted.architecture.with_widths(m - (k == layer) for k, m in enumerate(widths))
        smaller.append(scoring.refit(architecture, starts))
    return smaller
