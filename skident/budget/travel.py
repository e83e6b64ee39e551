"""The limits of a computation, in the threads and processes that do a part of it."""

from __future__ import annotations

from .config import _MAX_MEMORY
from .deadline import _DEADLINE

__all__ = ["with_budget"]


def with_budget(function):
    """A function that has the limits of this place wherever it is called: in another thread, or process.

    Parameters
    ----------
    function : callable

    Returns
    -------
    callable
        It can be pickled if `function` can.

    Examples
    --------
    >>> from threading import Thread
    >>> import skident
    >>> from skident.budget import with_budget
    >>> with skident.config_context(max_memory="1GB"):
    ...     thread = Thread(target=with_budget(lambda: print(skident.get_config())))
    >>> thread.start()
    {'max_memory': 1000000000}
    >>> thread.join()
    """
    return _Budgeted(function, _MAX_MEMORY.get(), _DEADLINE.get())


class _Budgeted:
    def __init__(self, function, max_memory, deadline):
        self.function, self.max_memory, self.deadline = function, max_memory, deadline

    def __call__(self, *args):
        tokens = _MAX_MEMORY.set(self.max_memory), _DEADLINE.set(self.deadline)
        try:
            return self.function(*args)
        finally:
            _MAX_MEMORY.reset(tokens[0])
            _DEADLINE.reset(tokens[1])
