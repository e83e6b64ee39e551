"""Checks of single arguments that all generators take."""

from __future__ import annotations

from numbers import Integral, Real

__all__ = ["check_count", "check_real"]


def check_count(name, value, minimum=1):
    """An integer that is large enough.

    Parameters
    ----------
    name : str
        Of the argument, for the error text.
    value : object
    minimum : int, default=1

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If the value is no integer (a bool is none) or below the minimum.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise ValueError(f"{name} must be an integer >= {minimum}, got {value!r}.")
    return int(value)


def check_real(name, value, accepts, wanted):
    """A real number in a range.

    Parameters
    ----------
    name : str
        Of the argument, for the error text.
    value : object
    accepts : callable
        ``accepts(value)`` tells whether the number is in range.
    wanted : str
        The range in words, as in ``name must be wanted``.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the value is no real number (a bool is none) or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not accepts(value):
        raise ValueError(f"{name} must be {wanted}, got {value!r}.")
    return float(value)
