"""Points on a decision boundary: batched bisection between inputs with different labels."""

import numpy as np

from skident.linalg import lapack

_BISECTION_TOL = 4e-16  # relative to 1 + |x|: two roundings of float64
_MAX_STEPS = 1100  # halvings of a float64 interval at most
_FEW = 4  # points whose intervals are cut into `PARTS` (budget of calls against labels)
PARTS = 4  # of the interval around few points, per call
_RADII = (0.5, 4.0)  # standard deviations of random segments' ends, log-uniform (tuned on planted networks)
_MAX_DRAWS = 60  # draws of segments before the labels count as constant (budget)


def sizes(X):
    """1 + |x| of every row."""
    return 1.0 + np.linalg.norm(X, axis=1)


def orthonormal_complement(u, rng):
    """Random orthonormal rows (D - 1, D) orthogonal to u (D,)."""
    A = rng.standard_normal((len(u), len(u) - 1))
    return lapack.qr(np.column_stack([u, A]))[0][:, 1:].T


def bisect(labels, X, U, low, high, below, tol=None):
    """Bisect X + t U (n, D) between `low`, where the label is `below`, and `high`; t and the labels on both sides.

    Intervals of few points are cut into more parts per call: half the calls of the model for half as many labels more.
    """
    n = len(X)
    U = np.broadcast_to(U, X.shape)
    low, high = (np.array(np.broadcast_to(t, n), dtype=float) for t in (low, high))
    below = np.array(np.broadcast_to(below, n))
    above = below.copy()
    tol = np.broadcast_to(_BISECTION_TOL * sizes(X) / np.linalg.norm(U, axis=1) if tol is None else tol, n)
    for _ in range(_MAX_STEPS):
        middle = (low + high) / 2
        active = np.flatnonzero((np.abs(high - low) > tol) & (middle != low) & (middle != high))
        if not len(active):
            break
        parts = PARTS if len(active) <= _FEW else 2
        T = np.linspace(low[active], high[active], parts + 1, axis=1)
        inside = X[active, None] + T[:, 1:-1, None] * U[active, None]
        seen = labels(inside.reshape(-1, X.shape[1])).reshape(len(active), -1)
        other = np.column_stack([seen != below[active, None], np.ones(len(active), dtype=bool)])
        first, rows = np.argmax(other, axis=1), np.arange(len(active))
        above[active] = np.column_stack([seen, above[active]])[rows, first]
        low[active], high[active] = T[rows, first], T[rows, first + 1]
    return (low + high) / 2, below, above


def bracket(labels, X, u, size, pair):
    """Whether the labels change from pair[1] at X - size u to pair[0] at X + size u, a boolean per row of X."""
    step = np.reshape(size, (-1, 1)) * u
    seen = labels(np.vstack([X + step, X - step]))
    return (seen[: len(X)] == pair[0]) & (seen[len(X) :] == pair[1])


def random_crossings(labels, n, rng, start=None):
    """Boundary points on random segments: points (k, D), the pairs of labels (k, 2), directions; k may be below n."""
    X, pairs, U = [], [], []
    for _ in range(_MAX_DRAWS):
        if len(X) >= n:
            break
        ends = labels.draw(2 * max(2 * n, 16), rng, _RADII)
        P, Q = ends[::2], ends[1::2]
        p, q = labels(P), labels(Q)
        if start is not None and np.any(p == start):
            P, Q, p, q = (A[p == start] for A in (P, Q, p, q))
        i = np.flatnonzero(p != q)[: n - len(X)]
        if not len(i):
            continue
        t, below, above = bisect(labels, P[i], Q[i] - P[i], 0.0, 1.0, p[i])
        X.extend(P[i] + t[:, None] * (Q[i] - P[i]))
        pairs.extend(zip(above, below, strict=True))
        U.extend(Q[i] - P[i])
    return np.array(X), np.array(pairs, dtype=int).reshape(-1, 2), np.array(U)
