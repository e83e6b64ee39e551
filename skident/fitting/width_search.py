"""The smallest network through rows: wide fits from many starts, made smaller, over a ladder of sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from skident.optim import WorkBudget

from .batched_fits import BatchedNetworkFits, network_of, parameters_of, random_parameters
from .lack_of_fit import FEWEST_LEFT, NO_NOISE, lack_of_fit
from .linear_units import oddness, sides_chosen, with_linear_units
from .races import Race, race
from .scored_pruning import Fitted, Scoring, prune_by_score
from .unit_replacement import Replacing, replace_units

__all__ = ["Found", "Limits", "search_widths", "search_weights"]

_ONE_LAYER, _TWO_LAYERS = (4, 9, 16, 28, 50, 90, 160), ((6, 4), (11, 8), (20, 13), (36, 24))
# Sizes of steep networks, and how often one is tried; more starts than elsewhere, of which some are fitted further.
_STEEP, _TIMES, _MORE_STARTS, _SOME = ((9, 6), (14, 9), (20, 13)), 2, 3, ((30, 16), (30, 8))
_SMALL = 16  # hidden units of sizes that are tried before those of steep networks
_STEEP_MISFIT = 0.3  # misfit of the best of them above which the network may be steep
_ANSWERS_PER_PARAMETER = 2.0  # of the widest networks tried
# Rungs of one depth in a row that do not better the best score, after which its wider ones are left; by layers.
_IN_VAIN = {2: 1, 3: 2}
_BETTER = 1.0  # by which a score is lower that is not the same
_PLATEAU = 0.8  # times the share of the answers that is left: residual variance of wider networks beside the best one's
_ROUNDING = 1e-12  # relative misfit that ends fits
_WIDER = (lambda m: 2 * m + 1, lambda m: m + (m + 1) // 2)  # layers that are pruned to widths that are given
_FINISH = {"max_iter": 200, "ftol": 1e-9}


@dataclass(frozen=True)
class Limits:
    """What a search may take.

    Attributes
    ----------
    n_starts : int
        Of every size.
    max_neurons : int
        Hidden units at most.
    budget : WorkBudget
        No step is made once it is spent.
    say : callable
        Takes a line about every size tried.
    sizes : tuple of tuple of int
        Hidden widths that starts have, for one pass over these instead of the usual search; where widths are given,
        any make it end after two attempts.
    """

    n_starts: int = 16
    max_neurons: int = 200
    budget: WorkBudget = field(default_factory=WorkBudget)
    say: Callable = field(default=lambda text: None)
    sizes: tuple = ()

    @property
    def spent(self):
        """Whether the budget is."""
        return self.budget.spent


@dataclass(frozen=True)
class Found:
    """The network that a search ended at.

    Attributes
    ----------
    fitted : Fitted
    settled : bool
        Whether nothing wider explains the rows better: the misfit is rounding, or as large with wider networks.
    tried : list of dict
        ``widths`` of the start and ``ended`` at, ``misfit`` (relative root mean square) and ``score``.
    """

    fitted: Fitted
    settled: bool
    tried: list


class _Sizes:
    """Fits of one kind of network to rows, and what came of them."""

    def __init__(self, rows, architecture, limits, rng):
        self.rows, self.base, self.limits, self.rng = rows, architecture, limits, rng
        self.scoring = Scoring(rows, _ROUNDING**2 * max(rows.total, np.finfo(float).tiny), budget=limits.budget)
        self.odd = oddness(architecture.activation) != 0.0
        self.tried, self.wide = [], []

    def exact(self, fitted):
        return fitted.cost <= self.scoring.good

    def start(self, widths, n_starts):
        """A race from random starts; with linear units where units may face either way."""
        architecture, scoring = self.base.with_widths(widths), self.scoring
        if self.odd and len(widths) == 2:
            architecture, scoring = with_linear_units(architecture), replace(scoring, n_fixed=widths[-1])
        x = random_parameters(self.rows.n_inputs, architecture, n_starts, self.rng)
        options = Race(good=scoring.good, budget=self.limits.budget)
        x, cost = race(BatchedNetworkFits(architecture, self.rows), x, options)
        return scoring.fitted(architecture, x[0], cost[0]), scoring

    def ended(self, fitted, scoring, prune=True):
        """A race's end made smaller, and without linear units."""
        fitted = prune_by_score(fitted, scoring) if prune else fitted
        if not scoring.n_fixed:
            return fitted
        mixed = network_of(fitted.x, self.rows.n_inputs, fitted.architecture)
        same, more = sides_chosen(mixed.weights, mixed.biases, *self.base.names)
        chosen = self.refined(same)
        if not prune:
            return chosen
        chosen = prune_by_score(chosen, self.scoring)
        if self.exact(chosen):
            return chosen
        return min(chosen, prune_by_score(self.refined(more), self.scoring), key=lambda one: one.score)

    def refined(self, network):
        architecture = self.base.with_widths(network.layer_widths)
        return self.scoring.refit(architecture, parameters_of(network)[None], **_FINISH)

    def leaves_noise(self, fitted):
        """Whether no function of the inputs explains the residuals."""
        if self.rows.n_answers - len(fitted.x) < FEWEST_LEFT:
            return False
        return lack_of_fit(fitted.architecture, self.rows, fitted.x, self.rng) >= NO_NOISE

    def rung(self, widths, n_starts):
        """One size: a race, made smaller."""
        wide, scoring = self.start(widths, n_starts)
        self.remember(wide)
        fitted = self.ended(wide, scoring)
        self.note(widths, fitted)
        return fitted

    def replaced(self, widths, prune=True):
        """One size: the better ends of more starts, as one population whose units are replaced."""
        architecture, scoring, limits = self.base.with_widths(widths), self.scoring, self.limits
        x = random_parameters(self.rows.n_inputs, architecture, _MORE_STARTS * limits.n_starts, self.rng)
        options = Race(_SOME, scoring.good, budget=limits.budget)
        x = race(BatchedNetworkFits(architecture, self.rows), x, options)[0]
        options = Replacing(good=scoring.good, budget=limits.budget)
        x, cost = replace_units(self.rows, architecture, x, self.rng, options)
        fitted = scoring.fitted(architecture, x[0], cost[0])
        if prune:
            self.remember(fitted)
            fitted = prune_by_score(fitted, scoring)
        return scoring.refit(fitted.architecture, fitted.x[None], **_FINISH)

    def remember(self, wide):
        """What a race that had its time left unexplained."""
        if not self.limits.spent:
            self.wide.append((wide.cost, wide.architecture.n_parameters(self.rows.n_inputs)))

    def note(self, widths, fitted):
        misfit = float(np.sqrt(fitted.cost / max(self.rows.total, np.finfo(float).tiny)))
        self.tried.append({"widths": widths, "ended": fitted.widths, "misfit": misfit, "score": fitted.score})
        self.limits.say(f"widths {widths} ended at {fitted.widths}: misfit {misfit:.1e}, score {fitted.score:.0f}")

    def plateau(self, best):
        """Whether wider networks leave as much unexplained, per degree of freedom, as the best one."""
        N, D = self.rows.n_answers, self.rows.n_inputs
        P = best.architecture.n_parameters(D)
        # The more parameters there are, the more noise they explain beyond one answer each.
        ratios = [cost / (N - p) / (1.0 - p / N) for cost, p in self.wide if P < p < N]
        return bool(ratios) and min(ratios) >= _PLATEAU * best.cost / max(N - P, 1.0)


