"""Units located anew by where their kinks are: positions are more exact than gradients, and cost less."""

from __future__ import annotations

import numpy as np

from .units import ReLUUnits

__all__ = ["locate_units"]

_MORE = 8  # points of a hyperplane beyond its D unknowns
_TRIES = 3
_WINDOW = 3e-4  # half width in which a zero is looked for
_OUTLIER = 8.0  # accuracies by which a zero may be off the hyperplane of the others
_ROWS = 2**22  # numbers handed over at once


def locate_units(probe, units, points, rng):
    """Hyperplanes refined from zeros located on the answers, each by four of them.

    Where a hyperplane is known roughly, the answers on both sides of one of its points, two a side along the normal,
    give two straight lines that meet on it. ``D + 8`` such points, weighted by the accuracy of their answers, give the
    hyperplane by linear least squares.

    Parameters
    ----------
    probe : Probe
    units : ReLUUnits
    points : ndarray of shape (n, D)
        Around which to look; they are moved onto the hyperplanes.
    rng : numpy.random.RandomState

    Returns
    -------
    units : ReLUUnits
        Those with fewer than ``D + 2`` zeros are left as they were.
    shares : ndarray of shape (m_1,)
        Of the points with answers, how many show the kink: about 1 for a unit of a network with one hidden layer.

    Notes
    -----
    ``4 (D + 8)`` queries a unit, up to three times as many where there are few answers.
    """
    D, m = units.weights.shape
    w, b, errors, shares = units.weights.copy(), units.biases.copy(), units.errors.copy(), np.ones(m)
    size = max(1, _ROWS // (4 * (D + _MORE) * D))
    for i in range(0, m, size):
        for k, (X, s, blur, asked) in enumerate(_zeros(probe, units.take(slice(i, i + size)), points, rng), start=i):
            shares[k] = len(X) / max(asked, 1)
            if len(X) >= D + 2:
                w[:, k], b[k], errors[k] = _hyperplane(X, s, blur, w[:, k])
    return ReLUUnits(w, b, units.outgoing, errors), shares


def _zeros(probe, units, points, rng):
    """For every unit points (n, D) near it, their distances (n,) and accuracies (n,), and how many had answers."""
    D, m = units.weights.shape
    found = [[] for _ in range(m)]
    asked = np.zeros(m, dtype=int)
    for attempt in range(_TRIES):
        short = np.array(
            [k for k in range(m) if sum(len(part[0]) for part in found[k]) < D + 2 + _MORE // 2], dtype=int
        )
        if len(short) == 0:
            break
        which = np.repeat(short, D + _MORE)
        W = units.weights.T[which]
        U = points[rng.randint(len(points), size=len(which))] * rng.uniform(0.5, 1.0, (len(which), 1))
        U = U - (np.sum(U * W, axis=1) + units.biases[which])[:, None] * W
        far = 1.0 + np.linalg.norm(U, axis=1)
        h = np.maximum(_WINDOW * 0.1**attempt, 30.0 * units.errors[which] * far)
        s, blur, answered, good = _meet(probe, U, W, h, units.outgoing[which], units.errors[which])
        asked += np.bincount(which[answered], minlength=m)
        for k in short:
            mine = good & (which == k)
            found[k].append((U[mine], s[mine], blur[mine]))
    return [(*(np.concatenate(part) for part in zip(*parts, strict=True)), n) for parts, n in zip(found, asked)]


def _meet(probe, U, W, h, outgoing, errors):
    """Where the answers bend along normals (n, D) at points (n, D): distances, accuracies, and masks (n,)."""
    n = len(U)
    at = U[:, None] + (np.array([-2.0, -1.0, 1.0, 2.0]) * h[:, None])[:, :, None] * W[:, None]
    F, tol = probe.ask(at.reshape(4 * n, -1))
    F, tol = F.reshape(n, 4, -1), tol.reshape(n, 4).max(axis=1)
    answered = np.isfinite(tol)
    tol = np.where(answered, tol, 1.0)
    left, right = (F[:, 1] - F[:, 0]) / h[:, None], (F[:, 3] - F[:, 2]) / h[:, None]
    jump = right - left
    gap = F[:, 1] - F[:, 2] + (left + right) * h[:, None]
    size = np.sum(jump**2, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        s = np.sum(gap * jump, axis=1) / size
        blur = 4.0 * tol / np.sqrt(size)
    # Another unit within the window, however faint, moves the zero.
    off = np.abs(jump - outgoing).max(axis=1) - (1e-9 + 10.0 * errors) * np.abs(outgoing).max(axis=1)
    good = answered & (np.abs(s) < h) & (off <= 8.0 * tol / h)
    return s, blur, answered, good


def _hyperplane(X, s, blur, w):
    """Unit vector and bias of the plane through ``x + s w``, near w, and the accuracy of the former."""
    Z = X + s[:, None] * w
    kept = np.ones(len(Z), dtype=bool)
    frame = np.linalg.qr(np.column_stack([w, np.eye(len(w))]))[0][:, 1:]
    for _ in range(3):
        middle = np.average(Z[kept], axis=0, weights=blur[kept] ** -2.0)
        design = np.column_stack([(Z - middle) @ frame, np.ones(len(Z))])
        target = -((Z - middle) @ w)
        # (w + frame t) . (z - middle) + b = 0
        weighted = design[kept] / blur[kept, None]
        t, _, _, sizes = np.linalg.lstsq(weighted, target[kept] / blur[kept], rcond=1e-13)
        off = np.abs(design @ t - target) / blur
        usual = np.median(off)
        again = off <= _OUTLIER * max(usual, 1.0)
        if np.array_equal(again, kept) or again.sum() < len(w) + 2:
            break
        kept = again
    w = w + frame @ t[:-1]
    length = np.linalg.norm(w)
    b = (t[-1] - w @ middle) / length
    return w / length, b, max(usual, 1.0) * np.sqrt(len(w)) / max(sizes.min(), np.finfo(float).tiny)
