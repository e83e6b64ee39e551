"""Where units change their sign on lines, as they predict it."""

from __future__ import annotations

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import TINY

__all__ = ["Crossings", "crossings"]

_SECANTS = 25  # to a zero (budget): exact as soon as both ends lie in one linear region
_ZERO = 1e-15  # pre-activation of units of spread 1 that is rounding


class Crossings:
    """Predicted crossings of one unit: positions `t` (n,) on lines with indices `line` (n,), and features there."""

    def __init__(self, prefix, unit, lines, line, t, tol):
        self.line, self.t, self.directions = line, t, lines.directions[line]
        self.points = lines.at(line, t)
        self.phi = prefix.evaluate(self.points)[1]
        self.slopes = self.errors = np.zeros(len(t))
        self.keep(unit.is_determined(self.phi, tol))
        self.slopes = np.abs(prefix.tangents(self.points, self.directions) @ unit.coef)
        error = unit.error(self.phi) + np.sqrt(prefix.variances(self.points) @ unit.coef**2)
        self.errors = error / np.maximum(self.slopes, TINY)  # of the positions

    def __len__(self):
        return len(self.t)

    def keep(self, mask):
        """Forget all others."""
        for name in ("line", "t", "directions", "points", "phi", "slopes", "errors"):
            setattr(self, name, getattr(self, name)[mask])

    def take(self, index):
        """Points, directions, position errors and slopes of some crossings."""
        return self.points[index], self.directions[index], self.errors[index], self.slopes[index]


def crossings(prefix, unit, lines, grid, phi, tol):
    """`Crossings` of a unit on lines with features phi (n_lines, n, T) at a grid (n_lines, n) of positions.

    Zeros by the Illinois secant method.
    """
    check_deadline()
    Z = phi @ unit.coef
    line, j = np.nonzero(Z[:, 1:] * Z[:, :-1] < 0)
    a, b, za, zb = grid[line, j], grid[line, j + 1], Z[line, j], Z[line, j + 1]
    t = a.copy()
    for _ in range(_SECANTS if len(t) else 0):
        t = (a * zb - b * za) / (zb - za)
        z = prefix.evaluate(lines.at(line, t))[1] @ unit.coef
        if np.abs(z).max() < _ZERO:
            break
        same = z * za > 0
        za, zb = np.where(same, z, 0.5 * za), np.where(same, 0.5 * zb, z)
        a, b = np.where(same, t, a), np.where(same, b, t)
        zb = np.where(zb == za, zb + TINY, zb)
    return Crossings(prefix, unit, lines, line, t, tol)
