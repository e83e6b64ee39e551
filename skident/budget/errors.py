"""Errors of a computation that must not go on: they are no failure of the stage that they end."""

from __future__ import annotations

__all__ = ["MemoryLimitError", "OutOfBudgetError"]


class OutOfBudgetError(Exception):
    """Time, queries or memory are used up. Not a ValueError: no stage may take it for a failure of its own.

    Attributes
    ----------
    progress : str
        What was recovered before.
    """

    progress = "before any unit was recovered"


class MemoryLimitError(OutOfBudgetError):
    """A stage needs more memory than `max_memory` allows. It is raised before the memory is allocated.

    Parameters
    ----------
    message : str
    needed : int
        Bytes that `max_memory` must allow for this stage.

    Attributes
    ----------
    needed : int
        As given.
    """

    def __init__(self, message, needed):
        super().__init__(message, needed)
        self.needed = needed

    def __str__(self):
        return str(self.args[0])
