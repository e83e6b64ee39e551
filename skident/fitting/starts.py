"""Networks through given answers: from random starts, wider than needed, then pruned."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning

from skident.network import FeedforwardNetwork
from skident.optim import best_of, in_order

from .one_fit import Stopping, fit_network
from .pruning import PROMISING, prune_to, prune_to_smallest

__all__ = ["Search", "network_through", "random_network", "smallest_network_through"]

_ROUNDS = ((1.0, 2), (1.2, 6), (1.5, 6), (2.0, 8), (3.0, 100))  # how much wider, and how many starts
_NEAR, _OFTEN = 1e-4, 6  # misfit close to tol, and how often it may be missed: then only a limit of networks fits
_ANSWERS_PER_PARAMETER = 5
_SLOW = 64  # units a layer from which a start takes minutes
_SLOWLY = (
    "no network with up to 32 units in a layer of unknown width was found yet, and wider ones take minutes to hours: "
    "max_seconds bounds the search."
)


@dataclass(frozen=True)
class Search:
    """How much random starts may take, and what they look for.

    Attributes
    ----------
    n_starts : int
        Starts at most.
    deadline : float
        No start begins after this time, of `time.perf_counter`, except the first, and none goes on for longer. A
        `Moment` where jobs may be on other machines.
    n_jobs : int or None
        Starts fitted at the same time, see `in_order`; the answer does not depend on it.
    tol : float
        Relative root mean square misfit that counts as found.
    progress : callable or None
        ``progress(n)`` with the number of starts done.
    """

    n_starts: int = 60
    deadline: float = np.inf
    n_jobs: int | None = None
    tol: float = 1e-9
    progress: Callable | None = None

    @property
    def spent(self):
        """Whether no further start may begin."""
        return time.perf_counter() >= self.deadline

    def results(self, start, seeds, done=0):
        """Results of starts in the order of their seeds, as many at a time as there are jobs.

        Parameters
        ----------
        start : callable
            ``start(seed)``.
        seeds : ndarray of int
        done : int, default=0
            Starts made before, for the progress.

        Yields
        ------
        object
        """
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
    """Gaussian weights of variance ``1 / m_{l-1}``, shifts of standard deviation 0.3.

    Parameters
    ----------
    n_inputs : int
    architecture : Architecture
    rng : numpy.random.RandomState

    Returns
    -------
    FeedforwardNetwork
    """
    widths = architecture.widths
    shapes = list(zip((n_inputs, *widths[:-1]), widths, strict=True))
    weights = [rng.standard_normal(s) / np.sqrt(s[0]) for s in shapes]
    biases = [0.3 * rng.standard_normal(s[1]) for s in shapes]
    return FeedforwardNetwork(weights, biases, *architecture.names)


def network_through(draw_answers, n_inputs, architecture, rng, *, stem=None, search=None, rounds=_ROUNDS):
    """A network of given widths through the answers of another, from random starts.

    Parameters
    ----------
    draw_answers : callable
        ``draw_answers(n)`` gives inputs (k, D) and answers (k, m_L) with k about n; called again with a larger n, it
        may return the same rows and further ones.
    n_inputs : int
    architecture : Architecture
    rng : numpy.random.RandomState
    stem : (ndarray of shape (D, m_1), ndarray of shape (m_1,)), default=None
        First-layer weights and shifts that every start has, if they are nearly known; that layer is not widened.
    search : Search, default=None
    rounds : sequence of (float, int)
        By how much hidden layers are wider than asked for in a round of starts, and how many starts it has.

    Returns
    -------
    network : FeedforwardNetwork
        The best found.
    misfit : float

    Notes
    -----
    At the true widths least squares has many local minima; a wider network has fewer, and reaches a small misfit from
    most starts. Its superfluous units are then removed one at a time, the cheapest first, each followed by a few steps
    of the fit, which ends at the true network in most cases. Starts are given up early where they do not progress.
    A start costs ``O(n P^2)`` a step with the wide network's P parameters, and there are 5 answers for each of them.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.datasets import make_network
    >>> from skident.fitting.starts import network_through
    >>> from skident.network import Architecture
    >>> truth = make_network((4, 3, 1), random_state=0)
    >>> U = np.random.default_rng(0).standard_normal((2000, 4))
    >>> _, misfit = network_through(
    ...     lambda n: (U[:n], truth(U[:n])), 4, Architecture((3, 1), "tanh", "tanh"), np.random.RandomState(0))
    >>> print(misfit < 1e-9)
    True
    """
    search = Search() if search is None else search

    def attempts():
        done = 0
        for factor, n_starts in rounds:
            wide, widest = (_wider(architecture, f, stem is not None) for f in (factor, 10.0))
            U, Y = draw_answers(_n_answers(n_inputs, architecture, wide))
            nothing_to_widen = wide == widest
            n_starts = search.n_starts if nothing_to_widen else min(n_starts, search.n_starts - done)
            start = functools.partial(_one_start, U, Y, architecture, wide, stem, search.tol, search.deadline)
            yield from search.results(start, rng.randint(2**31 - 1, size=n_starts), done)
            done += n_starts
            if done >= search.n_starts or search.spent or nothing_to_widen:
                return

    def enough(misfits):
        return misfits[-1] < search.tol or sum(misfit < _NEAR for misfit in misfits) == _OFTEN

    (network, misfit), _ = best_of(attempts(), lambda found: found[1], enough)
    if network is None:  # no wide start got anywhere: something of these widths
        U, Y = draw_answers(_n_answers(n_inputs, architecture, architecture))
        seed = rng.randint(2**31 - 1)
        return _one_start(U, Y, architecture, architecture, stem, search.tol, search.deadline, seed)
    return network, misfit


def _wider(architecture, factor, stem):
    """Hidden layers wider by a factor; not the first one if it is a stem."""
    *hidden, n_outputs = architecture.widths
    kept = 1 if stem else 0
    return architecture.with_widths((*hidden[:kept], *[int(np.ceil(factor * m)) for m in hidden[kept:]], n_outputs))


def _n_answers(n_inputs, architecture, wide):
    """Rows that a fit of the wide network needs."""
    # One layer has no local minima to speak of, and one hidden layer of the true width few with several outputs.
    few = 2.5 if len(wide.widths) == 1 else 4.0
    easy = len(wide.widths) <= 2 and wide == architecture and wide.n_outputs > 2
    return 30 + int((few if easy else _ANSWERS_PER_PARAMETER) * wide.n_parameters(n_inputs) / wide.n_outputs)


def _one_start(U, Y, architecture, wide, stem, tol, deadline, seed):
    """A network of the widths asked for and its misfit: by a wider one and pruning, if that got anywhere."""
    start = _random_start(U, wide, stem, seed)
    if wide == architecture:
        # Far from a solution a rough step is as good as an exact one, and many times cheaper.
        stopping = Stopping(good=0.1 * tol, max_iter=150, gain=0.5, ftol=1e-3, deadline=deadline)
        return fit_network(start, U, Y, stopping, dense_limit=200, inner_tol=0.1)
    network, misfit = fit_network(start, U, Y, _wide_fit(deadline))
    if misfit > PROMISING:
        return None, np.inf
    return prune_to(network, U, Y, architecture.widths, tol=tol, deadline=deadline)


def _wide_fit(deadline):
    return Stopping(good=0.1 * PROMISING, max_iter=120, patience=15, deadline=deadline)


def smallest_network_through(
    draw_answers, n_inputs, at_least, rng, *, stem=None, exact=(), max_neurons=200, search=None
):
    """The smallest network of a given depth through the answers of another.

    Parameters
    ----------
    draw_answers, n_inputs, rng, stem
        See `network_through`.
    at_least : Architecture
        Widths ``(m_1, ..., m_L)``: those of the stem and of the output, and lower bounds for the others.
    exact : sequence of int
        Hidden layers (from 0) whose width `at_least` gives exactly.
    max_neurons : int, default=200
        Hidden units at most, not counting the stem's.
    search : Search, default=None
        Of every width tried; 8 starts by default.

    Returns
    -------
    network : FeedforwardNetwork or None
        None if no network explains the answers.
    misfit : float
        Of the best with at most `max_neurons`.

    Warns
    -----
    ConvergenceWarning
        Where layers of unknown width come to 64 units and `search` has no deadline.

    Notes
    -----
    Layers of unknown width grow 8, 16, 32, ... until a fit gets somewhere; it is then pruned as far as it goes.
    """
    search = Search(8) if search is None else search
    fixed = {len(at_least.widths) - 1} | ({0} if stem is not None else set())
    unknown = any(k not in fixed and k not in exact for k in range(len(at_least.widths)))

    def hidden(widths):
        return sum(m for k, m in enumerate(widths) if k not in fixed)

    if hidden(at_least.widths) > max_neurons:
        return None, np.inf
    best, done, size, reached = np.inf, 0, 8, []
    while True:
        wide = _wide_as(at_least, size, fixed, exact)
        if hidden(wide.widths) > 3 * max_neurons and size > 8:  # wide fits are pruned
            return None, best
        if unknown and size == _SLOW and search.deadline == np.inf:
            warnings.warn(_SLOWLY, ConvergenceWarning, stacklevel=2)
        answers = draw_answers(50 + _ANSWERS_PER_PARAMETER * wide.n_parameters(n_inputs) // wide.n_outputs)
        start = functools.partial(_one_start_smallest, *answers, at_least, wide, stem, search.tol, search.deadline)
        seeds = rng.randint(2**31 - 1, size=min(search.n_starts, (1 if size == 8 else 2) if unknown else 6))
        for network, misfit in search.results(start, seeds, done):
            if network is not None and hidden(network.layer_widths) > max_neurons:
                continue
            best = min(best, misfit)
            if network is not None and misfit <= search.tol:
                return network, misfit
        done += len(seeds)
        reached.append(best)
        if search.spent or (not unknown and size >= 32) or _in_vain(reached):
            return None, best
        size *= 2


def _wide_as(at_least, size, fixed, exact):
    """Layers of unknown width as wide as `size`, layers of exact width wider by a factor that grows with it."""
    factor = {8: 1.25, 16: 2.0}.get(size, 3.0)
    return at_least.with_widths(
        m if k in fixed else int(np.ceil(factor * m)) if k in exact else max(m, size)
        for k, m in enumerate(at_least.widths)
    )


def _in_vain(reached):
    """Whether wider networks do not get nearer."""
    return len(reached) > 2 and reached[-1] > PROMISING and reached[-1] > 0.5 * reached[-3]


def _one_start_smallest(U, Y, at_least, wide, stem, tol, deadline, seed):
    """A network pruned as far as it goes, from one wide start; None where that gets nowhere."""
    network, misfit = fit_network(_random_start(U, wide, stem, seed), U, Y, _wide_fit(deadline))
    if misfit > PROMISING:
        return None, misfit
    return prune_to_smallest(network, U, Y, at_least=at_least.widths, tol=tol, deadline=deadline)


def _random_start(U, architecture, stem, seed):
    start = random_network(U.shape[1], architecture, np.random.RandomState(seed))
    if stem is None:
        return start
    weights, biases = [stem[0], *start.weights[1:]], [stem[1], *start.biases[1:]]
    return FeedforwardNetwork(weights, biases, *architecture.names)
