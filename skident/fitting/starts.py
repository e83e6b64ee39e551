"""Networks through given answers: from random starts, wider than needed, then pruned."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs

from skident.network import FeedforwardNetwork

from .one_fit import fit_network
from .pruning import PROMISING, prune_to, prune_to_smallest

__all__ = ["Budget", "network_through", "random_network", "smallest_network_through"]

_ROUNDS = ((1.0, 2), (1.2, 6), (1.5, 6), (2.0, 8), (3.0, 100))  # how much wider, and how many starts
_NEAR, _OFTEN = 1e-4, 6  # misfit close to tol, and how often it may be missed: then only a limit of networks fits
_ANSWERS_PER_PARAMETER = 5


@dataclass
class Budget:
    """How much random starts may take.

    Attributes
    ----------
    n_starts : int
        Starts at most.
    seconds : float
        No start begins later than this after the budget was made, except the first, and none goes on for longer.
    n_jobs : int or None
        Starts fitted at the same time; the answer does not depend on it.
    """

    n_starts: int = 60
    seconds: float = np.inf
    n_jobs: int | None = None

    def __post_init__(self):
        self._began = time.perf_counter()

    @property
    def deadline(self):
        """The time, of `time.perf_counter`, at which fits end."""
        return self._began + self.seconds

    @property
    def spent(self):
        """Whether no further start may begin."""
        return time.perf_counter() >= self.deadline


def random_network(n_inputs, widths, activation, output_activation, rng):
    """Gaussian weights of variance ``1 / m_{l-1}``, shifts of standard deviation 0.3."""
    shapes = list(zip((n_inputs, *widths[:-1]), widths, strict=True))
    weights = [rng.standard_normal(s) / np.sqrt(s[0]) for s in shapes]
    biases = [0.3 * rng.standard_normal(s[1]) for s in shapes]
    return FeedforwardNetwork(weights, biases, activation, output_activation)


def network_through(
    sample,
    n_inputs,
    widths,
    activation,
    output_activation,
    rng,
    *,
    stem=None,
    tol=1e-9,
    budget=None,
    rounds=None,
    callback=None,
):
    """A network of given widths through the answers of another, from random starts.

    Parameters
    ----------
    sample : callable
        ``sample(n)`` gives inputs (k, D) and answers (k, m_L) with k about n; called again with a larger n, it may
        return the same rows and further ones.
    n_inputs : int
    widths : sequence of int
        ``(m_1, ..., m_L)``.
    activation, output_activation : str
    rng : numpy.random.RandomState
    stem : (ndarray of shape (D, m_1), ndarray of shape (m_1,)), default=None
        First-layer weights and shifts that every start has, if they are nearly known; that layer is not widened.
    tol : float, default=1e-9
        Relative root mean square misfit that counts as found.
    budget : Budget, default=None
    rounds : sequence of (float, int), default=None
        By how much hidden layers are wider than asked for in a round of starts, and how many starts it has.
    callback : callable, default=None
        ``callback(n)`` with the number of starts done.

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
    >>> truth = make_network((4, 3, 1), random_state=0)
    >>> U = np.random.default_rng(0).standard_normal((2000, 4))
    >>> _, misfit = network_through(
    ...     lambda n: (U[:n], truth(U[:n])), 4, (3, 1), "tanh", "tanh", np.random.RandomState(0))
    >>> print(misfit < 1e-9)
    True
    """
    budget = Budget() if budget is None else budget
    widths, best, done, near = tuple(widths), (None, np.inf), 0, 0
    for factor, n_starts in _ROUNDS if rounds is None else rounds:
        wide = _wider(widths, factor, stem is not None)
        # One layer has no local minima to speak of, and one hidden layer of the true width few with several outputs.
        few = 2.5 if len(widths) == 1 else 4.0
        answers = few if len(widths) <= 2 and wide == widths and widths[-1] > 2 else _ANSWERS_PER_PARAMETER
        U, Y = sample(30 + int(answers * _n_parameters(n_inputs, wide) / widths[-1]))
        widest = wide == _wider(widths, 10.0, stem is not None)  # nothing to widen
        seeds = rng.randint(2**31 - 1, size=budget.n_starts if widest else min(n_starts, budget.n_starts - done))
        names = activation, output_activation
        start = functools.partial(_one_start, U, Y, wide, widths, *names, stem, tol, budget.deadline)
        for network, misfit in _in_order(start, seeds, budget):
            done += 1
            if callback is not None:
                callback(done)
            if misfit < best[1] or best[0] is None:
                best = network, misfit
            near += misfit < _NEAR
            if misfit < tol or near == _OFTEN:
                return best
        if done >= budget.n_starts or budget.spent or widest:
            break
    return best


def _wider(widths, factor, stem):
    """Hidden layers wider by a factor; not the first one if it is a stem."""
    return tuple(
        m if layer == len(widths) - 1 or (stem and layer == 0) else int(np.ceil(factor * m))
        for layer, m in enumerate(widths)
    )


def _n_parameters(n_inputs, widths):
    return sum((a + 1) * c for a, c in zip((n_inputs, *widths[:-1]), widths, strict=True))


def _in_order(start, seeds, budget):
    """Results of starts in the order of their seeds; as many at a time as there are jobs."""
    at_once = effective_n_jobs(budget.n_jobs)
    for first in range(0, len(seeds), at_once):
        if budget.spent and first:
            return
        wave = seeds[first : first + at_once]
        if at_once == 1:
            yield start(wave[0])
        else:
            yield from Parallel(n_jobs=at_once)(delayed(start)(seed) for seed in wave)


def _one_start(U, Y, wide, widths, activation, output_activation, stem, tol, deadline, seed):
    """A network of the widths asked for and its misfit: by a wider one and pruning, if that got anywhere."""
    start = _random_start(U, wide, activation, output_activation, stem, seed)
    if wide == widths:
        # Far from a solution a rough step is as good as an exact one, and many times cheaper.
        rough = {"dense_limit": 200, "inner_tol": 0.1, "deadline": deadline}
        return fit_network(start, U, Y, good=0.1 * tol, max_iter=150, gain=0.5, ftol=1e-3, **rough)
    network, misfit = fit_network(start, U, Y, good=0.1 * PROMISING, max_iter=120, patience=15, deadline=deadline)
    if misfit > PROMISING:
        return None, np.inf
    return prune_to(network, U, Y, widths, tol=tol, deadline=deadline)


def smallest_network_through(
    sample,
    n_inputs,
    at_least,
    activation,
    output_activation,
    rng,
    *,
    stem=None,
    exact=(),
    max_neurons=200,
    tol=1e-9,
    budget=None,
    callback=None,
):
    """The smallest network of a given depth through the answers of another.

    Parameters
    ----------
    sample, n_inputs, activation, output_activation, rng, stem, callback
        See `network_through`.
    at_least : sequence of int
        Widths ``(m_1, ..., m_L)``: those of the stem and of the output, and lower bounds for the others.
    exact : sequence of int
        Hidden layers (from 0) whose width `at_least` gives exactly.
    max_neurons : int, default=200
        Hidden units at most, not counting the stem's.
    tol : float, default=1e-9
    budget : Budget, default=None
        For every width tried.

    Returns
    -------
    network : FeedforwardNetwork or None
        None if no network explains the answers.
    misfit : float
        Of the best with at most `max_neurons`.

    Notes
    -----
    Layers of unknown width grow 8, 16, 32, ... until a fit gets somewhere; it is then pruned as far as it goes.
    """
    budget = Budget(8) if budget is None else budget
    best, done, size, reached = np.inf, 0, 8, []
    fixed = {len(at_least) - 1} | ({0} if stem is not None else set())

    def hidden(widths):
        return sum(m for k, m in enumerate(widths) if k not in fixed)

    if hidden(at_least) > max_neurons:
        return None, best
    while True:
        factor = {8: 1.25, 16: 2.0}.get(size, 3.0)
        wide = tuple(
            m if k in fixed else int(np.ceil(factor * m)) if k in exact else max(m, size)
            for k, m in enumerate(at_least)
        )
        if hidden(wide) > 3 * max_neurons and size > 8:  # wide fits are pruned
            return None, best
        n = 50 + _ANSWERS_PER_PARAMETER * _n_parameters(n_inputs, wide) // wide[-1]
        start = functools.partial(
            _one_start_smallest, *sample(n), wide, at_least, activation, output_activation, stem, tol, budget.deadline
        )
        unknown = any(k not in fixed and k not in exact for k in range(len(wide)))
        seeds = rng.randint(2**31 - 1, size=min(budget.n_starts, (1 if size == 8 else 2) if unknown else 6))
        for network, misfit in _in_order(start, seeds, budget):
            done += 1
            if callback is not None:
                callback(done)
            if network is not None and hidden(network.layer_widths) > max_neurons:
                continue
            best = min(best, misfit)
            if network is not None and misfit <= tol:
                return network, misfit
        reached.append(best)
        if budget.spent or (not unknown and size >= 32):
            return None, best
        if len(reached) > 2 and best > PROMISING and best > 0.5 * reached[-3]:  # wider does not help
            return None, best
        size *= 2


def _one_start_smallest(U, Y, wide, at_least, activation, output_activation, stem, tol, deadline, seed):
    """A network pruned as far as it goes, from one wide start; None where that gets nowhere."""
    network, misfit = fit_network(
        _random_start(U, wide, activation, output_activation, stem, seed),
        U,
        Y,
        good=0.1 * PROMISING,
        max_iter=120,
        patience=15,
        deadline=deadline,
    )
    if misfit > PROMISING:
        return None, misfit
    return prune_to_smallest(network, U, Y, at_least=at_least, tol=tol, deadline=deadline)


def _random_start(U, widths, activation, output_activation, stem, seed):
    start = random_network(U.shape[1], widths, activation, output_activation, np.random.RandomState(seed))
    if stem is None:
        return start
    weights, biases = [stem[0], *start.weights[1:]], [stem[1], *start.biases[1:]]
    return FeedforwardNetwork(weights, biases, activation, output_activation)