def search_widths(rows, architecture, limits, rng):
    """The network with the best information criterion, of up to two hidden layers of any width.

    Parameters
    ----------
    rows : Rows
        Whitened.
    architecture : Architecture
        Activations; widths do not matter, except for the number of outputs.
    limits : Limits
    rng : numpy.random.RandomState

    Returns
    -------
    Found

    Notes
    -----
    Sizes are tried in the order of their parameters, those of two hidden layers among those of one, up to half as many
    as there are answers: 16 starts in one batch, the best one then pruned while the criterion falls. The first whose
    misfit is rounding ends it. Of noisy answers the wider ones of a depth are left out once they are no better. As long
    as the misfit is neither rounding nor noise and there is time, all sizes are tried again from other starts, and then
    the best one and those with one unit less.

    Where networks of up to 16 units leave a misfit above 0.3, populations of fits of two hidden layers come next
    (`replace_units`): the network may have steep units, as trained ones do, a few of which are met in every minimum. So
    they do, at one unit more a layer, where two layers are best.
    """
    sizes = _Sizes(rows, architecture, limits, rng)
    best = _linear_fit(sizes)
    sizes.note(best.widths, best)
    ladder, before = _ladder(rows, architecture, limits), best.score
    small, rungs = _split(ladder)
    if not sizes.exact(best):
        best = _replaced(sizes, _climbed(sizes, small, best))
    while not sizes.exact(best):
        best, spent = _climbed(sizes, rungs, best), limits.spent or bool(limits.sizes)
        if sizes.exact(best) or sizes.plateau(best) or spent or best.score >= before - _BETTER:
            break
        before = best.score
        rungs = [w for w in ladder if architecture.with_widths(w).n_hidden >= best.architecture.n_hidden]
    settled = sizes.exact(best) or sizes.plateau(best)
    if not settled and len(best.widths) > 1 and not limits.spent and not limits.sizes:
        best = _started_afresh(sizes, best)
        settled = sizes.exact(best) or sizes.plateau(best)
    return Found(best, settled, sizes.tried)


