"""Critical points along a line of a function with several outputs, from pairs of points.

Two linear pieces with at least three outputs meet by chance only outside of a boundary: if they do meet, and the
function takes that value there, nothing lies between them. About 8 queries per critical point, a third of those of
`scan_line`, which a single output needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import MANY_ROUNDS
from skident.oracle import NotIdentified

from ...constants import VERIFIED_TOL
from ..kernel.lines import Table, meeting_point

__all__ = ["scan_pairs"]

_PAIRS = 9  # first pairs on a line, unless it is short
_SHARE = 0.02  # distance within a pair over that of the next one
_TOL = 4.0  # errors: of a second difference of exact outputs
_NEAR = 0.95  # of the way from a pair to a boundary, at which a piece is measured
_NARROWEST = 1e-8  # interval, over the length scale and position, that is left unresolved
_SPLIT = (0.4, 0.6)  # share of an interval, on the asinh scale, at which it is split


@dataclass
class _Pieces(Table):
    """Linear pieces between points x and y (n,), with outputs f and g (n, m_L) there: pairs are short ones."""

    x: np.ndarray
    f: np.ndarray
    y: np.ndarray
    g: np.ndarray

    @property
    def slopes(self):
        """Slopes (n, m_L)."""
        return (self.g - self.f) / (self.y - self.x)[:, None]


class _Line:
    """A function along a line, with the errors of its outputs."""

    def __init__(self, query, output_error, length_scale):
        self.query, self.output_error, self.length_scale = query, output_error, length_scale

    def tol(self, t):
        """Errors (n,) of outputs at t (n,)."""
        return self.output_error * (1.0 + np.abs(t) / self.length_scale)

    def pairs(self, t, width):
        """Pairs of points at a distance `width` (n,) around t (n,)."""
        x, y = t - 0.5 * width, t + 0.5 * width
        f, g = np.split(self.query(np.concatenate([x, y])), 2)
        return _Pieces(x, f, y, g)

    def between(self, low, high, share):
        """Positions at a share of the way from low to high (n,), on a scale that is logarithmic far from 0."""
        a, b = np.arcsinh(low / self.length_scale), np.arcsinh(high / self.length_scale)
        return self.length_scale * np.sinh(a + share * (b - a))


def scan_pairs(query, low, high, *, output_error, length_scale, max_boundaries, rng, n_pairs=_PAIRS):
    """Positions (n,) and changes of the slope (n, m_L) of a piecewise linear function of one variable.

    `query` returns outputs (n, m_L) at positions (n,), m_L at least 3, with errors that grow as ``output_error (1 + |t|
    / length_scale)``. Boundaries too close together are left out, as are discontinuities. Raises `NotIdentified`
    ("crowded") if there are more than `max_boundaries`. The search begins with `n_pairs` pairs of points.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.piecewise.several_outputs.pair_scan import scan_pairs
    >>> U = np.array([[1.0, -2.0, 3.0], [2.0, 1.0, 0.5]])
    >>> options = {"output_error": 1e-14, "length_scale": 1.0, "max_boundaries": 9, "rng": np.random.RandomState(0)}
    >>> found = scan_pairs(lambda t: np.abs(t[:, None] - [0.25, 3.0]) @ U, -100.0, 100.0, **options)
    >>> print(found[0].round(6), found[1].round(6).tolist())
    [0.25 3.  ] [[2.0, -4.0, 6.0], [4.0, 2.0, 1.0]]
    """
    line = _Line(query, output_error, length_scale)
    t = line.between(np.full(n_pairs, low), np.full(n_pairs, high), np.linspace(0.0, 1.0, n_pairs))
    gaps = np.diff(t)
    width = _SHARE * np.minimum(np.append(gaps, gaps[-1]), np.append(gaps[0], gaps))
    width[[0, -1]] *= 0.5
    nodes = line.pairs(np.clip(t, low + width, high - width), width)
    a, b = nodes.take(slice(None, -1)), nodes.take(slice(1, None))
    pieces = _Pieces(*(values[:0] for values in vars(nodes).values()))
    for _ in range(MANY_ROUNDS):
        pieces = _joined(line, _Pieces.stacked([pieces, *_found(line, a, b, max_boundaries, rng)]))
        a, b, t, jump, meet = _meetings(line, pieces)
        if meet.all():
            break
        a, b = a.take(~meet), b.take(~meet)  # several boundaries within a pair
    return t[meet], jump[meet]


def _found(line, a, b, max_boundaries, rng):
    """Lists of linear pieces between pairs a and b: intervals are split until they have one boundary at most."""
    found, n = [], 0
    while True:
        wide = b.x - a.y > _NARROWEST * (line.length_scale + np.minimum(np.abs(a.y), np.abs(b.x)))
        a, b = a.take(wide), b.take(wide)
        if len(a) == 0:
            return found
        pieces, left = _examined(line, a, b)
        found, n = [*found, pieces], n + len(pieces)
        a, b = a.take(left), b.take(left)
        if n + len(a) > 2 * max_boundaries:
            raise NotIdentified("activation boundaries", "crowded", f"more than {max_boundaries} boundaries on a line.")
        if len(a):
            gap = b.x - a.y
            at = np.clip(line.between(a.y, b.x, rng.uniform(*_SPLIT, len(a))), a.y + 0.1 * gap, b.x - 0.1 * gap)
            middle = line.pairs(at, _SHARE * np.minimum(at - a.y, b.x - at))
            a, b = a.joined(middle), middle.joined(b)


def _examined(line, a, b):
    """Pieces of the intervals between pairs a and b with at most one boundary, and which intervals are left (n,)."""
    gap, tol = b.x - a.y, np.maximum(line.tol(a.x), line.tol(b.y))
    blur = [tol * (2.0 + 3.0 * gap / (pair.y - pair.x)) for pair in (a, b)]
    rise, width = b.f - a.g, gap[:, None]
    # A boundary within a pair leaves the other pair's slope.
    straight = np.abs(rise - a.slopes * width).max(axis=1) <= blur[0]
    straight |= np.abs(rise - b.slopes * width).max(axis=1) <= blur[1]
    meet = meeting_point(a.y, a.g, a.slopes, b.x, b.f, b.slopes)[0]
    single = ~straight & (meet > a.y) & (meet < b.x)
    residual = np.abs(rise - a.slopes * (meet - a.y)[:, None] - b.slopes * (b.x - meet)[:, None]).max(axis=1)
    single &= residual <= 2.0 * (blur[0] + blur[1])
    i, j = np.flatnonzero(straight), np.flatnonzero(single)
    i = i[_is_chord(line, a.take(i), b.take(i), tol[i])]
    one, good = _verified(line, a.take(j), b.take(j), meet[j], [blur[0][j], blur[1][j]])
    left = np.ones(len(a), dtype=bool)
    left[i], left[j[good]] = False, False
    return _Pieces(a.y[i], a.g[i], b.x[i], b.f[i]).joined(one), left


def _is_chord(line, a, b, tol):
    """Whether the middle of the intervals between pairs lies on their chord."""
    if len(a) == 0:
        return np.zeros(0, dtype=bool)
    t = line.between(a.y, b.x, np.full(len(a), 0.45))
    share = ((t - a.y) / (b.x - a.y))[:, None]
    return np.abs(line.query(t) - (1.0 - share) * a.g - share * b.f).max(axis=1) <= VERIFIED_TOL * tol


def _verified(line, a, b, meet, blur):
    """The two pieces of intervals with one boundary near `meet` (n,), and which intervals are such (n,)."""
    if len(a) == 0:
        return _Pieces(a.x, a.f, a.y, a.g), np.zeros(0, dtype=bool)
    y, x = a.y + _NEAR * (meet - a.y), b.x - _NEAR * (b.x - meet)
    g, f = np.split(line.query(np.concatenate([y, x])), 2)
    before, after = _Pieces(a.x, a.f, y, g), _Pieces(x, f, b.y, b.g)
    good = np.abs(g - a.g - a.slopes * (y - a.y)[:, None]).max(axis=1) <= blur[0]
    good &= np.abs(b.f - f - b.slopes * (b.x - x)[:, None]).max(axis=1) <= blur[1]
    t = meeting_point(y, g, before.slopes, x, f, after.slopes)[0]
    good &= (t > y) & (t < x)
    t = np.where(good, t, meet)
    at, tol = line.query(t), VERIFIED_TOL * np.maximum(line.tol(a.x), line.tol(b.y))
    good &= np.abs(at - g - before.slopes * (t - y)[:, None]).max(axis=1) <= tol
    good &= np.abs(at - f - after.slopes * (t - x)[:, None]).max(axis=1) <= tol
    return before.take(good).joined(after.take(good)), good


def _joined(line, pieces):
    """The pieces in order, those of one line joined."""
    pieces = pieces.take(np.argsort(pieces.x, kind="stable"))
    p, q, tol, blur = _successive(line, pieces)
    same = np.abs(q.slopes - p.slopes).max(axis=1) <= _TOL * tol * (1.0 / (p.y - p.x) + 1.0 / (q.y - q.x))
    same &= np.abs(q.f - p.g - p.slopes * (q.x - p.y)[:, None]).max(axis=1) <= blur
    first, last = np.append(True, ~same), np.append(~same, True)
    return _Pieces(pieces.x[first], pieces.f[first], pieces.y[last], pieces.g[last])


def _meetings(line, pieces):
    """Successive pieces p and q, where they meet (n,), the jumps (n, m_L), and whether they do in all outputs (n,)."""
    p, q, _, blur = _successive(line, pieces)
    t, jump = meeting_point(p.y, p.g, p.slopes, q.x, q.f, q.slopes)
    meet = (t >= p.y) & (t <= q.x)
    t = np.where(meet, t, p.y)
    residual = np.abs(p.g + p.slopes * (t - p.y)[:, None] - q.f - q.slopes * (t - q.x)[:, None]).max(axis=1)
    return p, q, t, jump, meet & (residual <= blur)


def _successive(line, pieces):
    """Each piece and the next, the errors of their outputs, and those of their extensions into the gap between them."""
    p, q = pieces.take(slice(None, -1)), pieces.take(slice(1, None))
    tol, gap = np.maximum(line.tol(p.x), line.tol(q.y)), np.abs(q.x - p.y)
    return p, q, tol, 2.0 * _TOL * tol * (1.0 + gap / (p.y - p.x) + gap / (q.y - q.x))
