"""Recover the logits of a classifier with one or two hidden ReLU layers from labels.

Hypotheses of a search are composed to logits of all inputs, fitted to all boundary points and validated; wrong boundary
points start the next round. Where all units of a first of two layers are active, the model has one hidden layer.
"""

from dataclasses import dataclass, replace

import numpy as np

from skident.linalg import svd
from skident.oracle import NotIdentified

from ...constants import EXPLAINED_DISTANCE, LINES_PER_PARAMETER, MORE_POINTS
from .checks import bisected_near, wrong_boundary_points
from .first_layer import first_layer
from .logits import MAX_UNKNOWNS, NULL_TOL, Logits, null_space, refined, separating
from .missing_unit import with_missing_unit
from .search import Search
from .span import corrected, within_span
from .two_units import without_linear_part

_MANY_INPUTS = 100  # from which the search takes place within the span of the weights (queries)
_COORDINATES = 3  # at least: in them two units are recognized by normals in a plane
_MAX_ROUNDS = 40  # hypotheses that are validated (budget)
_MAX_STALE = 5  # rounds without fewer wrong boundary points, after which no more follow (budget)
_MAX_FLAT = 6  # rounds with flat facets and without a unit, after which no network explains the boundary
_ROUGH_TOL = 3e-7  # singular value of a null vector if hyperplanes are accurate to 1e-7 only
_N_LINES = 100  # held-out lines of the validation per class beyond the first
_FINAL_LINES = 600  # more lines once the first ones agree: they decide whether the network is exact (statistics)
_DEEP_LINES = 6000  # further ones of two layers (statistics: a share of 1e-3 shows with 97 %)
_FAR_SHARE = 0.5  # of the unknowns: points far from each other in the last fit, for errors below 1e-10 (tuned)
_N_LABELS = 60  # labels per class that fix the combination of null vectors
_LABEL_RADII = (1.0, 3.0)  # standard deviations of these inputs, log-uniform
_MIN_EFFECT = 1e-7  # coefficient of a unit, over the largest one, below which it has no effect
_TWINS = 1e-4  # distance of two hyperplanes (unit normals) of which one is an error of the other
_MAX_VISITED = 6  # wrong boundary points per round at which the search continues
_CROSSINGS = 8  # boundary points on random segments from which a search starts (budget)


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


def identify_logits(labels, rng, say=lambda text: None):
    """Logits of a classifier with one or two hidden ReLU layers, widths unknown; else NotIdentified."""
    search, found = Search(labels, rng, say), None
    if labels.n_features >= _MANY_INPUTS:
        span = within_span(search, _COORDINATES)
        facets = [f.within(span.basis) for f in search.facets]
        search = Search(span, rng, say, search)
        search.facets.extend(facets)
    try:
        found = _recovered(search)
        if not found.wrong:
            return found
    except NotIdentified as error:
        if error.final:
            raise
        reason = error
    try:
        deep = _recovered(Search(first_layer(search), rng, say, search, one_layer=False))
    except NotIdentified as error:
        if found is not None:
            return found
        raise error if error.reason == "scattered" else reason from None
    return deep if found is None or deep.wrong * found.checked <= found.wrong * deep.checked else found


def _recovered(search):
    """The logits of a search whose validation fails least; NotIdentified if none are worth one."""
    labels, best, shares = search.labels, None, []
    known, starts = (len(labels.classes), 0), _starts(search)
    for _ in range(_MAX_ROUNDS):
        now = len(labels.classes), len(search.units.hyperplanes)
        stuck, shares, known = now == known and len(shares) > 0, shares if now == known else [], now
        if _stale(shares):
            break
        for start in starts[:_MAX_VISITED]:
            search.visit(*start, measure=stuck)
        logits, starts = _hypothesis(search), None
        if logits is not None:
            checked, wrong, crossings, _ = wrong_boundary_points(labels, logits, _lines(labels, _N_LINES), search.rng)
            if checked and not wrong:
                logits = _without_twins(logits)
                if search.one_layer and labels.composed(logits).n_parameters > MAX_UNKNOWNS > logits.n_parameters:
                    labels.basis = corrected(labels, logits, search.rng)
                found, crossings = _completed(search, labels.composed(logits))
                best = found if best is None or found.wrong <= best.wrong else best
                if not found.wrong:
                    return found
                checked, wrong, starts = found.checked, found.wrong, labels.inward(*crossings, search.rng)
            else:
                starts = list(zip(*crossings, strict=True))
            search.say(f"{wrong} of {checked} boundary points are wrong")
            shares.append(wrong / max(checked, 1))
            search.remember([x for x, _, _ in starts], [pair for _, pair, _ in starts])
        else:
            shares.append(1.0)
            for surface in [s for s in search.surfaces if np.any(np.isnan(s.coef))]:
                search.explore(surface)
        starts = starts or search.unexplained(_crossings(search, _MAX_VISITED))
        if len(shares) >= _MAX_FLAT and not len(search.units.hyperplanes):
            search.refuse_scattered(len(search.surfaces))
    if best is None:
        raise NotIdentified(
            "boundary", "units", f"{known[1]} units with a flat hyperplane were detected and do not explain the "
            "decision boundary: the model has more hidden layers, or is no ReLU network.",
        )  # fmt: skip
    return best


def _stale(shares):
    """Whether the share of wrong boundary points has not fallen for some rounds."""
    return len(shares) > _MAX_STALE and min(shares[-_MAX_STALE:]) > 0.9 * min(shares[:-_MAX_STALE])


def _starts(search):
    """Boundary points from which the search starts, one per pair of classes met."""
    first = {}
    for x, pair, u in _crossings(search, _CROSSINGS):
        first.setdefault(frozenset(map(int, pair)), (x, pair, u))
    return list(first.values())


