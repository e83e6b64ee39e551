"""Validation at the boundary: two labels at both sides of predicted boundary points on held-out lines."""

import numpy as np

from ...constants import LABEL_OFFSET, LINES_AT_A_TIME
from .points import bisect, sizes

_CHUNK = 10_000  # recorded labels that are compared at a time (memory)
_N_GRID = 65  # predicted labels per line
_MAX_BISECTED = 60  # wrong boundary points whose lines are searched for the true ones (budget)
_COARSE_GRID = np.linspace(0, 1, 9)  # of a line, at which labels are queried if its predicted boundary point is wrong
_RADII = (0.5, 10.0)  # standard deviations of the lines' ends, log-uniform
_WIDER = (1.0, 30.0, 30.0)  # factors of that offset, one after the other, until both labels are as predicted
_CLEAR_GAP = 3e-10  # lead of a logit, over (1 + |x|) times the usual lead, from which the label is certain
_N_USUAL = 500  # inputs N(0, I) whose median lead is the usual one


def contradicting_labels(labels, logits):
    """How many labels of all recorded queries the network contradicts, away from its boundary, and their number.

    Labels that are wrong with a small probability do not disturb the search, whose steps repeat; they show here.
    """
    U, seen = labels.recorded()
    count = total = 0
    Z = logits(np.random.RandomState(0).standard_normal((_N_USUAL, U.shape[1])))
    usual = np.median(np.ptp(Z, axis=1))
    for part in np.array_split(np.arange(len(U)), max(1, len(U) // _CHUNK)):
        values = np.sort(Z := logits(U[part]), axis=1)
        gap = values[:, -1] - values[:, -2]
        clear = gap > _CLEAR_GAP * usual * sizes(U[part])
        count += int(np.sum(clear & (np.argmax(Z, axis=1) != seen[part])))
        total += int(clear.sum())
    return count, total


def _predicted_lines(labels, logits, n, rng):
    """Predicted boundary points P + t U on at most n random lines: P, U, t, half the bracket, grid ends, labels."""
    ends = labels.draw(2 * n, rng, _RADII)
    P, U = ends[::2], ends[1::2] - ends[::2]
    t = np.linspace(0, 1, _N_GRID)
    predicted = np.stack([logits.predict(P + s * U) for s in t], axis=1)
    changes = [np.flatnonzero(row[1:] != row[:-1]) for row in predicted]
    at = np.array([rng.choice(c) if len(c) else -1 for c in changes])
    P, U, predicted, at = P[at >= 0], U[at >= 0], predicted[at >= 0], at[at >= 0]
    middle, below, above = bisect(logits.predict, P, U, t[at], t[at + 1], predicted[np.arange(len(P)), at])
    step = LABEL_OFFSET * sizes(P + middle[:, None] * U) / np.maximum(np.linalg.norm(U, axis=1), 1e-300)
    return P, U, middle, step, np.column_stack([t[at], t[at + 1]]), np.column_stack([below, above])


def predicted_points(labels, logits, n, rng):
    """Boundary points (k, D) that the logits predict on at most n lines, and their pairs."""
    P, U, t, _, _, pair = _predicted_lines(labels, logits, n, rng)
    return P + t[:, None] * U, pair[:, ::-1].astype(int)


def bisected_near(labels, logits, n, rng):
    """True boundary points (k, D) next to those that the logits predict on n lines, and their pairs; k <= n.

    A point costs half the queries of one on a random segment.
    """
    P, U, t, step, _, pair = _predicted_lines(labels, logits, n, rng)
    open_ = np.ones(len(P), dtype=bool)
    for factor in _WIDER if len(P) else ():
        i = np.flatnonzero(open_)
        step[i] *= factor
        seen = np.stack([labels(P[i] + (t + s * step)[i, None] * U[i]) for s in (-1, 1)], axis=1)
        open_[i] = np.any(seen != pair[i], axis=1)
    P, U, t, step, pair = P[~open_], U[~open_], t[~open_], step[~open_], pair[~open_]
    t, _, above = bisect(labels, P, U, t - step, t + step, pair[:, 0])
    two = above == pair[:, 1]
    return (P + t[:, None] * U)[two], pair[two][:, ::-1]


def wrong_boundary_points(labels, logits, n, rng):
    """Check predicted boundary points on n lines: number checked, wrong, crossings (X, pairs, U), pairs."""
    parts = [
        _wrong_on_lines(labels, logits, min(n - first, LINES_AT_A_TIME), rng) for first in range(0, n, LINES_AT_A_TIME)
    ]
    checked, wrong, crossings, pairs = zip(*parts, strict=True)
    X, at, U = (np.concatenate(columns)[:_MAX_BISECTED] for columns in zip(*crossings, strict=True))
    return sum(checked), sum(wrong), (X, at, U), sorted(set().union(*pairs))


def _wrong_on_lines(labels, logits, n, rng):
    P, U, middle, step, grid, pair = _predicted_lines(labels, logits, n, rng)
    below, above = pair.T
    if not len(P):
        return 0, 0, (np.zeros((0, P.shape[1])), np.zeros((0, 2), dtype=int), P), []
    seen = np.stack([labels(P + (middle + s * step)[:, None] * U) for s in (-1, 1)])
    inside = np.all(seen >= 0, axis=0)
    bad = np.flatnonzero(inside & ((seen[0] != below) | (seen[1] != above)))
    places = np.column_stack([grid[:, 0], middle - step, middle + step, grid[:, 1]])
    some = rng.permutation(bad)[:_MAX_BISECTED]
    crossings = _crossings(labels, P[some], U[some], places[some])
    pairs = sorted({tuple(sorted(map(int, p))) for p in zip(below[inside], above[inside], strict=True)})
    return int(inside.sum()), len(bad), crossings, pairs


def _crossings(labels, P, U, places):
    """True boundary points on lines P + t U nearest to the predicted ones in `places` (k, 4), where labels differ."""
    grid = np.tile(_COARSE_GRID, (len(P), 1))
    s, middle = np.sort(np.hstack([places, grid]), axis=1), (places[:, 1] + places[:, 2]) / 2
    seen = labels((P[:, None] + s[:, :, None] * U[:, None]).reshape(-1, P.shape[1])).reshape(s.shape)
    changes = (seen[:, 1:] != seen[:, :-1]) & (seen[:, 1:] >= 0) & (seen[:, :-1] >= 0)
    apart = np.where(changes, np.abs(s[:, 1:] + s[:, :-1] - 2 * middle[:, None]), np.inf)
    i = np.flatnonzero(np.any(changes, axis=1))
    k = np.argmin(apart[i], axis=1) if len(i) else i
    t, below, above = bisect(labels, P[i], U[i], s[i, k], s[i, k + 1], seen[i, k])
    return P[i] + t[:, None] * U[i], np.column_stack([above, below]).astype(int), U[i]
