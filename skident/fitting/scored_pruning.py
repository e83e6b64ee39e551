"""Pruning by an information criterion: the number of hidden units that noisy outputs support."""

from dataclasses import dataclass, field

import numpy as np

from skident.budget.constants import FINE_FTOL, PATIENCE, REFIT_STEPS, SOME_SAMPLES
from skident.network import Architecture
from skident.optim import Ending, WorkBudget, batched_levenberg_marquardt

from .batched_fits import BatchedNetworkFits, PenalizedNetworkFits, Prior, WeightedSamples, network_of, parameters_of
from .pruning import removal_costs, remove_unit

_N_CANDIDATES = 3  # units of a layer, the cheapest ones, whose removal is tried (budget)
# Of fits that are pruned to given widths: steps and survivors, all of which are pruned. The minimum of networks 6-4-1
# of gelu units is reached from about a third of them, and from fewer than one in 48 starts of these widths.
WIDE_ROUNDS = ((20, 8), (30, 5))
_WIDE_STEPS = 15  # of a refit on the way: more do not raise the share of the ends that reach the minimum
# Score of a parameter with a prior: the best of the units that are not there gains, in 95 of 100 cases, 1.8 to 2.5
# times the number of its parameters (tanh, sin, softplus; 4 to 20 inputs, 1 to 3 outputs; 10 and 40 rows a parameter).
PARAMETER_PRICE = 2.5


@dataclass(frozen=True)
class ScoredFit:
    """A network fitted to samples: parameters x (P,), cost (penalty included) and `Scoring.score`."""

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
    """The Bayesian information criterion of networks on samples; with a prior, a test of every unit against noise.

    With a `prior`, fits are penalized, and a unit that is not there is kept in one of 20 cases.
    """

    samples: WeightedSamples
    rounding_cost: float  # a cost that is rounding: lower ones count as this one
    n_fixed: int = 0  # units at the end of the first layer that stay, see `with_linear_units`
    budget: WorkBudget = field(default_factory=WorkBudget)  # no step is made once it is spent
    prior: Prior | None = None

    def fits(self, architecture):
        """The problem to minimize, `BatchedNetworkFits`."""
        if self.prior is None:
            return BatchedNetworkFits(architecture, self.samples)
        return PenalizedNetworkFits(architecture, self.samples, self.prior)

    def score(self, architecture, cost):
        """``N log(cost / N) + P log N`` for N outputs and P parameters; with a prior ``cost / noise + 2.5 P``."""
        N, P = self.samples.n_values, architecture.n_parameters(self.samples.n_inputs)
        if self.prior is not None:
            return cost / self.prior.noise + PARAMETER_PRICE * P
        return N * np.log(max(cost, self.rounding_cost) / N) + P * np.log(N)

    def scored(self, architecture, x, cost):
        """A fit with its score."""
        return ScoredFit(architecture, x, float(cost), float(self.score(architecture, cost)))

    def refit(self, architecture, starts, *, max_iter=REFIT_STEPS, ftol=FINE_FTOL):
        """The best of some starts (B, P) after a few steps."""
        ending = Ending(max_iter=max_iter, ftol=ftol, target=self.rounding_cost, budget=self.budget)
        result = batched_levenberg_marquardt(self.fits(architecture), starts, ending)
        best = int(np.argmin(result.cost))
        return self.scored(architecture, result.x[best], result.cost[best])


def half_as_wide_again(widths):
    """Widths with hidden layers half as wide again, of networks to be pruned to the given ones."""
    return (*[m + (m + 1) // 2 for m in widths[:-1]], widths[-1])


def prune_to(fit, scoring, widths):
    """Remove hidden units down to given widths, whatever the score; the `ScoredFit`."""
    while smaller := _one_less(fit, scoring, _N_CANDIDATES, widths, _WIDE_STEPS):
        fit = min(smaller, key=lambda one: one.cost)
    return fit


def prune_by_score(fit, scoring):
    """Remove hidden units one at a time, and return the `ScoredFit` of the best score on the way.

    In every layer, the three units that cost least (`removal_costs`) are removed in turn and the three networks are
    refitted in one batch; of all layers the network of the best score goes on. It ends after two removals in a row
    that do not improve the score, once no unit of the best network can be removed at all.
    """
    best, wasted = fit, 0
    while not scoring.budget.spent:
        # At the end all units are tried: two sines of one frequency are one, though neither is cheap to remove.
        last = wasted == PATIENCE
        smaller = _one_less(best, scoring, sum(best.widths)) if last else _one_less(fit, scoring, _N_CANDIDATES)
        fit = min(smaller, key=lambda one: one.score, default=best)
        if fit.score < best.score:
            best, wasted = fit, 0
        elif last or not smaller:
            break
        else:
            wasted += 1
    return best


def _one_less(fit, scoring, n_tried, min_widths=None, max_iter=REFIT_STEPS):
    """The best fit with one unit less, for every layer wider than `min_widths`, or than 1."""
    D, widths = scoring.samples.n_inputs, fit.widths
    network = network_of(fit.x, D, fit.architecture)
    costs, replacements = removal_costs(network, scoring.samples.U[:SOME_SAMPLES])
    smaller = []
    for layer, (cost, replacement) in enumerate(zip(costs, replacements, strict=True)):
        able = len(cost) - (scoring.n_fixed if layer == 0 else 0)
        if able <= (1 if min_widths is None else min_widths[layer]):
            continue
        units = np.argsort(cost[:able])[:n_tried]
        starts = np.array([parameters_of(remove_unit(network, layer, j, replacement[:, j])) for j in units])
        architecture = fit.architecture.with_widths(m - (k == layer) for k, m in enumerate(widths))
        smaller.append(scoring.refit(architecture, starts, max_iter=max_iter))
    return smaller