def _crossings(search, n):
    return list(zip(*search.cross(n), strict=True))


def _lines(labels, n):
    return n * (len(labels.classes) - 1)


def _hypothesis(search):
    """Logits that explain the surfaces so far, to be validated; None if there are none."""
    labels, H = search.labels, search.units.hyperplanes.copy()
    X, pairs = np.array(search.points), np.array(search.pairs)
    known = [s for s in search.surfaces if not np.any(np.isnan(s.coef))] if len(labels.classes) == 2 else []
    if known:
        surface = max(known, key=lambda s: sum(map(s.explains, X)))
        column = np.append(surface.coef, surface.plane)
        return refined(Logits(H, np.column_stack([np.zeros(len(column)), column])), X, pairs)[0]
    search.fill()
    X, pairs = np.array(search.points), np.array(search.pairs)
    K = max(int(pairs.max()) + 1, len(labels.classes))
    for tol in (_ROUGH_TOL, NULL_TOL):
        coef = _separating(labels, H, null_space(H, X, pairs, K, tol), search.rng)
        if coef is None:
            return None
        logits, _ = refined(Logits(H, coef), X, pairs)
        H = logits.hyperplanes
    return logits


def _separating(labels, H, N, rng, hidden=lambda U: U):
    """The combination (F, K) of null vectors that gives random inputs their labels, or None."""
    U = labels.draw(2 * _lines(labels, _N_LABELS), rng, _LABEL_RADII)
    seen = labels(U)
    return separating(H, N, hidden(U[seen >= 0]), seen[seen >= 0])


def _completed(search, logits):
    """Validated logits of inputs, with missing units of the second of two layers."""
    found, crossings = _validated(search, logits)
    while found.wrong and logits.first is not None and logits.coef.shape[1] == 2:
        logits = with_missing_unit(found.logits, crossings[0])
        more = None if logits is None else _validated(search, logits)
        if more is None or more[0].wrong >= found.wrong:
            break
        found, crossings = more
    return found, crossings


def _validated(search, logits):
    """The logits of inputs fitted to all boundary points with their validation, and points that contradict them."""
    labels, rng = search.labels.root, search.rng
    X, pairs = _overdetermined(labels, logits, search, rng)
    K = max(logits.coef.shape[1], int(pairs.max()) + 1)
    logits, residual = refined(logits, X, pairs)
    N = null_space(logits.hyperplanes, logits.hidden(X), pairs, K)
    if len(N) > 1 and (coef := _separating(labels, logits.hyperplanes, N, rng, logits.hidden)) is not None:
        logits, residual = refined(replace(logits, coef=coef), X, pairs)
    if len(logits.hyperplanes) == K == 2 and logits.first is None:
        logits = without_linear_part(logits)
    logits, used = _without_idle_units(logits)
    n = _lines(labels, _FINAL_LINES + LINES_PER_PARAMETER * logits.n_parameters)
    n += 0 if logits.first is None else _lines(labels, _DEEP_LINES)
    checked, wrong, (at, at_pairs, U), met = wrong_boundary_points(labels, logits, n, rng)
    off = rng.permutation(np.flatnonzero(logits.distances(X, pairs) > EXPLAINED_DISTANCE))
    seen = frozenset(tuple(sorted(map(int, p))) for p in pairs)
    found = Found(logits, _open(logits, N[:, used]), checked + len(off), wrong + len(off), met, residual, seen)
    i = off[:_MAX_VISITED]
    X, pairs = X[i], pairs[i]
    return found, [np.vstack(both) for both in ((at, X), (at_pairs, pairs), (U, logits.gradients(X, pairs)))]


def _without_twins(logits):
    """The logits without hyperplanes next to another one, which takes their coefficients."""
    H, coef = logits.hyperplanes, logits.coef.copy()
    for k in range(len(H) - 1, 0, -1):
        apart = np.minimum(np.abs(H[:k] - H[k]).max(axis=1), np.abs(H[:k] + H[k]).max(axis=1))
        if apart.min() < _TWINS * np.abs(H[k]).max():
            coef[np.argmin(apart)] += coef[k]
            H, coef = np.delete(H, k, axis=0), np.delete(coef, k, axis=0)
    return Logits(H, coef)


def _without_idle_units(logits):
    """The same logits without units that have no effect on any class, and the features that are left."""
    m = len(logits.hyperplanes)
    effect = np.abs(logits.coef[:m]).max(axis=1, initial=0.0)
    used = effect > _MIN_EFFECT * effect.max(initial=0.0)
    rows = np.append(used, np.ones(len(logits.coef) - m, dtype=bool))
    return replace(logits, hyperplanes=logits.hyperplanes[used], coef=logits.coef[rows]), rows


def _overdetermined(labels, logits, search, rng):
    """All boundary points, with others next to predicted ones, far from each other: they make hyperplanes precise."""
    n, (X, pairs) = logits.n_parameters, map(np.array, search.evidence())
    if n > MAX_UNKNOWNS:
        return X, pairs
    more, at = bisected_near(labels, logits, max(n + MORE_POINTS - len(X), int(_FAR_SHARE * n)), rng)
    return np.vstack([X, more]), np.vstack([pairs, at])


def _open(logits, N):
    """Orthonormal null vectors (k, F, K) orthogonal to the coefficients themselves."""
    if len(N) < 2:
        return N[:0]
    flat = N.reshape(len(N), -1)
    own = logits.coef.ravel() / np.linalg.norm(logits.coef)
    _, _, V = svd(flat - np.outer(flat @ own, own), full_matrices=False)
    return V[: len(N) - 1].reshape(len(N) - 1, *logits.coef.shape)
