"""Units that grow, seen near the centre, where outputs reach their limits far out."""

from __future__ import annotations

import numpy as np

__all__ = ["classify_near_center"]

_LINES, _POINTS, _REACH = 4, 161, 2.0  # on which that is looked at, and how far they go either way
_STRAIGHT = 0.4  # share of second differences that are 0, of functions with kinks
_ROUNDINGS, _BENT = 16.0, 100.0  # of values, by which differences of a line may be off; and how much more is a kink
_FEWEST = 200  # differences that must be told


def classify_near_center(behind, rng):
    """Whether values on lines near the centre are linear, linear but for kinks, or bend everywhere.

    Parameters
    ----------
    behind : PreActivationOracle
    rng : numpy.random.RandomState

    Returns
    -------
    {"lines", "kinks", "curves"}
        The last one also where too few values can be told.

    Notes
    -----
    ``644`` queries.
    """
    zero = told = bent = 0
    for start, direction in rng.standard_normal((_LINES, 2, behind.n_inputs)):
        t = np.linspace(-_REACH, _REACH, _POINTS)
        Z, error = behind.ask(start + t[:, None] * direction)
        bend, tol = np.abs(np.diff(Z, 2, axis=0)), error[:-2] + 2.0 * error[1:-1] + error[2:]
        clear = np.isfinite(tol) & (tol < 1e-6)
        told += int(clear.sum())
        tol = tol + _ROUNDINGS * np.finfo(float).eps * np.abs(Z[1:-1])
        zero += int(np.sum(clear & (bend <= tol)))
        bent += int(np.sum(clear & (bend > _BENT * tol)))
    if told < _FEWEST or zero < _STRAIGHT * told:
        return "curves"
    return "kinks" if bent else "lines" if zero > 0.99 * told else "curves"
