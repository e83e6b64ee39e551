"""When a computation must end: a time that every kernel can read."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from .errors import OutOfBudgetError

__all__ = ["Moment", "check_deadline", "time_limit"]

_FLOPS = 4e9  # operations per second of one core that others share too; LAPACK on an idle core does five times that


class Moment(float):
    """A time of `time.perf_counter` that stays the same moment where it is sent to another process or machine.

    Examples
    --------
    >>> import time
    >>> from skident.budget import Moment
    >>> in_a_minute = Moment(time.perf_counter() + 60.0)
    >>> print(time.perf_counter() > in_a_minute)
    False
    """

    def __reduce__(self):
        # Clocks of two machines begin at different times: what travels is how far away the moment is.
        return _moment_from_now, (float(self) - time.perf_counter(),)


def _moment_from_now(seconds):
    return Moment(time.perf_counter() + seconds)


class _Deadline(NamedTuple):
    moment: Moment
    reason: str


_DEADLINE: ContextVar[_Deadline | None] = ContextVar("skident_deadline", default=None)


@contextmanager
def time_limit(moment, reason):
    """A block in which `check_deadline` raises an error after a moment; it replaces the limit of a block around it.

    Parameters
    ----------
    moment : float
        Of `time.perf_counter`; infinite for no limit.
    reason : str
        What is over then, for the message.

    Yields
    ------
    None

    Examples
    --------
    >>> import time
    >>> from skident.budget import OutOfBudgetError, check_deadline, time_limit
    >>> with time_limit(time.perf_counter() - 1.0, "max_seconds=3 are over"):
    ...     try:
    ...         check_deadline()
    ...     except OutOfBudgetError as error:
    ...         print(error)
    max_seconds=3 are over
    """
    token = _DEADLINE.set(_Deadline(Moment(moment), reason))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def check_deadline(flops=0.0):
    """Raise an error if the time is over, or would be before a call that cannot be interrupted returns.

    Kernels call it in their loops; where no `time_limit` is set, it does nothing.

    Parameters
    ----------
    flops : float, default=0
        Floating-point operations of that call, as of a factorization by LAPACK.

    Raises
    ------
    OutOfBudgetError
        If the time is over.
    """
    deadline = _DEADLINE.get()
    if deadline is not None and time.perf_counter() + flops / _FLOPS > deadline.moment:
        over = time.perf_counter() > deadline.moment
        too_long = f", or would be before {flops:.1e} operations on a matrix end (about {flops / _FLOPS:.0f} s)"
        raise OutOfBudgetError(deadline.reason + ("" if over else too_long))
