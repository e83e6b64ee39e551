"""Search for the smallest network that fits samples: wide fits from many starts, pruned, over a ladder of widths."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from skident.budget.constants import CONSTANT_TOL, FINE_FTOL, OUTPUTS_PER_PARAMETER, SAME_MINIMUM
from skident.optim import WorkBudget

from .batched_fits import BatchedNetworkFits, Halving, network_of, parameters_of, random_parameters, successive_halving
from .lack_of_fit import MIN_FREEDOM, NO_NOISE, lack_of_fit
from .linear_units import choose_signs, reflection_slope, with_linear_units
from .scored_pruning import (
    WIDE_ROUNDS,
    ScoredFit,
    Scoring,
    half_as_wide_again,
    prune_by_score,
    prune_to,
)
from .unit_replacement import ReplacementOptions, replace_units

_ONE_LAYER = (4, 9, 16, 28, 50, 90, 160)  # hidden widths tried: each 1.8 times the last
_TWO_LAYERS = ((6, 4), (11, 8), (20, 13), (36, 24))  # `_ONE_LAYER` for two hidden layers
_STEEP_LAYERS = ((9, 6), (14, 9), (20, 13))  # hidden widths of networks of steep units
_STEEP_REPEATS = 2  # how often each of these is tried
_STEEP_STARTS = 3  # factor of the starts of these
_STEEP_ROUNDS = ((30, 16), (30, 8))  # of successive halving, before units are replaced
_SMALL_WIDTH = 16  # hidden units of networks that are tried before those of steep units
_STEEP_RESIDUAL = 0.3  # residual of the best of them above which the network may have steep units
_MAX_WASTED = {
    2: 1,
    3: 2,
}  # widths in a row that do not improve the score, after which wider ones are left out; by depth
_SCORE_GAIN = 1.0  # a score lower by less is equal
_PLATEAU = 0.8  # residual variance of wider networks, relative to the best one's, that shows no further structure
_MAX_ATTEMPTS = 6  # at given widths (budget)
_FINAL_FIT = {"max_iter": 200, "ftol": 1e-9}  # of the network that is returned


@dataclass(frozen=True)
class SearchLimits:
    """What a search may take."""

    n_starts: int = 16  # of every width
    max_neurons: int = 200  # hidden units at most
    budget: WorkBudget = field(default_factory=WorkBudget)  # no step is made once it is spent
    say: Callable = field(default=lambda text: None)  # takes a line about every width tried
    # Hidden widths of the starts, for one pass over these instead of the usual search; if widths are given, any end it
    # after two attempts.
    sizes: tuple = ()

    @property
    def spent(self):
        """Whether the budget is."""
        return self.budget.spent


@dataclass(frozen=True)
class WidthSearchResult:
    """The network that a search ended at.

    `settled`: no wider network explains the samples better, since the residual is rounding, or as large with them.
    `tried`: a dict per start, ``widths`` it had and ``ended`` at, ``residual`` (relative root mean square) and
    ``score``. `ends` (B, P): parameters of other fits of the same widths, if these were given.
    """

    fitted: ScoredFit
    settled: bool
    tried: list
    ends: np.ndarray | None = None


class _Fits:
    """Fits of one kind of network to samples, and their records."""

    def __init__(self, samples, architecture, limits, rng):
        self.samples, self.base, self.limits, self.rng = samples, architecture, limits, rng
        self.total = max(samples.total, np.finfo(float).tiny)
        self.scoring = Scoring(samples, CONSTANT_TOL**2 * self.total, budget=limits.budget)
        self.reflects = reflection_slope(architecture.activation) != 0.0
        self.tried, self.wide = [], []

    def exact(self, fit):
        return fit.cost <= self.scoring.rounding_cost

    def start(self, widths, n_starts):
        """The best of random starts; with linear units if units of the wrong sign are off by a line."""
        fits, scoring = self.starts(widths, n_starts, Halving().rounds, Halving().ftol)
        return fits[0], scoring

    def starts(self, widths, n_starts, rounds, ftol):
        """The best ends of random starts, and their scoring."""
        architecture, scoring = self.base.with_widths(widths), self.scoring
        if self.reflects and len(widths) == 2:
            architecture, scoring = with_linear_units(architecture), replace(scoring, n_fixed=widths[-1])
        x = random_parameters(self.samples.n_inputs, architecture, n_starts, self.rng)
        options = Halving(rounds, scoring.rounding_cost, ftol, self.limits.budget)
        x, cost = successive_halving(BatchedNetworkFits(architecture, self.samples), x, options)
        return [scoring.scored(architecture, *end) for end in zip(x, cost, strict=True)], scoring

    def finish(self, fit, scoring, prune=True):
        """The result of `start` pruned, and without linear units."""
        fit = prune_by_score(fit, scoring) if prune else fit
        if not scoring.n_fixed:
            return fit
        mixed = network_of(fit.x, self.samples.n_inputs, fit.architecture)
        same, more = choose_signs(mixed.weights, mixed.biases, *self.base.names)
        chosen = self.refit(same)
        if not prune:
            return chosen
        chosen = prune_by_score(chosen, self.scoring)
        if self.exact(chosen):
            return chosen
        return min(chosen, prune_by_score(self.refit(more), self.scoring), key=lambda one: one.score)

    def refit(self, network):
        architecture = self.base.with_widths(network.layer_widths)
        return self.scoring.refit(architecture, parameters_of(network)[None], **_FINAL_FIT)

    def leaves_noise(self, fit):
        """Whether no function of the inputs explains the residuals."""
        if self.samples.n_values - len(fit.x) < MIN_FREEDOM:
            return False
        return lack_of_fit(fit.architecture, self.samples, fit.x, self.rng) >= NO_NOISE

    def of_width(self, widths, n_starts):
        """The pruned fit from random starts of some widths."""
        wide, scoring = self.start(widths, n_starts)
        self.remember(wide)
        fit = self.finish(wide, scoring)
        self.record(widths, fit)
        return fit

    def with_replaced_units(self, widths, prune=True):
        """The best of a population, the better ends of more starts, whose units are replaced."""
        architecture, scoring, limits = self.base.with_widths(widths), self.scoring, self.limits
        x = random_parameters(self.samples.n_inputs, architecture, _STEEP_STARTS * limits.n_starts, self.rng)
        options = Halving(_STEEP_ROUNDS, scoring.rounding_cost, budget=limits.budget)
        x = successive_halving(BatchedNetworkFits(architecture, self.samples), x, options)[0]
        options = ReplacementOptions(target=scoring.rounding_cost, budget=limits.budget)
        x, cost = replace_units(self.samples, architecture, x, self.rng, options)
        fit = scoring.scored(architecture, x[0], cost[0])
        if prune:
            self.remember(fit)
            fit = prune_by_score(fit, scoring)
        return scoring.refit(fit.architecture, fit.x[None], **_FINAL_FIT)

    def remember(self, wide):
        """Keep the cost of a wide fit that was not cut short."""
        if not self.limits.spent:
            self.wide.append((wide.cost, wide.architecture.n_parameters(self.samples.n_inputs)))

    def record(self, widths, fit):
        residual = float(np.sqrt(fit.cost / self.total))
        self.tried.append({"widths": widths, "ended": fit.widths, "residual": residual, "score": fit.score})
        self.limits.say(f"widths {widths} ended at {fit.widths}: residual {residual:.1e}, score {fit.score:.0f}")

    def plateau(self, best):
        """Whether wider networks leave as much unexplained, per degree of freedom, as the best one."""
        N, D = self.samples.n_values, self.samples.n_inputs
        P = best.architecture.n_parameters(D)
        # The more parameters there are, the more noise they explain beyond one output each.
        ratios = [cost / (N - p) / (1.0 - p / N) for cost, p in self.wide if P < p < N]
        return bool(ratios) and min(ratios) >= _PLATEAU * best.cost / max(N - P, 1.0)


def search_widths(samples, architecture, limits, rng):
    """The network with the best information criterion, of up to two hidden layers of any width.

    `samples` are whitened; the widths of `architecture` do not matter, except for the number of outputs. Widths are
    tried in the order of their parameters, up to half as many as there are outputs: 16 starts in one batch, the best of
    which is pruned while the criterion falls. An exact fit ends it. With noisy outputs the wider ones of a depth are
    left out once they are no better. As long as the residual is neither rounding nor noise and the budget lasts, all
    widths are tried again from other starts, and then the best ones and those with one unit less.

    If networks of up to 16 hidden units leave a residual above 0.3, populations of fits of two hidden layers come next
    (`replace_units`): the network may have steep units, as trained ones do, few of which are recovered in any minimum.
    The same happens, with one unit more per layer, if two hidden layers are best.
    """
    fits = _Fits(samples, architecture, limits, rng)
    best = _linear_fit(fits)
    fits.record(best.widths, best)
    ladder, before = _ladder(samples, architecture, limits), best.score
    small, larger = _split(ladder)
    if not fits.exact(best):
        best = _with_replaced_units(fits, _climb(fits, small, best))
    while not fits.exact(best):
        best, spent = _climb(fits, larger, best), limits.spent or bool(limits.sizes)
        if fits.exact(best) or fits.plateau(best) or spent or best.score >= before - _SCORE_GAIN:
            break
        before = best.score
        larger = [w for w in ladder if architecture.with_widths(w).n_hidden >= best.architecture.n_hidden]
    settled = fits.exact(best) or fits.plateau(best)
    if not settled and len(best.widths) > 1 and not limits.spent and not limits.sizes:
        best = _restarted(fits, best)
        settled = fits.exact(best) or fits.plateau(best)
    return WidthSearchResult(best, settled, fits.tried)


def _linear_fit(fits):
    """The network without hidden layers; the constant 0 if there are too few samples for it."""
    samples, p = fits.samples, fits.samples.n_outputs
    architecture = fits.base.with_widths((p,))
    constant = np.zeros((1, (samples.n_inputs + 1) * p))
    if samples.n_values <= 2 * architecture.n_parameters(samples.n_inputs):
        cost = BatchedNetworkFits(architecture, samples).cost(constant)[0]
        return fits.scoring.scored(architecture, constant[0], cost)
    return fits.scoring.refit(architecture, constant)


def _ladder(samples, architecture, limits):
    """Widths to try, in the order of their parameters."""
    p, D = architecture.n_outputs, samples.n_inputs
    widths = [(m, p) for m in (1, 2, *_ONE_LAYER)] + [(*pair, p) for pair in _TWO_LAYERS]
    widths = [(*hidden, p) for hidden in limits.sizes] or widths
    candidates = [architecture.with_widths(w) for w in widths]
    most = samples.n_values / OUTPUTS_PER_PARAMETER
    able = [a for a in candidates if a.n_parameters(D) <= most and a.n_hidden <= 3 * limits.max_neurons]
    ordered = sorted(able, key=lambda a: a.n_parameters(D))
    # One or two units only if there are too few samples for more.
    return [a.widths for a in ordered if a.n_hidden >= _ONE_LAYER[0]] or [a.widths for a in ordered[-1:]]


def _split(ladder):
    """Widths with few hidden units, and the others."""
    return [w for w in ladder if sum(w[:-1]) <= _SMALL_WIDTH], [w for w in ladder if sum(w[:-1]) > _SMALL_WIDTH]


def _steep_widths(fits, best, turn):
    """Widths of two hidden layers for the next population of fits, or None."""
    if fits.limits.sizes:
        return None
    if best.cost > _STEEP_RESIDUAL**2 * fits.samples.total:
        pair = _STEEP_LAYERS[min(turn // _STEEP_REPEATS, len(_STEEP_LAYERS) - 1)]
    elif len(best.widths) == 3:
        pair = tuple(m + 1 for m in best.widths[:-1])  # nearly recovered, by two layers: little more is enough
    else:
        return None
    wide = fits.base.with_widths((*pair, best.widths[-1]))
    able = OUTPUTS_PER_PARAMETER * wide.n_parameters(fits.samples.n_inputs) <= fits.samples.n_values
    return wide.widths if able and wide.n_hidden <= 3 * fits.limits.max_neurons else None


def _with_replaced_units(fits, best):
    """The best of populations of fits, until one is no better or the budget is spent."""
    for turn in range(_STEEP_REPEATS * len(_STEEP_LAYERS)):
        widths = _steep_widths(fits, best, turn)
        if widths is None or fits.exact(best) or fits.limits.spent:
            break
        fit, before = fits.with_replaced_units(widths), best
        fits.record(widths, fit)
        best = _better(fits, fit, best)
        if best.score >= before.score - _SCORE_GAIN:
            break
    return best


def _better(fits, fit, best):
    """The fit of the lower score; a new one only if it does not have too many hidden units."""
    return fit if sum(fit.widths[:-1]) <= fits.limits.max_neurons and fit.score < best.score else best


def _climb(fits, ladder, best):
    """The best of one pass over some widths."""
    wasted = {2: 0, 3: 0}
    for widths in ladder:
        depth = len(widths)
        if wasted[depth] == _MAX_WASTED[depth]:
            continue
        if fits.limits.spent:
            break
        fit = fits.of_width(widths, fits.limits.n_starts)
        wasted[depth] = 0 if fit.score < best.score - _SCORE_GAIN else wasted[depth] + 1
        best = _better(fits, fit, best)
        if fits.exact(best):
            break
    return best


def _restarted(fits, best):
    """The best of new starts at the best widths, and at those with one unit less."""
    center, n_hidden = best.widths, len(best.widths) - 1
    around = [tuple(m - (k == layer) for k, m in enumerate(center)) for layer in range(n_hidden)]
    for widths in [center, *[w for w in around if min(w) > 0]]:
        if fits.limits.spent:
            break
        fit = fits.finish(*fits.start(widths, 2 * fits.limits.n_starts), prune=False)
        fits.record(widths, fit)
        best = min(best, fit, key=lambda one: one.score)
    return fits.scoring.refit(best.architecture, best.x[None], **_FINAL_FIT)


def search_weights(samples, architecture, limits, rng):
    """The network of given widths with the least residual on whitened samples.

    Starts have the widths themselves, then hidden layers twice or half as wide again, which are pruned to them. It ends
    at an exact fit, if the lowest residual was reached twice, or if residuals are noise; it is settled if wider
    networks leave as much unexplained.
    """
    fits, widths = _Fits(samples, architecture, limits, rng), architecture.widths
    if len(widths) == 1:
        return WidthSearchResult(_linear_fit(fits), True, fits.tried)
    best, repeats, ends = None, 0, []
    for attempt in range(_MAX_ATTEMPTS):
        for fit in _of_given_widths(fits, widths, attempt):
            fits.record(widths, fit)
            ends.append(fit.x)
            repeats += best is not None and abs(fit.cost - best.cost) <= SAME_MINIMUM * best.cost
            if best is None or fit.cost < (1.0 - SAME_MINIMUM) * best.cost:
                best, repeats = fit, 0
        if fits.exact(best) or limits.spent:
            break
        if attempt and (repeats or limits.sizes or fits.leaves_noise(best)):
            break
    settled = fits.plateau(best) if fits.wide else repeats > 0
    return WidthSearchResult(best, fits.exact(best) or settled, fits.tried, np.array(ends))


def _of_given_widths(fits, widths, attempt):
    """Fits of given widths: from random starts, then from wider layers, and from populations or starts by turns."""
    if attempt % 2 == 1:
        twice = (*[2 * m + 1 for m in widths[:-1]], widths[-1])
        return _pruned_to(fits, widths, twice if attempt // 2 % 2 else half_as_wide_again(widths))
    if attempt and not fits.reflects:
        return [fits.with_replaced_units(widths, prune=False)]
    return [fits.finish(*fits.start(widths, 2 * fits.limits.n_starts), prune=False)]


def _pruned_to(fits, widths, wider):
    """The best ends of wider layers pruned to given widths; none if there are too few samples for these."""
    wide = fits.base.with_widths(wider)
    if OUTPUTS_PER_PARAMETER * wide.n_parameters(fits.samples.n_inputs) > fits.samples.n_values:
        return
    some, scoring = fits.starts(wide.widths, fits.limits.n_starts, WIDE_ROUNDS, FINE_FTOL)
    for k, fit in enumerate(some):
        if k and fits.limits.spent:
            break
        one, own = (fits.finish(fit, scoring, prune=False), fits.scoring) if scoring.n_fixed else (fit, scoring)
        if not k:
            fits.remember(one)
        one = prune_to(one, own, widths)
        one = fits.scoring.refit(one.architecture, one.x[None], **_FINAL_FIT)
        yield one
        if fits.exact(one):
            break
