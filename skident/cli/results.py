"""What a command found, before it is printed: as text, as numbers, and how the command ends."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

__all__ = ["FOUND", "NOT_FOUND", "REFUSED", "UNDECIDED", "Result", "plain"]

FOUND = 0  # exit codes: the same, identified or smaller
NOT_FOUND = 1  # different, not identified or not smaller
REFUSED = 2  # bad input
UNDECIDED = 3  # an audit without the power to decide


@dataclass(frozen=True)
class Result:
    """What a command found.

    Attributes
    ----------
    code : int
        The exit code: 0 the same, or identified, or smaller; 1 not; 3 an undecided audit.
    text : str
        For people.
    numbers : dict
        For programs.
    notes : list of str
        What is to be known besides, for stderr.
    """

    code: int
    text: str
    numbers: dict
    notes: list = field(default_factory=list)


def plain(value):
    """A value in what JSON has: dicts, lists, strings, finite numbers, truth values and None.

    Parameters
    ----------
    value : object
        Arrays become lists, numbers that are not finite None.

    Returns
    -------
    object

    Examples
    --------
    >>> import numpy as np
    >>> from skident.cli.results import plain
    >>> print(plain({"a": np.array([1.0, np.inf]), "b": (np.bool_(True), 2)}))
    {'a': [1.0, None], 'b': [True, 2]}
    """
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(part) for part in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
