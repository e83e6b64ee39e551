"""The budget of one fit: queries and seconds, shared by all oracles that query the same model."""

import threading
import time

import numpy as np

from skident.budget import Moment, OutOfBudgetError, time_limit

__all__ = ["Budget", "OutOfBudgetError"]


class Budget:
    """Queries and seconds that a fit may spend, and the queries that it has spent.

    Parameters
    ----------
    max_seconds : float, default=None
        Seconds from `began` on. None is no limit.
    max_queries : int, default=None
        Queries. None is no limit.
    began : float, default=None
        Start, a time of `time.perf_counter`. None is now.

    Attributes
    ----------
    n_queries : int
        Queries so far, of all oracles with this budget.

    Examples
    --------
    >>> from skident.oracle import Budget
    >>> budget = Budget(max_queries=100)
    >>> budget.spend(90)
    >>> print(budget.exhausted_by(20))
    max_queries=100 does not allow 20 more queries after 90
    """

    def __init__(self, max_seconds=None, max_queries=None, began=None):
        self.max_seconds, self.max_queries, self.n_queries = max_seconds, max_queries, 0
        self.began = Moment(time.perf_counter() if began is None else began)  # also right in another process
        self._counting = threading.Lock()

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_counting"}

    def __setstate__(self, state):
        self.__dict__.update(state, _counting=threading.Lock())

    def copy(self, n_queries=0):
        """Copy this budget, with more queries spent.

        Parameters
        ----------
        n_queries : int, default=0

        Returns
        -------
        Budget
        """
        other = Budget(self.max_seconds, self.max_queries, self.began)
        other.n_queries = self.n_queries + n_queries
        return other

    def spend(self, n_queries):
        """Count queries.

        Parameters
        ----------
        n_queries : int
        """
        with self._counting:
            self.n_queries += n_queries

    @property
    def queries_left(self):
        """Queries that may still be made; infinite without a limit."""
        return np.inf if self.max_queries is None else self.max_queries - self.n_queries

    @property
    def deadline(self):
        """Time, of `time.perf_counter`, at which `max_seconds` end; infinite without a limit."""
        return self.share(1.0)

    @property
    def out_of_time(self):
        """Whether `max_seconds` have ended."""
        return time.perf_counter() > self.deadline

    def share(self, fraction):
        """Time, of `time.perf_counter`, at which a fraction of `max_seconds` ends.

        Parameters
        ----------
        fraction : float

        Returns
        -------
        Moment
        """
        return Moment(np.inf if self.max_seconds is None else self.began + fraction * self.max_seconds)

    def limit(self, grace=0.0):
        """Raise `OutOfBudgetError` in the kernels of a block when `max_seconds` end.

        Parameters
        ----------
        grace : float, default=0
            Further seconds, for what remains to do with the result.

        Returns
        -------
        context manager
        """
        return time_limit(self.deadline + grace, self._time_exhausted())

    def exhausted_by(self, n_queries):
        """What further queries would exhaust.

        Parameters
        ----------
        n_queries : int
            Queries to come.

        Returns
        -------
        str or None
        """
        if self.out_of_time:
            return self._time_exhausted()
        if n_queries > self.queries_left:
            return f"max_queries={self.max_queries} does not allow {n_queries} more queries after {self.n_queries}"
        return None

    def _time_exhausted(self):
        return "" if self.max_seconds is None else f"max_seconds={self.max_seconds:g} are over"
