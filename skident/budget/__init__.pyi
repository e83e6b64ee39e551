from collections.abc import Callable
from typing import Any, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = [
    "MemoryLimitError",
    "Moment",
    "OutOfBudgetError",
    "check_deadline",
    "chunk_bytes",
    "chunks",
    "config_context",
    "get_config",
    "memory_allows",
    "require_memory",
    "rows_at_once",
    "set_config",
    "time_limit",
    "with_budget",
]

class MemoryLimitError(OutOfBudgetError):
    """A stage needs more memory than `max_memory` allows. It is raised before the memory is allocated."""

    message: str
    needed: int
    def __init__(self, message: str, needed: int) -> None: ...

class Moment(float):
    """A time of `time.perf_counter` that stays the same moment where it is sent to another process or machine."""

class OutOfBudgetError(Exception):
    """Time, queries or memory are used up. Not a ValueError: no stage may take it for a failure of its own."""

    progress: str

def check_deadline(flops: float = ...) -> Any:
    """Raise an error if the time is over, or would be before a call that cannot be interrupted returns."""

def chunk_bytes() -> int:
    """Size of the largest array that a kernel makes per chunk of rows."""

def chunks(n_rows: int, row_bytes: int) -> list[Any]:
    """Slices of rows, so that the largest array of a kernel has `chunk_bytes` at most."""

def config_context(*, max_memory: int | float | str | None = ...) -> None:
    """Set the configuration for a block of code."""

def get_config() -> dict[Any, Any]:
    """The configuration that applies here."""

def memory_allows(n_bytes: int) -> bool:
    """Whether an allocation is within its share of the limit, one half."""

def require_memory(n_bytes: int, what: str) -> Any:
    """Raise an error if an allocation would exceed its share of the limit, one half."""

def rows_at_once(row_bytes: int, *, at_most: int | None = ...) -> int:
    """Rows per chunk, so that the largest array of a kernel has `chunk_bytes` at most."""

def set_config(*, max_memory: int | float | str | None = ...) -> Any:
    """Change the configuration of this thread, or of this asynchronous task."""

def time_limit(moment: float, reason: str) -> None:
    """A block in which `check_deadline` raises an error after a moment; it replaces the limit of a block around it."""

def with_budget(function: Call) -> Call:
    """A function that has the limits of this place wherever it is called: in another thread, or process."""
