"""One clock for everything that asks or iterates: how long it may take, and how many questions it may ask."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from skident.budget import Moment, OutOfBudgetError, time_limit

__all__ = ["Clock", "OutOfBudgetError"]


@dataclass(frozen=True)
class Clock:
    """Time and questions that may be spent.

    Attributes
    ----------
    max_seconds : float or None
    max_queries : int or None
        Rows asked at most.
    began : float
        Time, of `time.perf_counter`; kept as a `Moment`, as all times that it gives: they hold in other processes too.

    Examples
    --------
    >>> from skident.oracle.clock import Clock
    >>> print(Clock(max_seconds=60.0).out_of_time)
    False
    """

    max_seconds: float | None = None
    max_queries: int | None = None
    began: float = field(default_factory=lambda: time.perf_counter())

    def __post_init__(self):
        object.__setattr__(self, "began", Moment(self.began))

    @property
    def deadline(self):
        """Time, of `time.perf_counter`, at which it is over; infinite without a limit."""
        return Moment(np.inf if self.max_seconds is None else self.began + self.max_seconds)

    @property
    def out_of_time(self):
        """Whether `max_seconds` are over."""
        return time.perf_counter() > self.deadline

    def share(self, fraction):
        """Time, of `time.perf_counter`, at which a share of `max_seconds` is over.

        Parameters
        ----------
        fraction : float

        Returns
        -------
        Moment
        """
        return Moment(np.inf if self.max_seconds is None else self.began + fraction * self.max_seconds)

    def limit(self, grace=0.0):
        """A block whose kernels end in an `OutOfBudgetError` when `max_seconds` are over.

        Parameters
        ----------
        grace : float, default=0
            Seconds more, for what is left to do with the result.

        Returns
        -------
        context manager
        """
        return time_limit(self.deadline + grace, self._over)

    @property
    def _over(self):
        return "" if self.max_seconds is None else f"max_seconds={self.max_seconds:g} are over"

    def refusal(self, n_queries):
        """What is used up, if anything is.

        Parameters
        ----------
        n_queries : int
            Rows asked so far, the next ones included.

        Returns
        -------
        str or None
        """
        if self.out_of_time:
            return self._over
        if self.max_queries is not None and n_queries > self.max_queries:
            return f"max_queries={self.max_queries} rows have been asked, or would have been"
        return None
