"""What a computation may use: memory and time, read by every kernel from the context that it runs in."""

from .config import (
    chunk_bytes,
    chunks,
    config_context,
    get_config,
    memory_allows,
    require_memory,
    rows_at_once,
    set_config,
)
from .deadline import Moment, check_deadline, time_limit
from .errors import MemoryLimitError, OutOfBudgetError
from .travel import with_budget

__all__ = [
    "MemoryLimitError",
    "config_context",
    "get_config",
    "set_config",
]
