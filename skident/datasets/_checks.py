"""Checks of single arguments that all generators take."""

from __future__ import annotations

from numbers import Integral, Real

__all__ = ["check_count", "check_real"]


def check_count(name, value, minimum=1):
    """An integer argument, at least `minimum`; ValueError otherwise (a bool is no integer)."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise ValueError(f"{name} must be an integer >= {minimum}, got {value!r}.")
    return int(value)


def check_real(name, value, accepts, wanted):
    """A real argument with ``accepts(value)``; otherwise ValueError: ``name must be wanted`` (a bool is no number)."""
    if isinstance(value, bool) or not isinstance(value, Real) or not accepts(value):
        raise ValueError(f"{name} must be {wanted}, got {value!r}.")
    return float(value)
