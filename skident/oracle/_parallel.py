"""`ParallelQueries`: query copies of an oracle in other threads, processes or machines, and add up their counts."""

import copy
import functools
import itertools
import threading
from typing import NamedTuple

from skident.optim import in_order

from ._adapters import SharedBox
from ._errors import BlackBoxError
from .budget import OutOfBudgetError
from .extremes import Extremes


class _Usage(NamedTuple):
    """What a copy of an oracle used, and the budget that it exhausted."""

    n_queries: int
    n_derivatives: int
    exhausted: str | None


class ParallelQueries:
    """Part of `Oracle`: it can be pickled, and several copies can be queried at a time."""

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_counting"}

    def __setstate__(self, state):
        self.__dict__.update(state, _counting=threading.Lock())

    def query_in_parallel(self, function, pieces, n_jobs=None, *, queries_per_row=0):
        """Yield ``function(oracle, points)`` for all pieces (k, D) of the points, in order, with several jobs.

        `function` gets a copy of this oracle, possibly in another process; its queries are added here. Jobs are threads
        unless a `joblib.parallel_config` says otherwise, see `skident.optim.in_order`. `queries_per_row` states how
        many queries `function` needs per point, so that `max_queries` ends at the same piece for any number of jobs.
        The first BlackBoxError or OutOfBudgetError is raised again.
        """
        run, errors = functools.partial(_run, _copied(self), function), []
        tasks = itertools.takewhile(lambda _: not errors, _with_queries_before(pieces, queries_per_row))
        for result, usage, error in in_order(run, tasks, n_jobs, prefer="threads"):
            _add(self, usage)  # also of pieces that had begun when one failed
            if error is not None:
                errors.append(error)
            if not errors:
                yield result
        if errors:
            raise errors[0]


def _with_queries_before(pieces, queries_per_row):
    """Every piece, and the number of queries before it."""
    before = 0
    for points in pieces:
        yield points, before
        before += queries_per_row * len(points)


def _copied(oracle, n_queries=0):
    """A copy with counts of its own, which start n_queries higher."""
    other = copy.copy(oracle)
    other.budget = oracle.budget.copy(n_queries)
    other.extremes = Extremes()  # extremes of copies are dropped, in threads as in other processes
    if isinstance(oracle._box, SharedBox):
        other._box = SharedBox(_copied(oracle._box.oracle, n_queries))
    return other


def _run(oracle, function, points, n_queries):
    """Result of the function for a copy of the oracle, what it used, and the error that ended it."""
    other, result, error = _copied(oracle, n_queries), None, None
    try:
        result = function(other, points)
    except (BlackBoxError, OutOfBudgetError) as raised:
        error = raised
    used = other.n_queries - oracle.n_queries - n_queries
    return result, _Usage(used, other.n_derivatives - oracle.n_derivatives, _exhausted(other)), error


def _exhausted(oracle):
    """The exhausted budget of this oracle, or of one that it queries."""
    shared = isinstance(oracle._box, SharedBox)
    return oracle.exhausted or (_exhausted(oracle._box.oracle) if shared else None)


def _add(oracle, usage):
    """Add the counts of a copy to an oracle and to those that it queries."""
    oracle.budget.spend(usage.n_queries)
    with oracle._counting:
        oracle.n_derivatives += usage.n_derivatives
    if usage.exhausted is not None:
        oracle.exhausted = usage.exhausted
    if isinstance(oracle._box, SharedBox):
        _add(oracle._box.oracle, usage)