def _linear_fit(sizes):
    """The network without hidden layers, or the constant one, by the better score."""
    rows, p = sizes.rows, sizes.rows.n_outputs
    architecture = sizes.base.with_widths((p,))
    constant = np.zeros((1, (rows.n_inputs + 1) * p))
    if rows.n_answers <= 2 * architecture.n_parameters(rows.n_inputs):
        fits = BatchedNetworkFits(architecture, rows)
        return sizes.scoring.fitted(architecture, constant[0], fits.cost(constant)[0])
    return sizes.scoring.refit(architecture, constant)


def _ladder(rows, architecture, limits):
    """Widths to try, in the order of their parameters."""
    p = architecture.n_outputs
    widths = [(m, p) for m in (1, 2, *_ONE_LAYER)] + [(*pair, p) for pair in _TWO_LAYERS]
    widths = [(*hidden, p) for hidden in limits.sizes] or widths
    candidates = [architecture.with_widths(w) for w in widths]
    most = rows.n_answers / _ANSWERS_PER_PARAMETER
    able = [a for a in candidates if a.n_parameters(rows.n_inputs) <= most and a.n_hidden <= 3 * limits.max_neurons]
    ordered = sorted(able, key=lambda a: a.n_parameters(rows.n_inputs))
    # One or two units only where there are not the rows for more.
    return [a.widths for a in ordered if a.n_hidden >= _ONE_LAYER[0]] or [a.widths for a in ordered[-1:]]


