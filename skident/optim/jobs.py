"""Parallel work by joblib, in threads, in processes or on a cluster, with the same results to the last bit."""

import functools

from joblib import Parallel, cpu_count, delayed, effective_n_jobs, wrap_non_picklable_objects
from joblib.parallel import get_active_backend

from skident.budget import with_budget

from .threads import limited_blas, one_blas_thread


def in_order(function, pieces, n_jobs=None, *, prefer=None):
    """Results of ``function(*piece)`` in the order of the pieces, computed in parallel by joblib.

    Parameters
    ----------
    function : callable
    pieces : iterable of tuple
        Read as they are needed.
    n_jobs : int, default=None
        As in joblib. One job computes a piece when its result is consumed.
    prefer : {"threads", "processes"}, default=None
        Unless a `joblib.parallel_config` says otherwise.

    Yields
    ------
    object

    Raises
    ------
    ValueError
        If there are no jobs.

    Notes
    -----
    Every piece has one BLAS thread, whatever the number of jobs, because sums of two threads are rounded differently:
    results are the same to the last bit on machines of one kind. If `function` cannot be pickled by cloudpickle,
    threads replace processes. An exception of `function`, or Ctrl-C, ends the work. The limits of memory and time that
    hold here hold for every piece.

    Examples
    --------
    >>> from skident.optim import in_order
    >>> print(list(in_order(pow, [(2, 3), (3, 2)], n_jobs=2, prefer="threads")))
    [8, 9]
    """
    at_once, work = effective_n_jobs(n_jobs), functools.partial(_on_one_thread, with_budget(function))
    if at_once == 1:
        yield from (work(*piece) for piece in pieces)
        return
    options, (backend, _) = {"n_jobs": at_once, "prefer": prefer}, get_active_backend(prefer=prefer)
    if not getattr(backend, "supports_sharedmem", False) and not _can_travel(function):
        options = {"n_jobs": min(at_once, cpu_count()), "prefer": "threads", "require": "sharedmem"}
    elif not backend.supports_return_generator:  # multiprocessing, which pickles no lambdas either
        options["return_as"], work = "list", wrap_non_picklable_objects(work)
    with limited_blas():  # of jobs that are threads: they share it, and only one of them may set it
        yield from Parallel(**{"return_as": "generator", **options})(delayed(work)(*piece) for piece in pieces)


def _on_one_thread(function, *piece):
    with one_blas_thread():
        return function(*piece)


def _can_travel(function):
    """Whether it can be sent to another process."""
    try:
        wrap_non_picklable_objects(function).__reduce__()  # by cloudpickle, as joblib's backends do it
    except Exception:  # whatever pickling runs into
        return False
    return True
