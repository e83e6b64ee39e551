"""Constructor parameters with a new name, whose old name works for one release with a FutureWarning."""

from __future__ import annotations

import warnings

from .parameters import StrOptions

__all__ = ["DEPRECATED", "OR_DEPRECATED", "value_of_renamed"]

DEPRECATED = "deprecated"  # default of an old name: not given
OR_DEPRECATED = StrOptions({DEPRECATED})  # further constraint of an old name


def value_of_renamed(estimator, new, old):
    """Value of the parameter `new`, or that of its old name, with a FutureWarning, if this is given."""
    value = getattr(estimator, old)
    if isinstance(value, str) and value == DEPRECATED:
        return getattr(estimator, new)
    name = type(estimator).__name__
    warnings.warn(f"{old} is renamed: write {name}({new}={value!r}).", FutureWarning, stacklevel=2)
    return value
