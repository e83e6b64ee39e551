"""Recover the logits of a classifier with one hidden ReLU layer from labels: facets, units, coefficients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import svd
from skident.oracle import NotIdentified

from ...constants import EXPLAINED_DISTANCE, LINES_AT_A_TIME, LINES_PER_PARAMETER, MORE_POINTS
from .checks import bisected_near, wrong_boundary_points
from .joint import MAX_UNKNOWNS, Logits, Precision, null_space, refined, separating
from .points import random_crossings
from .two_units import without_linear_part

__all__ = ["Found", "one_layer", "open_coefficients"]

_MAX_ROUNDS = 40  # hypotheses that are validated (budget)
_ROUGH_ROUNDS = 3  # hypotheses that are validated behind another layer, if one explains the most part (budget)
_MAX_STALE = 5  # rounds without fewer wrong boundary points, after which no more follow (budget)
_MAX_FLAT = 6  # rounds with flat facets and without a unit, after which no network explains the boundary
_ROUGH_TOL = 3e-7  # singular value of a null vector if hyperplanes are accurate to 1e-7 only
_N_LINES = 100  # held-out lines of the validation per class beyond the first
_FINAL_LINES = 600  # more lines once the first ones agree: they decide whether the network is exact (statistics)
_SPREAD_RATIO = 0.9  # points on random lines per unknown of a large network, beside those beyond units (statistics)
_BATCH = 0.2  # of the unknowns: points that are added if hyperplanes are less precise than this
# Standard error of the hyperplanes' entries; the largest of a thousand errors is 3 to 4 times it.
_POSITION_ERROR = 2e-11
_BOUNDARY_ERROR = 3e-13  # standard error of the boundary of several classes at most points, relative to 1 + |x|
_MAX_BATCHES = 20  # of points (budget)
_MAX_RATIO = 2.5  # of points over unknowns (budget)
_N_LABELS = 60  # labels per class that fix the combination of null vectors
_LABEL_RADII = (1.0, 3.0)  # standard deviations of these inputs, log-uniform
_MIN_EFFECT = 1e-7  # coefficient of a unit, over the largest one, below which it has no effect
_ROUGH = 1e-6  # `EXPLAINED_DISTANCE` distance up to which the logits are inaccurate and no unit is missing
_MAX_VISITED = 6  # wrong boundary points per round at which the search continues


@dataclass(frozen=True)
class Found:
    """Logits, null vectors beyond them (k, F, K), and the validation: checked, wrong, pairs of classes, residual."""

    logits: Logits
    open_coef: np.ndarray
    checked: int
    wrong: int
    pairs: list
    residual: float
    pairs_seen: frozenset = frozenset()  # pairs of classes at all boundary points of the search


def _solve(search, rough=None, far=None):
    """Logits of the units so far, open null vectors and residual; None if they do not explain the boundary points.

    `rough` logits of a large network are refined at the boundary points `far` on random lines: its hyperplanes are too
    inaccurate for null vectors, and points close together make the fit without its matrix slow.
    """
    X, pairs, H = np.array(search.points), np.array(search.pairs), search.units.hyperplanes
    K = max(int(pairs.max()) + 1, len(search.labels.classes))
    U = search.labels.draw(2 * _N_LABELS * (K - 1), search.rng, _LABEL_RADII)
    seen = search.labels(U)
    U, seen = U[seen >= 0], seen[seen >= 0]
    K = max(K, len(search.labels.classes))
    large = far is not None and K == 2
    if not large:
        N, _ = null_space(H, X, pairs, K, _ROUGH_TOL)
        coef = separating(H, N, U, seen) if len(N) else None
        if coef is None:
            return None
        rough = Logits(H, coef)
    logits, residual = refined(rough, *(far if large else (X, pairs)))
    N, _ = null_space(logits.hyperplanes, X, pairs, K)
    coef = separating(logits.hyperplanes, N, U, seen) if len(N) else None
    if coef is None:
        return None
    if not large:
        logits, residual = refined(Logits(logits.hyperplanes, coef), X, pairs)
    if len(logits.hyperplanes) == K == 2:
        logits = without_linear_part(logits)
    return logits, N, residual


def _logits_of_surface(search):
    """Logits of two classes from a surface on which all coefficients are known, or None."""
    for surface in search.surfaces:
        if not np.any(np.isnan(surface.coef)):
            column = np.append(surface.coef, surface.plane)
            coef = np.zeros((len(column), 2))
            coef[:, 1] = column if surface.pair[0] == 1 else -column
            return Logits(search.units.hyperplanes.copy(), coef)
    return None


def _hypothesis(search):
    """Logits that explain the surfaces so far, to be validated; None if there are none."""
    if len(search.labels.classes) == 2 and (logits := _logits_of_surface(search)) is not None:
        return logits
    search.fill()
    solved = _solve(search)
    return None if solved is None else solved[0]


def one_layer(search, starts=None, first_layer=True):
    """Logits with one hidden layer, continuing a search at boundary points `starts`; NotIdentified if none fit.

    Behind another layer, where whole networks are validated and completed, a rough fit is enough.
    """
    labels, rng, say, best, shares = search.labels, search.rng, search.say, None, []
    units, known = len(search.units.hyperplanes), len(labels.classes)
    starts = _starts(search) if starts is None else starts
    while len(shares) < _MAX_ROUNDS and not _stale(shares):
        if not first_layer and best is not None and len(shares) >= _ROUGH_ROUNDS:
            break
        stuck, units = len(search.units.hyperplanes) == units and len(shares) > 0, len(search.units.hyperplanes)
        for start in starts[:_MAX_VISITED]:
            search.visit(*start, measure=stuck)
        starts = _starts(search)
        logits = _hypothesis(search)
        if logits is None:
            shares.append(1.0)
            starts = search.unexplained(_crossings(search, _MAX_VISITED))
            continue
        checked, wrong, (X, pairs, U), _ = wrong_boundary_points(labels, logits, _lines(labels, _N_LINES), rng)
        near = wrong and len(X) == wrong and _inaccurate(logits, X, pairs)
        if checked and (not wrong or near):
            found, (X, pairs, U) = _final(search, logits, first_layer)
            best = found if best is None or (found is not None and found.wrong <= best.wrong) else best
            if found is not None and found.checked and (not found.wrong or not first_layer):
                return _without_idle_units(found)
            if found is None:
                (X, pairs, U), checked, wrong = _contradicting(search, logits), 1, 1
            else:
                checked, wrong = found.checked, found.wrong
        if not first_layer and (best is None or best.wrong * checked >= wrong * best.checked):
            best = Found(logits, np.zeros((0, *logits.coef.shape)), checked, wrong, [], np.inf)
        say(f"{wrong} of {checked} boundary points are wrong")
        shares.append(wrong / max(checked, 1))
        if len(labels.classes) > known:  # a class met late: earlier rounds knew less
            shares, known = [], len(labels.classes)
        if len(shares) >= _MAX_FLAT and not len(search.units.hyperplanes):
            search.refuse_scattered(len(search.surfaces))
        search.remember(X, pairs)
        if len(X):
            starts = list(zip(X, pairs, U, strict=True))
    return best if best is not None else _refuse(search)


def _inaccurate(logits, X, pairs):
    """Whether wrong boundary points are so near the predicted ones that only accuracy is missing."""
    return pairs.max() < logits.coef.shape[1] and logits.distances(X, pairs).max() < _ROUGH


def _refuse(search):
    raise NotIdentified(
        "boundary", "units", f"{len(search.units.hyperplanes)} units with a flat hyperplane were detected and do "
        "not explain the decision boundary: the model has more hidden layers, or is no ReLU network.",
    )  # fmt: skip


def _contradicting(search, logits):
    """Boundary points of the search that the logits do not explain: points, pairs, directions."""
    X, pairs = np.array(search.points), np.array(search.pairs)
    i = search.rng.permutation(np.flatnonzero(logits.distances(X, pairs) > EXPLAINED_DISTANCE))[:_MAX_VISITED]
    return X[i], pairs[i], logits.gradients(X[i], pairs[i])


def _stale(shares):
    """Whether the share of wrong boundary points has not fallen for some rounds."""
    return len(shares) > _MAX_STALE and min(shares[-_MAX_STALE:]) > 0.9 * min(shares[:-_MAX_STALE])


def _starts(search):
    """Boundary points from which the search starts, one per pair of classes met."""
    first = {}
    for x, pair, u in _crossings(search, 8):
        first.setdefault(frozenset(map(int, pair)), (x, pair, u))
    return list(first.values())


def _crossings(search, n):
    X, pairs, U = random_crossings(search.labels, n, search.rng)
    search.remember(X, pairs)
    return list(zip(X, pairs, U, strict=True))


def _lines(labels, n):
    return n * (len(labels.classes) - 1)


def _overdetermined(search, logits):
    """Bisect predicted boundary points until the logits' unknowns, a network's hyperplanes, are precise.

    The points of large networks are returned, (X, pairs), else None.
    """
    n = logits.hyperplanes.size + logits.coef[:, 1:].size
    if n > MAX_UNKNOWNS:
        return _spread(search, logits, int(_SPREAD_RATIO * n))
    precision = Precision(logits)
    precision.add(np.array(search.points), np.array(search.pairs))
    wanted = max(n + MORE_POINTS, len(search.points))
    scaled = len(logits.hyperplanes) == logits.coef.shape[1] == 2  # two units, see `without_linear_part`
    several = logits.coef.shape[1] > 2  # few points may determine the coefficients of a class
    off = np.inf if several else 0.0
    for _ in range(1 if scaled else _MAX_BATCHES):
        if wanted > len(search.points):
            X, pairs = bisected_near(search.labels, logits, wanted - len(search.points), search.rng)
            search.remember(X, pairs)
            if len(X):
                errors = precision.add(X, pairs)
                off = errors if several else 0.0
        accurate = precision.error < _POSITION_ERROR and off < _BOUNDARY_ERROR
        if accurate or len(search.points) > _MAX_RATIO * n:
            return None
        wanted = len(search.points) + int(_BATCH * n) + 1
    return None


def _spread(search, logits, n):
    """Boundary points that lie far apart, and their pairs: n next to the predicted ones on random lines, and others."""
    first = len(search.points)
    while (left := n - len(search.points) + first) > 0:
        X, pairs = bisected_near(search.labels, logits, min(2 * left, LINES_AT_A_TIME), search.rng)
        if not len(X):
            break
        search.remember(X[:left], pairs[:left])
    far = [*search.far, *range(first, len(search.points))]
    return np.array(search.points)[far], np.array(search.pairs)[far]


def _without_twins(search, logits):
    """The logits without hyperplanes next to another one, which are left out of the search, too.

    An inaccurate unit that is recovered again would take a part of the other one's coefficient.
    """
    H, coef, units = logits.hyperplanes, logits.coef.copy(), search.units
    for j, k in units.twins():
        for surface in search.surfaces:
            surface.drop(j, k)
        units.hyperplanes = np.delete(units.hyperplanes, k, axis=0)
        coef[j] += coef[k]
        H, coef = np.delete(H, k, axis=0), np.delete(coef, k, axis=0)
    return Logits(H, coef)


def _final(search, logits, many):
    """The logits fitted to all boundary points with their validation, and wrong boundary points."""
    labels, logits = search.labels, _without_twins(search, logits)
    far = _overdetermined(search, logits)
    solved = _solve(search, logits, far)
    if solved is None:
        return None, (np.zeros((0, labels.n_features)), [], [])
    logits, N, residual = solved
    n = _lines(labels, _FINAL_LINES + LINES_PER_PARAMETER * logits.hyperplanes.size if many else _N_LINES)
    checked, wrong, crossings, pairs = wrong_boundary_points(labels, logits, n, search.rng)
    met = frozenset(tuple(sorted(map(int, p))) for p in search.pairs)
    return Found(logits, open_coefficients(logits, N), checked, wrong, pairs, residual, met), crossings


def open_coefficients(logits, N):
    """Orthonormal null vectors (k, F, K) orthogonal to the coefficients themselves."""
    if len(N) < 2:
        return N[:0]
    flat = N.reshape(len(N), -1)
    own = logits.coef.ravel() / np.linalg.norm(logits.coef)
    _, _, V = svd(flat - np.outer(flat @ own, own), full_matrices=False)
    return V[: len(N) - 1].reshape(len(N) - 1, *logits.coef.shape)


def _without_idle_units(found):
    """The same logits without units that have no effect on any class."""
    m = len(found.logits.hyperplanes)
    effect = np.abs(found.logits.coef[:m]).max(axis=1, initial=0.0)
    used = effect > _MIN_EFFECT * effect.max(initial=0.0)
    if np.all(used):
        return found
    rows = np.append(used, np.ones(len(found.logits.coef) - m, dtype=bool))
    logits = Logits(found.logits.hyperplanes[used], found.logits.coef[rows])
    return replace(found, logits=logits, open_coef=found.open_coef[:, rows])
