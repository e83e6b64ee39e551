"""Result of a command, as text and as JSON values, with its exit code."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

__all__ = ["FOUND", "INVALID_INPUT", "NOT_FOUND", "UNDECIDED", "Result", "plain"]

FOUND = 0  # exit code: equal, identified or smaller
NOT_FOUND = 1  # exit code: different, not identified or not smaller
INVALID_INPUT = 2  # exit code
UNDECIDED = 3  # exit code: an audit without the power to decide


@dataclass(frozen=True)
class Result:
    """Result of a command: exit code, text for people, numbers for programs, notes for stderr."""

    code: int
    text: str
    numbers: dict
    notes: list = field(default_factory=list)


def plain(value):
    """A value as JSON types: arrays become lists, numbers that are not finite None."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(part) for part in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
