"""Networks of given or unknown widths fitted from random starts: wider than needed, then pruned."""

import functools
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning

from skident.budget.constants import WIDE_OUTPUTS
from skident.network import FeedforwardNetwork
from skident.optim import best_of, in_order

from .least_squares import Stopping, fit_network
from .pruning import PROMISING, prune_to, prune_to_smallest

_ROUNDS = ((1.0, 2), (1.2, 6), (1.5, 6), (2.0, 8), (3.0, 100))  # factor of the hidden widths, and number of starts
_NEAR_RESIDUAL = 1e-4  # a residual close to `tol`
_MAX_NEAR = 6  # starts that end there, after which only a limit of networks is taken to fit the samples
_OUTPUTS_AT_TRUE_WIDTH = 4.0  # with one hidden layer and several outputs, which have few local minima
_OUTPUTS_ONE_LAYER = 2.5  # without hidden layers: no local minima to speak of
_FIRST_SIZE = 8  # units of layers of unknown width at first; doubled until a fit succeeds
_MAX_SIZE_KNOWN = 32  # the last size where all widths are given: the largest factor is reached
_SLOW_SIZE = 64  # units per layer from which one start takes minutes
_SLOW_WARNING = (
    "no network with up to 32 units in a layer of unknown width was recovered yet, and wider ones take minutes to "
    "hours: max_seconds bounds the search."
)


@dataclass(frozen=True)
class StartLimits:
    """How much random starts may take, and the residual that ends them."""

    n_starts: int = 60  # at most
    # Of `time.perf_counter`: no start but the first begins later, and none goes on for longer. A `Moment` if jobs may
    # be on other machines.
    deadline: float = np.inf
    n_jobs: int | None = None  # starts fitted at once, see `in_order`; the result does not depend on it
    tol: float = 1e-9  # relative root mean square residual that ends the search
    progress: Callable | None = None  # ``progress(n)`` with the number of starts done
    n_first: int = 1  # starts of the first size of layers of unknown width

    @property
    def spent(self):
        """Whether no further start may begin."""
        return time.perf_counter() >= self.deadline

    def results(self, start, seeds, done=0):
        """Yield ``start(seed)`` in the order of the seeds, one per job at a time; `done` starts were made before."""
        at_once = effective_n_jobs(self.n_jobs)
        for first in range(0, len(seeds), at_once):
            if self.spent and first:
                return
            wave = seeds[first : first + at_once]
            for i, result in enumerate(list(in_order(start, zip(wave), self.n_jobs)), start=1):
                if self.progress is not None:
                    self.progress(done + first + i)
                yield result


def random_network(n_inputs, architecture, rng):
    """A network with Gaussian weights of variance ``1 / m_{l-1}`` and biases of standard deviation 0.3."""
    shapes = architecture.shapes(n_inputs)
    weights = [rng.standard_normal(s) / np.sqrt(s[0]) for s in shapes]
    biases = [0.3 * rng.standard_normal(s[1]) for s in shapes]
    return FeedforwardNetwork(weights, biases, *architecture.names)


def fit_from_random_starts(draw_samples, n_inputs, architecture, rng, *, stem=None, limits=None, rounds=_ROUNDS):
    """A network of given widths fitted to samples, the best of random starts, and its residual.

    ``draw_samples(n)`` gives about n inputs (k, D) and outputs (k, m_L); with a larger n it may return the same samples
    and further ones. `stem` are first-layer weights (D, m_1) and biases (m_1,) that every start has, if they are nearly
    known; that layer is not widened. `rounds` are pairs of a factor of the hidden widths and a number of starts.

    At the true widths, least squares has many local minima. A wider network has fewer and reaches a small residual from
    most starts. Its redundant units are then removed one at a time, the cheapest first, each followed by a few steps of
    the fit, which ends at the true network in most cases. Starts that make no progress are given up early. A step of a
    start costs ``O(n P^2)`` with the wide network's P parameters, and there are 5 outputs per parameter.
    """
    limits = StartLimits() if limits is None else limits

    def attempts():
        done = 0
        for factor, n_starts in rounds:
            wide, widest = (widened(architecture, f, stem is not None) for f in (factor, 10.0))
            U, Y = draw_samples(_n_samples(n_inputs, architecture, wide))
            nothing_to_widen = wide == widest
            n_starts = limits.n_starts if nothing_to_widen else min(n_starts, limits.n_starts - done)
            start = functools.partial(_from_one_start, U, Y, architecture, wide, stem, limits.tol, limits.deadline)
            yield from limits.results(start, rng.randint(2**31 - 1, size=n_starts), done)
            done += n_starts
            if done >= limits.n_starts or limits.spent or nothing_to_widen:
                return

    def enough(residuals):
        return residuals[-1] < limits.tol or sum(r < _NEAR_RESIDUAL for r in residuals) == _MAX_NEAR

    (network, residual), _ = best_of(attempts(), lambda fit: fit[1], enough)
    if network is None:  # every wide fit was given up: some network of these widths
        U, Y = draw_samples(_n_samples(n_inputs, architecture, architecture))
        seed = rng.randint(2**31 - 1)
        return _from_one_start(U, Y, architecture, architecture, stem, limits.tol, limits.deadline, seed)
    return network, residual


