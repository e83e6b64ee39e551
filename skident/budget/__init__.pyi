from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from numpy.typing import NDArray

from skident.oracle import OutOfBudgetError

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[..., Any]

__all__ = ["MemoryLimitError", "config_context", "get_config", "set_config"]

class MemoryLimitError(OutOfBudgetError):
    """A stage needs more memory than `max_memory` allows. It is raised before the memory is allocated."""

    message: str
    needed: int
    def __init__(self, message: str, needed: int) -> None: ...

def config_context(*, max_memory: int | float | str | None = ...) -> AbstractContextManager[None]:
    """Set the configuration for a block of code."""

def get_config() -> dict[Any, Any]:
    """The configuration that applies here."""

def set_config(*, max_memory: int | float | str | None = ...) -> Any:
    """Change the configuration of this thread, or of this asynchronous task."""
