"""All kinks of the answers along many lines at once, and the normals of the hyperplanes they belong to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget import chunks

from .normals import normals_from_positions
from .robust_fit import NOISY
from .tables import Rows

__all__ = ["KinkSet", "Segments", "kinks_on_segments", "normals_at"]

_STRAIGHT = 6.0  # roundings that a second difference of a straight stretch shows at most
_CLEAR = 30.0  # roundings that a kink must move the answers by on its stretch
_VERIFIED = 24.0  # roundings up to which answers follow two straight pieces
_NARROW = 1e-9  # stretches narrower than this, relative to the line's length, are left
_BLIND = 1e-3  # and partly blind ones than this
_WIDEST, _STEPS, _SHRINK = 1e-2, 4, 0.1  # steps of gradients: the first at most, how many, and the ratio of two
_WIDEST_NOISY, _STEPS_NOISY, _SHRINK_NOISY = 0.2, 7, 0.4  # the same where answers are noisy
_RANK_ONE = 1e-6
_COPIES = 4  # of a chunk of points: steps, points, and both as one table
_ACCURATE, _ROUGH = 1e-2, 0.3  # largest error of a normal, and of one from which positions nearby are predicted


@dataclass(frozen=True)
class Segments:
    """Lines ``origin + t direction`` with ``low <= t <= high``.

    Attributes
    ----------
    origins, directions : ndarray of shape (n, D)
        The directions have norm 1.
    low, high : ndarray of shape (n,)
    """

    origins: np.ndarray
    directions: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def at(self, line, t):
        """Points of lines.

        Parameters
        ----------
        line : ndarray of int, shape (k,)
        t : ndarray of shape (k,) or (k, q)

        Returns
        -------
        ndarray of shape (k, D) or (k, q, D)
        """
        if t.ndim == 1:
            return self.origins[line] + t[:, None] * self.directions[line]
        return self.origins[line][:, None] + t[:, :, None] * self.directions[line][:, None]


@dataclass(frozen=True)
class KinkSet(Rows):
    """Kinks of the answers.

    Attributes
    ----------
    points, normals : ndarray of shape (k, D)
        The normals have norm 1.
    errors : ndarray of shape (k,)
        Accuracy of the normals.
    """

    points: np.ndarray
    normals: np.ndarray
    errors: np.ndarray


@dataclass
class _Stretches(Rows):
    """Parts of lines: which line (n,), ends a, b (n,), answers there (n, m_L) and their accuracies (n,)."""

    line: np.ndarray
    a: np.ndarray
    b: np.ndarray
    fa: np.ndarray
    fb: np.ndarray
    ta: np.ndarray
    tb: np.ndarray


def kinks_on_segments(answers, segments, rng, *, n_intervals=1, max_queries=200_000):
    """All kinks of a continuous piecewise linear function on lines.

    Parameters
    ----------
    answers : Answers
    segments : Segments
    rng : numpy.random.RandomState
    n_intervals : int, default=1
        Parts that every line is cut into at first; a narrow bump between two of their points is not seen.
    max_queries : int, default=200000
        At which the search ends with what it has.

    Returns
    -------
    line : ndarray of int, shape (k,)
    t : ndarray of shape (k,)
        In order of lines and positions.

    Raises
    ------
    BlackBoxError
        If the black box fails.

    Notes
    -----
    A stretch is straight if five points of it are; it has one kink if the pieces at its ends meet inside, on the
    answers; else it is cut in two. Four queries a stretch, two more a kink. Stretches of which some answers are lost
    are cut too, and what is lost on both sides is left out.
    """
    stretches = _first_stretches(answers, segments, n_intervals, rng)
    lines, positions, budget = [], [], answers.oracle.n_queries + max_queries
    span = segments.high - segments.low
    while len(stretches.line) and answers.oracle.n_queries < budget:
        width = stretches.b - stretches.a
        q = 0.25 * width
        inner, ti = _ask_lines(answers, segments, stretches.line, stretches.a[:, None] + np.arange(1, 4) * q[:, None])
        F = np.concatenate([stretches.fa[:, None], inner, stretches.fb[:, None]], axis=1)
        tols = np.column_stack([stretches.ta, ti, stretches.tb])
        tol, clear = tols.max(axis=1), np.isfinite(tols)
        sag = np.abs(np.stack([F[:, i] - 2.0 * F[:, j] + F[:, k] for i, j, k in _TRIPLES])).max(axis=(0, 2))
        partly = ~clear.all(axis=1) & clear.any(axis=1) & (width > _BLIND * span[stretches.line])
        bent = (clear.all(axis=1) & (sag > _STRAIGHT * tol)) | partly
        stretches, F, tol, q = stretches.take(bent), F[bent], tol[bent], q[bent]
        t, single = _single_kinks(answers, segments, stretches, F, tol, q)
        lines.append(stretches.line[single])
        positions.append(t[single])
        rest = stretches.take(~single)
        rest = rest.take(rest.b - rest.a > _NARROW * span[rest.line])
        stretches = _cut(answers, segments, rest, rng)
    line, t = np.concatenate(lines or [np.zeros(0, int)]), np.concatenate(positions or [np.zeros(0)])
    order = np.lexsort((t, line))
    return line[order], t[order]


_TRIPLES = ((0, 1, 2), (1, 2, 3), (2, 3, 4), (0, 2, 4))


def _ask_lines(answers, segments, line, t):
    """Answers (k, q, m_L) and accuracies (k, q) at positions t (k, q) of lines, in chunks of lines."""
    some = chunks(len(line), _COPIES * 8 * t.shape[1] * answers.n_inputs)
    parts = [answers.query_block(segments.at(line[i], t[i])) for i in some]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _first_stretches(answers, segments, n_intervals, rng):
    """Every line in n parts of nearly equal lengths."""
    n, span = len(segments.low), (segments.high - segments.low)[:, None]
    ends = segments.low[:, None] + span * np.arange(n_intervals + 1) / n_intervals
    ends[:, 1:-1] += span / n_intervals * rng.uniform(-0.2, 0.2, (n, n_intervals - 1))
    F, tol = _ask_lines(answers, segments, np.arange(n), ends)
    line = np.repeat(np.arange(n), n_intervals)
    m = F.shape[2]
    return _Stretches(
        line,
        ends[:, :-1].ravel(),
        ends[:, 1:].ravel(),
        F[:, :-1].reshape(-1, m),
        F[:, 1:].reshape(-1, m),
        tol[:, :-1].ravel(),
        tol[:, 1:].ravel(),
    )


def _single_kinks(answers, segments, stretches, F, tol, q):
    """Where the end pieces of stretches meet, and which stretches have that kink and no other."""
    with np.errstate(divide="ignore", invalid="ignore"):
        left, right = (F[:, 1] - F[:, 0]) / q[:, None], (F[:, 4] - F[:, 3]) / q[:, None]
        jump = right - left
        size = np.sum(jump**2, axis=1)
        t = stretches.a - np.sum(jump * (F[:, 4] - F[:, 0] - right * (4.0 * q)[:, None]), axis=1) / size
        single = np.isfinite(tol) & (np.sqrt(size) * q > _CLEAR * tol)
        # A kink inside an end piece would make the two meet where that ends.
        single &= (t > stretches.a + 1.05 * q) & (t < stretches.b - 1.05 * q)
    i = np.flatnonzero(single)
    if len(i) == 0:
        return t, single
    a, b, ti = stretches.a[i], stretches.b[i], t[i]
    # Right beside the vertex: between there and the ends that tell the slopes, nothing can bend and come back.
    beside = np.maximum(1e-3 * np.minimum(ti - a, b - ti), 20.0 * tol[i] / np.sqrt(size[i]))
    T = np.column_stack([ti - beside, ti + beside])
    G, tg = answers.query_block(segments.at(stretches.line[i], T))
    T = np.column_stack([T, 0.5 * (a + b)])
    G = np.concatenate([G, F[i][:, 2:3]], axis=1)
    vertex = F[i, 0] + left[i] * (ti - a)[:, None]
    slopes = np.where((T < ti[:, None])[:, :, None], left[i][:, None], right[i][:, None])
    expected = vertex[:, None] + slopes * (T - ti[:, None])[:, :, None]
    slack = np.maximum(tol[i], tg.max(axis=1))
    single[i] = np.abs(expected - G).max(axis=(1, 2)) < _VERIFIED * slack
    return t, single


def _cut(answers, segments, s, rng):
    """Every stretch in two."""
    if len(s.line) == 0:
        return s
    c = s.a + rng.uniform(0.42, 0.58, len(s.a)) * (s.b - s.a)
    fc, tc = answers.ask(segments.at(s.line, c))
    return _Stretches(s.line, s.a, c, s.fa, fc, s.ta, tc).joined(_Stretches(s.line, c, s.b, fc, s.fb, tc, s.tb))


def normals_at(answers, points, directions, rooms, rng):
    """Normals of the hyperplanes along which the answers bend, from the gradients on both sides.

    Parameters
    ----------
    answers : Answers
    points : ndarray of shape (n, D)
        Kinks.
    directions : ndarray of shape (n, D)
        Unit vectors along which they are crossed.
    rooms : ndarray of shape (n,)
        Distances along these up to which there is no other kink.
    rng : numpy.random.RandomState

    Returns
    -------
    KinkSet
        Of those whose jump is of rank one, in their order.
    kept : ndarray of int
        Which these are.

    Raises
    ------
    BlackBoxError
        If the black box fails.

    Notes
    -----
    ``2 D + 4`` queries a kink: forward differences of a straight piece are exact, one more point tells whether it is
    straight. Where it is not, a tenth of the step is tried, three times.
    """
    n, D = points.shape
    N, errors = np.zeros((n, D)), np.full(n, np.inf)
    noisy = answers.resolution > NOISY
    widest, steps, shrink = (_WIDEST_NOISY, _STEPS_NOISY, _SHRINK_NOISY) if noisy else (_WIDEST, _STEPS, _SHRINK)
    h = np.minimum(widest, 0.12 * rooms / np.sqrt(D))
    todo = np.arange(n)
    for _ in range(steps):
        if len(todo) == 0:
            break
        normals, error, good = _normals(answers, points[todo], directions[todo], h[todo], rng)
        good &= error < (_ROUGH if noisy else _ACCURATE)
        N[todo[good]], errors[todo[good]] = normals[good], error[good]
        todo = todo[~good]
        h[todo] *= shrink
    if noisy:
        i = np.flatnonzero(np.isfinite(errors))
        N[i], errors[i] = normals_from_positions(answers, points[i], N[i], errors[i], rooms[i], rng)
    kept = np.flatnonzero(errors < _ACCURATE)
    return KinkSet(points[kept], N[kept], errors[kept]), kept


def _normals(answers, points, directions, h, rng):
    """Normals (n, D) of kinks, their errors (n,), and where the jump has rank one; gradients of few kinks at a time."""
    n, D = points.shape
    checks = [_unit_rows(rng.standard_normal((n, D))) for _ in range(2)]
    some = chunks(n, _COPIES * 8 * (D + 2) * D)
    parts = [_few_normals(answers, points[i], directions[i], h[i], [check[i] for check in checks]) for i in some]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _few_normals(answers, points, directions, h, checks):
    away, root = (2.2 * np.sqrt(points.shape[1]) * h)[:, None] * directions, np.sqrt(points.shape[1])
    after, ok_after, e1 = _gradients(answers, points + away, h, checks[0])
    before, ok_before, e2 = _gradients(answers, points - away, h, checks[1])
    s, Vt = np.linalg.svd(after - before, full_matrices=False)[1:]
    good = ok_after & ok_before
    with np.errstate(divide="ignore", invalid="ignore"):  # errors are infinite where outputs are lost
        error = (e1 + e2) * root / s[:, 0]
        if s.shape[1] > 1:
            good &= s[:, 1] < (_RANK_ONE + 20.0 * error) * s[:, 0]
    return Vt[:, 0], error, good


def _unit_rows(V):
    return V / np.linalg.norm(V, axis=1, keepdims=True)


def _gradients(answers, X, h, check):
    """Gradients (n, m_L, D) at points (n, D) with steps h (n,), whether the answers are straight, and their errors.

    That is tried along unit vectors `check` (n, D).
    """
    n, D = X.shape
    steps = np.concatenate([np.zeros((n, 1, D)), np.broadcast_to(np.eye(D), (n, D, D)), check[:, None]], axis=1)
    F, tol = answers.query_block(X[:, None] + h[:, None, None] * steps)
    tol = tol.max(axis=1)
    rise = F[:, 1 : D + 1] - F[:, :1]
    bend = np.abs(F[:, D + 1] - F[:, 0] - np.einsum("nd,ndm->nm", check, rise)).max(axis=1)
    with np.errstate(invalid="ignore"):
        straight = bend < 4.0 * (1.0 + np.sqrt(D)) * tol
    return np.swapaxes(rise, 1, 2) / h[:, None, None], straight & np.isfinite(tol), tol / h
