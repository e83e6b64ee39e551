"""Threads of the linear algebra: one for small matrices, all of them for large ones."""

import functools
import math
import sys
import threading
from contextlib import contextmanager
from contextvars import ContextVar

from threadpoolctl import ThreadpoolController

# Floating-point operations of one product from which a second thread pays even beside other work: about 0.1 s of one
# core. A product of a millisecond waits longer for a thread that the scheduler has taken away than it takes.
LARGE_PRODUCT = 2e9

# Libraries and their threads when `one_thread` began; None outside of it, and in pieces of parallel work.
_given: ContextVar[list | None] = ContextVar("_given", default=None)


@functools.lru_cache(maxsize=1)
def _libraries(n_modules):
    """Libraries with threads; the search takes a millisecond, so it is repeated only if modules were loaded since."""
    return ThreadpoolController()


@contextmanager
def one_thread(work=0.0):
    """A block whose linear algebra takes one thread, except for large products (`all_threads`).

    Meant for the entry of a `fit`: BLAS and OpenMP, and so torch, are limited once, and restored at the end. Nothing
    changes inside another such block, for large work, or outside Python's main thread: OpenBLAS counts its threads per
    process, raises the count in the main thread only, and fits in threads share the cores already.

    Parameters
    ----------
    work : float, default=0
        Floating-point operations of a typical product; from `LARGE_PRODUCT` on, nothing changes.

    Examples
    --------
    >>> import numpy as np
    >>> import threadpoolctl
    >>> from skident.optim import one_thread
    >>> with one_thread():
    ...     print({pool["num_threads"] for pool in threadpoolctl.threadpool_info()})
    {1}
    """
    in_main = threading.current_thread() is threading.main_thread()
    if work >= LARGE_PRODUCT or _given.get() is not None or not in_main:
        yield
        return
    before = [(library, library.num_threads) for library in _libraries(len(sys.modules)).lib_controllers]
    with _swapped(before, [1] * len(before), before):
        yield


@contextmanager
def all_threads(work):
    """A block of large products inside `one_thread`, with the threads from before.

    Parameters
    ----------
    work : float
        Floating-point operations of a typical product; below `LARGE_PRODUCT`, nothing changes.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.optim import all_threads, one_thread
    >>> A = np.ones((20, 10))
    >>> with one_thread(), all_threads(2.0 * A.size * 10):
    ...     print((A.T @ A).max())
    20.0
    """
    before = _given.get()
    if work < LARGE_PRODUCT or before is None:
        yield
        return
    now = [(library, 1) for library, _ in before]
    with _swapped(now, [n for _, n in before], None):
        yield


@contextmanager
def _swapped(before, numbers, given):
    """Other numbers of threads than the libraries have, ``before`` again at the end."""
    token = _given.set(given)
    try:
        for (library, _), n in zip(before, numbers, strict=True):
            library.set_num_threads(n)
        yield
    finally:
        _given.reset(token)
        for library, n in before:
            library.set_num_threads(n)


def gram_work(X, degree=1):
    """Floating-point operations of the Gram matrix of all monomials of one degree in the columns of X.

    Parameters
    ----------
    X : array-like
        Counts as small without a shape of two axes: it is not validated yet, or the path of a file.
    degree : int, default=1

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from skident.optim import gram_work
    >>> print(gram_work(np.zeros((100, 4)), degree=2))
    20000.0
    """
    shape = getattr(X, "shape", ())
    if len(shape) != 2:
        return 0.0
    columns = math.comb(shape[1] + degree - 1, degree)
    return 2.0 * shape[0] * columns**2


def limited_blas():
    """A context manager in which BLAS takes one thread in the whole process, also in an unfinished generator.

    Returns
    -------
    context manager
    """
    return _libraries(len(sys.modules)).limit(limits=1, user_api="blas")


@contextmanager
def one_blas_thread():
    """A block whose products take one BLAS thread, however large: for pieces of parallel work."""
    token = _given.set(None)
    try:
        with limited_blas():
            yield
    finally:
        _given.reset(token)