def _steep(sizes, best, turn):
    """Widths of two hidden layers for the next population of fits; None where there is none."""
    if sizes.limits.sizes:
        return None
    if best.cost > _STEEP_MISFIT**2 * sizes.rows.total:
        pair = _STEEP[min(turn // _TIMES, len(_STEEP) - 1)]
    elif len(best.widths) == 3:
        pair = tuple(m + 1 for m in best.widths[:-1])  # nearly met, and by two layers: little more is enough
    else:
        return None
    wide = sizes.base.with_widths((*pair, best.widths[-1]))
    able = _ANSWERS_PER_PARAMETER * wide.n_parameters(sizes.rows.n_inputs) <= sizes.rows.n_answers
    return wide.widths if able and wide.n_hidden <= 3 * sizes.limits.max_neurons else None


def _split(rungs):
    """Sizes with few hidden units, and the others."""
    return [w for w in rungs if sum(w[:-1]) <= _SMALL], [w for w in rungs if sum(w[:-1]) > _SMALL]


def _replaced(sizes, best):
    """The best of populations of fits; until one is no better, or time is over."""
    for turn in range(_TIMES * len(_STEEP)):
        widths = _steep(sizes, best, turn)
        if widths is None or sizes.exact(best) or sizes.limits.spent:
            break
        fitted, before = sizes.replaced(widths), best
        sizes.note(widths, fitted)
        fits = sum(fitted.widths[:-1]) <= sizes.limits.max_neurons
        best = fitted if fits and fitted.score < best.score else best
        if best.score >= before.score - _BETTER:
            break
    return best


def _climbed(sizes, rungs, best):
    """The best of one pass over the sizes."""
    in_vain = {2: 0, 3: 0}
    for widths in rungs:
        depth = len(widths)
        if in_vain[depth] == _IN_VAIN[depth]:
            continue
        if sizes.limits.spent:
            break
        fitted = sizes.rung(widths, sizes.limits.n_starts)
        in_vain[depth] = 0 if fitted.score < best.score - _BETTER else in_vain[depth] + 1
        fits = sum(fitted.widths[:-1]) <= sizes.limits.max_neurons
        best = fitted if fits and fitted.score < best.score else best
        if sizes.exact(best):
            break
    return best


def _started_afresh(sizes, best):
    """The best of new starts at the best widths, and at those with one unit less."""
    centre, n_hidden = best.widths, len(best.widths) - 1
    around = [tuple(m - (k == layer) for k, m in enumerate(centre)) for layer in range(n_hidden)]
    for widths in [centre, *[w for w in around if min(w) > 0]]:
        if sizes.limits.spent:
            break
        fitted = sizes.ended(*sizes.start(widths, 2 * sizes.limits.n_starts), prune=False)
        sizes.note(widths, fitted)
        best = min(best, fitted, key=lambda one: one.score)
    return sizes.scoring.refit(best.architecture, best.x[None], **_FINISH)


def search_weights(rows, architecture, limits, rng):
    """The network of given widths with the least misfit.

    Parameters
    ----------
    rows : Rows
        Whitened.
    architecture : Architecture
    limits : Limits
    rng : numpy.random.RandomState

    Returns
    -------
    Found

    Notes
    -----
    Starts at the widths themselves, then in hidden layers twice or half as wide again, which are pruned to them. It
    ends at a misfit that is rounding, where the lowest one was met twice, or where residuals are noise; it is settled
    where wider ones leave as much unexplained.
    """
    sizes, widths = _Sizes(rows, architecture, limits, rng), architecture.widths
    if len(widths) == 1:
        best = _linear_fit(sizes)
        return Found(best, True, sizes.tried)
    best, met = None, 0
    for attempt in range(6):
        replaced = attempt >= 2 and attempt % 2 == 0 and not sizes.odd
        fitted = sizes.replaced(widths, prune=False) if replaced else _of_widths(sizes, widths, wider=attempt % 2 == 1)
        if fitted is not None:
            sizes.note(widths, fitted)
            met += best is not None and abs(fitted.cost - best.cost) <= 1e-3 * best.cost
            best, met = (fitted, met) if best is None or fitted.cost < 0.999 * best.cost else (best, met)
        if sizes.exact(best) or limits.spent or (attempt and (met or limits.sizes or sizes.leaves_noise(best))):
            break
    settled = sizes.plateau(best) if sizes.wide else met > 0
    return Found(best, sizes.exact(best) or settled, sizes.tried)


def _of_widths(sizes, widths, wider):
    """A fit of given widths, straight or from wider layers; None where there are not the rows for these."""
    if not wider:
        return sizes.ended(*sizes.start(widths, 2 * sizes.limits.n_starts), prune=False)
    most = sizes.rows.n_answers / _ANSWERS_PER_PARAMETER
    wide = [sizes.base.with_widths((*[f(m) for m in widths[:-1]], widths[-1])) for f in _WIDER]
    wide = [a for a in wide if a.n_parameters(sizes.rows.n_inputs) <= most]
    if not wide:
        return None
    fitted, scoring = _without_linear(sizes, wide[0].widths)
    sizes.remember(fitted)
    fitted = prune_by_score(fitted, scoring, at_least=widths)
    return sizes.scoring.refit(fitted.architecture, fitted.x[None], **_FINISH)


def _without_linear(sizes, widths):
    fitted, scoring = sizes.start(widths, sizes.limits.n_starts)
    return (sizes.ended(fitted, scoring, prune=False), sizes.scoring) if scoring.n_fixed else (fitted, scoring)
