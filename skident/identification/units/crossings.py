"""Where units change their sign on lines, as they predict it."""

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import EXACT_RESIDUAL, TINY

_STEPS = 25  # to a zero (budget)


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

    Zeros by Newton's method between the ends of a change of sign, exact in the linear region of the zero.
    """
    check_deadline()
    Z = phi @ unit.coef
    line, j = np.nonzero(Z[:, 1:] * Z[:, :-1] < 0)
    a, b, sign = grid[line, j], grid[line, j + 1], np.sign(Z[line, j])
    t = (a * Z[line, j + 1] - b * Z[line, j]) / (Z[line, j + 1] - Z[line, j])
    for _ in range(_STEPS if len(t) else 0):
        before, points = t, lines.at(line, t)
        z, slope = prefix.evaluate(points)[1] @ unit.coef, prefix.tangents(points, lines.directions[line]) @ unit.coef
        a, b = np.where(z * sign > 0, t, a), np.where(z * sign > 0, b, t)
        t = t - z / np.where(slope == 0, TINY, slope)
        t = np.where((t >= a) & (t <= b), t, 0.5 * (a + b))
        if np.all(np.abs(t - before) <= EXACT_RESIDUAL * (1.0 + np.abs(t))):
            break
    return Crossings(prefix, unit, lines, line, t, tol)
