"""How much memory a computation may use, and the chunk sizes that follow from it."""

from __future__ import annotations

import math
import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from numbers import Real
from pathlib import Path

from .errors import MemoryLimitError

__all__ = [
    "chunk_bytes",
    "chunks",
    "config_context",
    "get_config",
    "memory_allows",
    "require_memory",
    "rows_at_once",
    "set_config",
]

# The default is the machine's memory divided by this: the rest is for the model, the data and other processes.
_SHARE = 4
_LARGEST_DEFAULT = 2**31  # bytes; identified networks fit, and a notebook beside the fit keeps its memory
_SMALLEST = 2**20  # bytes; below it, chunks hold so few rows that the interpreter takes most of the time
_CHUNKS = 16  # chunks of a kernel per limit: a kernel holds about four arrays of a chunk, and stages call kernels
_HALF = 2  # share of the limit for one array with its copies; the other half is for chunks and stored samples
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_CGROUP = Path("/sys/fs/cgroup/memory.max")  # limit of a container on Linux

_MAX_MEMORY: ContextVar[int | None] = ContextVar("skident_max_memory", default=None)


def get_config():
    """The configuration that applies here.

    Returns
    -------
    dict
        ``max_memory``: int, in bytes.

    Examples
    --------
    >>> import skident
    >>> with skident.config_context(max_memory="500MB"):
    ...     print(skident.get_config())
    {'max_memory': 500000000}
    """
    limit = _MAX_MEMORY.get()
    return {"max_memory": _default_limit() if limit is None else limit}


def set_config(*, max_memory=None):
    """Change the configuration of this thread, or of this asynchronous task.

    Parameters
    ----------
    max_memory : int, float or str, default=None
        See `config_context`. None leaves the limit as it is.

    Raises
    ------
    ValueError
        If `max_memory` is no size of at least 1 MiB.

    Examples
    --------
    >>> import skident
    >>> skident.set_config(max_memory=skident.get_config()["max_memory"])
    """
    if max_memory is not None:
        _MAX_MEMORY.set(_parsed(max_memory))


@contextmanager
def config_context(*, max_memory=None):
    """Set the configuration for a block of code.

    Parameters
    ----------
    max_memory : int, float or str, default=None
        Bound on the memory that a fit allocates at a time: bytes, or a string such as ``"500MB"`` or ``"1.5GiB"``.
        The memory that the process held before, and that of the model itself, is not included. By default a
        quarter of the memory of the machine (or container), at most 2 GiB. None leaves the limit as it is. Raise it
        when a fit ends with an error that names the memory needed.

    Yields
    ------
    None

    Raises
    ------
    ValueError
        If `max_memory` is no size of at least 1 MiB.

    Notes
    -----
    The configuration holds for the current thread or asynchronous task, and for the joblib workers that skident starts
    from it; every worker may use as much. Chunks have a sixteenth of the limit. Their sizes change sums by rounding
    only. A kernel that needs more than the limit raises a `MemoryLimitError`, a ValueError that names the bytes.

    Examples
    --------
    >>> import skident
    >>> with skident.config_context(max_memory="1GB"):
    ...     print(skident.get_config()["max_memory"])
    1000000000
    """
    limit = _MAX_MEMORY.get() if max_memory is None else _parsed(max_memory)
    token = _MAX_MEMORY.set(limit)
    try:
        yield
    finally:
        _MAX_MEMORY.reset(token)


def chunk_bytes():
    """Size of the largest array that a kernel makes per chunk of rows.

    Returns
    -------
    int
        Bytes.
    """
    return get_config()["max_memory"] // _CHUNKS


def rows_at_once(row_bytes, *, at_most=None):
    """Rows per chunk, so that the largest array of a kernel has `chunk_bytes` at most.

    Parameters
    ----------
    row_bytes : int
        Bytes of that array per row.
    at_most : int, default=None
        A chunk that is large enough to be efficient.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> import skident
    >>> from skident.budget import chunk_bytes, rows_at_once
    >>> with skident.config_context(max_memory="16MiB"):
    ...     print(chunk_bytes(), rows_at_once(2**18))
    1048576 4
    """
    rows = max(1, chunk_bytes() // max(1, int(row_bytes)))
    return rows if at_most is None else min(rows, at_most)


def chunks(n_rows, row_bytes):
    """Slices of rows, so that the largest array of a kernel has `chunk_bytes` at most.

    Parameters
    ----------
    n_rows : int
    row_bytes : int
        Bytes of that array per row.

    Returns
    -------
    list of slice
        In order; at least one, also of no rows.

    Examples
    --------
    >>> import skident
    >>> from skident.budget import chunks
    >>> with skident.config_context(max_memory="16MiB"):
    ...     print(chunks(5, 2**19))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = rows_at_once(row_bytes)
    return [slice(first, min(first + size, n_rows)) for first in range(0, max(n_rows, 1), size)]


def memory_allows(n_bytes):
    """Whether an allocation is within its share of the limit, one half.

    Parameters
    ----------
    n_bytes : int
        Of all arrays that the allocation implies, work space included.

    Returns
    -------
    bool
    """
    return _HALF * n_bytes <= get_config()["max_memory"]


def require_memory(n_bytes, what):
    """Raise an error if an allocation would exceed its share of the limit, one half.

    Parameters
    ----------
    n_bytes : int
        Of all arrays that the allocation implies, work space included.
    what : str
        What they hold, for the message.

    Raises
    ------
    MemoryLimitError
        If they do not fit.

    Examples
    --------
    >>> import skident
    >>> from skident.budget import MemoryLimitError, memory_allows, require_memory
    >>> with skident.config_context(max_memory="16MB"):
    ...     print(memory_allows(8 * 10**6))
    ...     try:
    ...         require_memory(8 * 2000**2, "a matrix")
    ...     except MemoryLimitError as error:
    ...         print(error.needed)
    True
    64000000
    """
    if not memory_allows(n_bytes):
        limit, needed = get_config()["max_memory"], _HALF * int(n_bytes)
        raise MemoryLimitError(
            f"max_memory={_text(limit)} does not allow {what}: {needed} bytes are needed ({_text(needed)}). Call fit "
            f"within `with skident.config_context(max_memory={_text(needed)!r}):` if the machine has so much",
            needed,
        )


def _parsed(size):
    """A size in bytes."""
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?I?)B?\s*", size.upper())
        n_bytes = float(match[1]) * _UNITS.get(match[2], math.nan) if match else math.nan
    else:
        n_bytes = float(size) if isinstance(size, Real) and not isinstance(size, bool) else math.nan
    if not _SMALLEST <= n_bytes < math.inf:
        raise ValueError(
            f"max_memory must be a size of at least 1 MiB, in bytes or as a string such as '500MB', got {size!r}."
        )
    return int(n_bytes)


def _text(n_bytes):
    """A size that is read back as no less, with three digits or so."""
    unit, size = next((u, s) for u, s in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)) if n_bytes >= s or u == "KB")
    digits = 10 if n_bytes < 100 * size else 1
    return f"{math.ceil(n_bytes * digits / size) / digits:g}{unit}"


@lru_cache(maxsize=1)
def _default_limit():
    sizes = [size for size in (_machine_bytes(), _container_bytes()) if size]
    return max(_SMALLEST, min([_LARGEST_DEFAULT, *(size // _SHARE for size in sizes)]))


def _machine_bytes():
    """Memory of the machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _container_bytes():
    """Memory of a Linux container; None outside of one, and without a limit."""
    try:
        return int(_CGROUP.read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None
