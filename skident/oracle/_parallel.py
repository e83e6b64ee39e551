"""Questions asked in other threads, processes or machines, by copies of an oracle, and counted where they came from."""

from __future__ import annotations

import copy
import functools
import itertools
import threading
from typing import NamedTuple

from skident.optim import in_order

from ._adapters import SharedBox
from ._errors import BlackBoxError
from .clock import OutOfBudgetError
from .extremes import Extremes


class Asked(NamedTuple):
    """What a copy of an oracle was asked, and what was used up when its clock refused a question."""

    n_queries: int
    n_derivatives: int
    refusal: str | None


class AskedElsewhere:
    """What makes an `Oracle` fit to travel."""

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_counting"}

    def __setstate__(self, state):
        self.__dict__.update(state, _counting=threading.Lock())

    def query_in_parallel(self, function, pieces, n_jobs=None, *, queries_per_row=0):
        """Answers to a question at pieces of the points, in their order, asked by several jobs at a time.

        Parameters
        ----------
        question : callable
            ``question(oracle, points)`` of a copy of this oracle, which may be in another process.
        pieces : sequence of ndarray of shape (k, D)
        n_jobs : int, default=None
            See `skident.optim.in_order`: threads where no `joblib.parallel_config` says otherwise.
        queries_per_row : int, default=0
            Rows that the question asks at every point. `max_queries` are over at the same piece for any number of jobs.

        Yields
        ------
        object
            What the question gave. All that was asked for it counts here then.

        Raises
        ------
        ValueError
            Where the question raised one.
        OutOfBudgetError
            If the clock's time or questions are used up.
        """
        ask, errors = functools.partial(_ask, _copied(self), function), []
        tasks = itertools.takewhile(lambda _: not errors, _with_rows_before(pieces, queries_per_row))
        for answers, asked, error in in_order(ask, tasks, n_jobs, prefer="threads"):
            _add(self, asked)  # of pieces after the one that failed too, where these had begun
            if error is not None:
                errors.append(error)
            if not errors:
                yield answers
        if errors:
            raise errors[0]


def _with_rows_before(pieces, queries_per_row):
    """Every piece, and how many rows are asked before it."""
    before = 0
    for points in pieces:
        yield points, before
        before += queries_per_row * len(points)


def _copied(oracle, n_queries=0):
    """A copy that counts for itself, after so many rows more."""
    other = copy.copy(oracle)
    other.n_queries += n_queries
    other.extremes = Extremes()  # what copies see is lost, in threads as in other processes
    if isinstance(oracle._box, SharedBox):
        other._box = SharedBox(_copied(oracle._box.oracle, n_queries))
    return other


def _ask(oracle, question, points, n_queries):
    """What a question gives, what was asked for it, and the error that ended it."""
    other, answers, error = _copied(oracle, n_queries), None, None
    try:
        answers = question(other, points)
    except (BlackBoxError, OutOfBudgetError) as raised:
        error = raised
    asked = other.n_queries - oracle.n_queries - n_queries
    return answers, Asked(asked, other.n_derivatives - oracle.n_derivatives, _refusal(other)), error


def _refusal(oracle):
    """Of this oracle or of one that it asks through."""
    through = isinstance(oracle._box, SharedBox)
    return oracle.refusal or (_refusal(oracle._box.oracle) if through else None)


def _add(oracle, asked):
    """Count for an oracle, and for those it asks through, what a copy was asked."""
    with oracle._counting:
        oracle.n_queries += asked.n_queries
        oracle.n_derivatives += asked.n_derivatives
    if asked.refusal is not None:
        oracle.refusal = asked.refusal
    if isinstance(oracle._box, SharedBox):
        _add(oracle._box.oracle, asked)
