"""Tanh classifiers from labels: how far do flat pieces far out and curvature near by get? The library refuses them."""

from __future__ import annotations

import numpy as np

import seed_ranges
from common import format_table
from registry import part
from skident.identification.piecewise.boundary.points import bisect, orthonormal_complement

SEEDS = seed_ranges.LABELS
FIRST = 700  # seed, counted from the first of the range
SHAPES = ((4, 3), (8, 6), (8, 16))  # inputs and tanh units
RADII = (10.0, 100.0, 1000.0)  # of boundary points far out
N_FAR = 300  # segments per radius
N_NEAR = 40  # boundary points whose curvature is measured
STEP = 1e-3  # of second differences: their errors are about 1e-16 over its square
RIGHT = 1e-8  # angle between a normal and a unit's weights, in radians


@part("labels", "tanh_boundary", seeds=SEEDS)
class TanhBoundary:
    """Directions of units from normals far out; width from the rank of normals and of curvatures."""

    @staticmethod
    def run(trials, quick):
        """Measure planted networks with one output."""
        rows = []
        for D, m in SHAPES[:1] if quick else SHAPES:
            measured = [_trial(D, m, SEEDS.start + FIRST + k) for k in range(trials or 5)]
            rows.append({"name": f"{D}-{m}", "units": m, "inputs": D, "trials": measured})
        return {"rows": rows}

    @staticmethod
    def tables(result):
        """One row per shape, medians."""
        head = [
            "tanh network",
            *[f"directions at radius {r:g}" for r in RADII],
            "best angle",
            "rank",
            "error of curvature",
        ]
        return format_table(head, [_cells(row) for row in result["rows"]])


def _cells(row):
    trials = row["trials"]
    found = [f"{np.median([t['found'][k] for t in trials]):g} of {row['units']}" for k in range(len(RADII))]
    right = sum(t["rank"] == min(row["units"], row["inputs"]) for t in trials)
    errors = [t["curvature_error"] for t in trials]
    return [
        row["name"], *found, float(np.median([t["angle"] for t in trials])),
        f"min(m, D) in {right} of {len(trials)}", float(np.median(errors)),
    ]  # fmt: skip


def _trial(D, m, seed):
    rng = np.random.default_rng(seed)
    W, b, v = rng.standard_normal((m, D)) * np.sqrt(4 / D), 0.5 * rng.standard_normal(m), rng.standard_normal(m)
    threshold = np.median(np.tanh(rng.standard_normal((2000, D)) @ W.T + b) @ v)

    def labels(X):
        return (np.tanh(X @ W.T + b) @ v > threshold).astype(int)

    found, angles = [], []
    for radius in RADII:
        X, U, below = _crossings(labels, D, radius, N_FAR, rng)
        normals = [_normal(labels, x, u, low, 0.1, rng) for x, u, low in zip(X, U, below, strict=True)]
        N, directions = np.array([n for n in normals if n is not None]).reshape(-1, 1, D), W / _norms(W)
        sines = _norms(N - np.sum(N * directions, axis=2, keepdims=True) * directions)[..., 0]
        smallest = sines.min(axis=0, initial=1.0)
        found.append(int(np.sum(smallest < RIGHT)))
        angles.append(float(smallest.min()))
    rank, error = _near(labels, W, b, v, rng)
    return {"seed": seed, "found": found, "angle": min(angles), "rank": rank, "curvature_error": error}


def _norms(A):
    return np.linalg.norm(A, axis=-1, keepdims=True)


def _crossings(labels, D, radius, n, rng):
    """Boundary points on segments between random points of one norm: points, directions, labels at their starts."""
    P, Q = (radius * A / _norms(A) for A in rng.standard_normal((2, n, D)))
    p = labels(P)
    differ = p != labels(Q)
    P, Q, p = P[differ], Q[differ], p[differ]
    t, below, _ = bisect(labels, P, Q - P, 0.0, 1.0, p)
    return P + t[:, None] * (Q - P), (Q - P) / _norms(Q - P), below


def _heights(labels, x, u, below, T, size):
    """Distances along u of the boundary from x + T (k, D); None if it is not met within `size`."""
    X = x + T
    seen = labels(np.vstack([X - size * u, X + size * u])).reshape(2, -1)
    if np.any(seen[0] != below) or np.any(seen[1] == below):
        return None
    return bisect(labels, X, u, -size, size, below)[0]


def _normal(labels, x, u, below, h, rng):
    """Unit normal by central differences at distance h, twice: the second time along the first one."""
    for _ in range(2):
        E = orthonormal_complement(u, rng)
        heights = _heights(labels, x, u, below, h * np.vstack([E, -E]), 10 * h)
        if heights is None:
            return None
        up, down = np.split(heights, 2)
        u = u - ((up - down) / (2 * h)) @ E
        u /= np.linalg.norm(u)
    return u


def _near(labels, W, b, v, rng):
    """Rank of all normals, and the median relative error of a curvature along a random tangent."""
    X, U, below = _crossings(labels, W.shape[1], 2 * np.sqrt(W.shape[1]), N_NEAR, rng)
    normals, errors = [], []
    for x, u, low in zip(X, U, below, strict=True):
        n = _normal(labels, x, u, low, STEP, rng)
        if n is None:
            continue
        normals.append(n)
        e = orthonormal_complement(n, rng)[0]
        heights = _heights(labels, x, n, low, STEP * np.array([-1.0, 0.0, 1.0])[:, None] * e, STEP)
        if heights is None:
            continue
        z = np.tanh(W @ x + b)
        g, second = (v * (1 - z**2)) @ W, -2 * v * z * (1 - z**2) @ (W @ e) ** 2
        true = -second / (g @ n)
        errors.append(abs((heights[0] - 2 * heights[1] + heights[2]) / STEP**2 - true) / max(abs(true), 1e-3))
    s = np.linalg.svd(np.array(normals), compute_uv=False)
    return int(np.sum(s > 1e-4 * s[0])), float(np.median(errors))
