"""Critical points on many lines, with their normals and the directions of their jumps."""

from dataclasses import dataclass

import numpy as np

from ...constants import NEAR_RADII
from ..several_outputs.shared_jacobians import good, normals_on_line, scanned

_REACH = 30.0  # half length of lines over sqrt(D)
_PAIRS = 100  # first pairs of points on a line: between fewer ones, small bumps of deep units are lost
_FEWER_PAIRS = 20  # `_PAIRS` of lines between two points
_SHORTEST = 1e-6  # distance of these, in standard deviations of the inputs
_BEYOND = 0.8  # half length of these over the distance of the points
GRID = 800  # positions of a line at which units are predicted
_KNOWN = 1e-7  # distance from the boundary of a known unit up to which a critical point is its, relative
_LEAST_COSINE = 1e-2  # of a known normal with the line: the jump along the line determines its length
_SPREADS = (1e-3, 1e-4, 1e-5)  # half distances of the points that test a predicted crossing, over sqrt(D)
_EPS = np.finfo(float).eps / 2.0  # rounding of one output
_BEND_ERRORS = 12.0  # errors of the outputs that a second difference of a bend exceeds


@dataclass
class Lines:
    """Lines ``origins + t directions``; units are predicted at positions t that are multiples of the `scales` (n,).

    The multiples are those of `grid` (g,), in units of the length of the inputs.
    """

    origins: np.ndarray
    directions: np.ndarray
    scales: np.ndarray
    grid: np.ndarray

    def __len__(self):
        return len(self.origins)

    def joined(self, other):
        """These lines and others with the same grid."""
        names = ("origins", "directions", "scales")
        return Lines(*(np.concatenate([getattr(self, k), getattr(other, k)]) for k in names), self.grid)

    def positions(self, i, j):
        """Positions (n,) of points j (n,) of the grids of lines i (n,)."""
        return self.scales[i] * self.grid[j]

    def at(self, i, t):
        """Points (n, D) at positions t (n,) of lines i (n,)."""
        return self.origins[i] + t[:, None] * self.directions[i]

    @property
    def grid_points(self):
        """Points (lines * g, D) of all grids."""
        t = self.scales[:, None, None] * self.grid[:, None]
        return (self.origins[:, None] + t * self.directions[:, None]).reshape(-1, self.origins.shape[1])


def straight_lines(n, n_inputs, rng, n_grid=GRID):
    """Random `Lines` near the center."""
    radii = np.array(NEAR_RADII)[rng.randint(len(NEAR_RADII), size=n), None]
    V = rng.standard_normal((n, n_inputs))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    return Lines(radii * rng.standard_normal((n, n_inputs)), V, np.ones(n), _grid(n_inputs, n_grid))


def _grid(n_inputs, n):
    """Positions (n,) on a line, denser near its origin."""
    end = np.arcsinh(_REACH)
    return np.sqrt(n_inputs) * np.sinh(np.linspace(-end, end, n))


def lines_between(X, Y, n_grid=GRID):
    """`Lines` through points X and Y (n, D) and some way beyond; none through points that coincide."""
    apart = np.linalg.norm(Y - X, axis=1) > _SHORTEST
    X, Y = X[apart], Y[apart]
    V = Y - X
    length = np.linalg.norm(V, axis=1)
    grid = _grid(X.shape[1], n_grid)
    return Lines(0.5 * (X + Y), V / length[:, None], _BEYOND * length / grid[-1], grid)