def widened(architecture, factor, stem=False):
    """Hidden layers wider by a factor; not the first one if it is a stem."""
    *hidden, n_outputs = architecture.widths
    kept = 1 if stem else 0
    return architecture.with_widths((*hidden[:kept], *[int(np.ceil(factor * m)) for m in hidden[kept:]], n_outputs))


def _n_samples(n_inputs, architecture, wide):
    """Samples that a fit of the wide network needs."""
    few = _OUTPUTS_ONE_LAYER if len(wide.widths) == 1 else _OUTPUTS_AT_TRUE_WIDTH
    easy = len(wide.widths) <= 2 and wide == architecture and wide.n_outputs > 2
    return 30 + int((few if easy else WIDE_OUTPUTS) * wide.n_parameters(n_inputs) / wide.n_outputs)


def _from_one_start(U, Y, architecture, wide, stem, tol, deadline, seed):
    """A network of the widths wanted and its residual: by a wider one and pruning unless that fit is given up."""
    start = _random_start(U, wide, stem, seed)
    if wide == architecture:
        # Far from a solution an inexact step is as good as an exact one, and many times cheaper.
        stopping = Stopping(target=0.1 * tol, max_iter=150, gain=0.5, ftol=1e-3, deadline=deadline)
        return fit_network(start, U, Y, stopping, dense_limit=200, inner_tol=0.1)
    network, residual = fit_network(start, U, Y, _wide_fit(deadline))
    if residual > PROMISING:
        return None, np.inf
    return prune_to(network, U, Y, architecture.widths, tol=tol, deadline=deadline)


def _wide_fit(deadline):
    return Stopping(target=0.1 * PROMISING, max_iter=120, patience=15, deadline=deadline)


def fit_smallest_network(
    draw_samples, n_inputs, min_architecture, rng, *, stem=None, exact=(), max_neurons=200, limits=None
):
    """The smallest network of a given depth that fits samples, or None, and the best residual.

    `draw_samples` and `stem` are those of `fit_from_random_starts`. `min_architecture` has the widths of the stem and
    of the output, and lower bounds for the others; `exact` lists the hidden layers (from 0) whose width it gives
    exactly. `max_neurons` bounds the hidden units, not counting the stem's; `limits`, 8 starts by default, are those of
    every width tried. Layers of unknown width grow 8, 16, 32, ... until a fit succeeds, which is then pruned as far as
    possible; a ConvergenceWarning if they come to 64 units without a deadline.
    """
    limits = StartLimits(8) if limits is None else limits
    widths = min_architecture.widths
    fixed = {len(widths) - 1} | ({0} if stem is not None else set())
    unknown = any(k not in fixed and k not in exact for k in range(len(widths)))

    def n_hidden(widths):
        return sum(m for k, m in enumerate(widths) if k not in fixed)

    if n_hidden(widths) > max_neurons:
        return None, np.inf
    best, done, size, reached = np.inf, 0, _FIRST_SIZE, []
    while True:
        wide = _with_size(min_architecture, size, fixed, exact)
        if n_hidden(wide.widths) > 3 * max_neurons and size > _FIRST_SIZE:  # wide fits are pruned
            return None, best
        if unknown and size == _SLOW_SIZE and limits.deadline == np.inf:
            warnings.warn(_SLOW_WARNING, ConvergenceWarning, stacklevel=2)
        samples = draw_samples(50 + int(WIDE_OUTPUTS * wide.n_parameters(n_inputs)) // wide.n_outputs)
        start = functools.partial(_smallest_from_one_start, *samples, widths, wide, stem, limits.tol, limits.deadline)
        n_starts = (limits.n_first if size == _FIRST_SIZE else 2) if unknown else 6
        seeds = rng.randint(2**31 - 1, size=min(limits.n_starts, n_starts))
        for network, residual in limits.results(start, seeds, done):
            if network is not None and n_hidden(network.layer_widths) > max_neurons:
                continue
            best = min(best, residual)
            if network is not None and residual <= limits.tol:
                return network, residual
        done += len(seeds)
        reached.append(best)
        if limits.spent or (not unknown and size >= _MAX_SIZE_KNOWN) or _no_progress(reached):
            return None, best
        size *= 2


def _with_size(architecture, size, fixed, exact):
    """Layers of unknown width as wide as `size`, layers of exact width wider by a factor that grows with it."""
    factor = {8: 1.25, 16: 2.0}.get(size, 3.0)
    return architecture.with_widths(
        m if k in fixed else int(np.ceil(factor * m)) if k in exact else max(m, size)
        for k, m in enumerate(architecture.widths)
    )


def _no_progress(reached):
    """Whether two doublings of the width did not halve the residual."""
    return len(reached) > 2 and reached[-1] > PROMISING and reached[-1] > 0.5 * reached[-3]


def _smallest_from_one_start(U, Y, min_widths, wide, stem, tol, deadline, seed):
    """A network pruned as far as possible, from one wide start; None if that fit is given up."""
    network, residual = fit_network(_random_start(U, wide, stem, seed), U, Y, _wide_fit(deadline))
    if residual > PROMISING:
        return None, residual
    return prune_to_smallest(network, U, Y, min_widths, tol=tol, deadline=deadline)


def _random_start(U, architecture, stem, seed):
    start = random_network(U.shape[1], architecture, np.random.RandomState(seed))
    if stem is None:
        return start
    weights, biases = [stem[0], *start.weights[1:]], [stem[1], *start.biases[1:]]
    return FeedforwardNetwork(weights, biases, *architecture.names)