class CriticalSet:
    """Critical points (n, D) of lines with unit normals (n, D) and unit jumps (n, m_L) of the outputs.

    `line` (n,) and `position` (n,) say where, `errors` (n,) are those of the normals, and `reliable` (n,) marks those
    whose normals the residuals confirm.
    """

    def __init__(self, space, rng):
        self.space, self.rng = space, rng
        D, P = space.n_coordinates, len(space.output_error)
        self.lines = straight_lines(0, D, rng)
        self.points, self.normals, self.jumps = np.zeros((0, D)), np.zeros((0, D)), np.zeros((0, P))
        self.line, self.position = np.zeros(0, dtype=int), np.zeros(0)
        self.errors, self.reliable = np.zeros(0), np.zeros(0, dtype=bool)

    def __len__(self):
        return len(self.position)

    def extend(self, n_lines):
        """Scan further random lines, and determine the normals of their critical points."""
        self.extend_along(straight_lines(max(n_lines, 0), self.space.n_coordinates, self.rng))

    def extend_along(self, new, prefix=None):
        """Scan further `Lines`, and determine the normals of their critical points; a `KnownPrefix` gives those of its.

        Critical points of known units need no Jacobians.
        """
        start = len(self.lines)
        self.lines = self.lines.joined(new)
        scans = [self._scan(*one, prefix) for one in zip(new.origins, new.directions, new.scales, strict=True)]
        for name, part in (
            ("points", [s.points for s in scans]),
            ("normals", [_units(s.normals) for s in scans]),
            ("jumps", [s.units for s in scans]),
            ("line", [np.full(len(s.positions), start + i) for i, s in enumerate(scans)]),
            ("position", [s.positions for s in scans]),
            ("errors", [s.errors for s in scans]),
            ("reliable", [good(s) for s in scans]),
        ):
            setattr(self, name, np.concatenate([getattr(self, name), *part]))

    def explained(self, prefix, X):
        """Which points (n, D) are on the boundary of a unit of a `KnownPrefix`, a mask (n,), and its normals (n, D)."""
        room, normals = prefix.nearest_boundary(X)
        return room < _KNOWN * (self.space.unit + np.linalg.norm(X, axis=1)), normals

    def _scan(self, origin, direction, scale, prefix):
        low, high = scale * self.lines.grid[[0, -1]]
        options = {"length_scale": scale * self.space.unit, "n_pairs": _PAIRS if scale == 1.0 else _FEWER_PAIRS}
        line = scanned(self.space.seen_from(origin), origin, direction, low, high, self.rng, **options)
        if prefix is not None and len(line.positions):
            explained, normals = self.explained(prefix, line.points)
            along = normals @ direction
            k = np.flatnonzero(explained & prefix.certain(line.points) & (np.abs(along) > _LEAST_COSINE))
            line.normals[k] = normals[k] * (line.sizes[k] / along[k])[:, None]
            line.residuals[k], line.errors[k] = 0.0, 0.0
        if np.isnan(line.normals).any():
            normals_on_line(self.space, line, self.rng)
        return line

    def nearest(self, line, t):
        """Index of the nearest critical point to positions t (n,) of lines (n,), and its distance (n,)."""
        wide = 4.0 * self.lines.grid[-1]
        keys, wanted = self.line * wide + self.position, line * wide + t
        k = np.searchsorted(keys, wanted)
        below, above = np.clip(k - 1, 0, len(keys) - 1), np.clip(k, 0, len(keys) - 1)
        j = np.where(np.abs(keys[below] - wanted) < np.abs(keys[above] - wanted), below, above)
        return j, np.abs(keys[j] - wanted)

    def bends(self, X, V):
        """At points (n, D), whether outputs bend there along V (n, D): 1 bent, 0 straight, -1 constant, nan unclear."""
        found, todo, D = np.full(len(X), np.nan), np.arange(len(X)), X.shape[1]
        for spread in _SPREADS:
            if len(todo) == 0:
                break
            moves = spread * self.space.unit * np.arange(-2.0, 3.0)
            at = X[todo, None] + moves[:, None] * V[todo, None]
            F = self.space.query(at.reshape(-1, D)).reshape(len(todo), 5, -1)
            bent = np.abs(F[:, 2:] - 2.0 * F[:, 1:-1] + F[:, :-2]).max(axis=2)
            size = np.linalg.norm(X[todo], axis=1) / self.space.unit
            tol = _BEND_ERRORS * (self.space.output_error.max() * (1.0 + size) + _EPS * np.abs(F).max(axis=(1, 2)))
            big = bent > tol[:, None]
            clear = ~big[:, 0] & ~big[:, 2]
            found[todo[clear]] = big[clear, 1]
            flat = clear & ~big[:, 1] & (np.ptp(F, axis=1).max(axis=1) < tol)
            found[todo[flat]] = -1
            todo = todo[~clear]
        return found


def _units(N):
    """Unit vectors along N (n, D)."""
    return N / np.maximum(np.linalg.norm(N, axis=1, keepdims=True), np.finfo(float).tiny)
