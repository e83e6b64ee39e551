"""Recover the logits of a classifier with one hidden ReLU layer from labels: facets, units, coefficients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.oracle import NotIdentified

from .checks import wrong_boundary_points
from .facets import find_facet
from .joint import Logits, null_space, refined, separating
from .points import random_crossings
from .units import Units
from .walks import walk

__all__ = ["Found", "identify_logits"]

_CLEAN_WALKS = 24  # in a row without an unknown bend, after which the coefficients are tried
_MAX_WALKS = 60  # from one base until then
_MAX_BASES = 40  # facets from which walks start (budget)
_MAX_CROSSINGS = 8  # known hyperplanes that a facet's plane may have crossed since it was measured
_ROUGH_TOL = 3e-7  # singular value of a null vector if hyperplanes are accurate to 1e-7 only
_N_LINES = 400  # held-out lines of the validation per class beyond the first
_FINAL_FACTOR = 4  # more lines once the first ones agree: they decide whether the network is exact (statistics)
_N_LABELS = 60  # labels per class that fix the combination of null vectors
_MIN_EFFECT = 1e-7  # coefficient of a unit, over the largest one, below which it has no effect
_MIN_TREE = 4  # axis-parallel normals, and none else, after which the model is a tree
_MAX_CURVED = 6  # boundary points without a flat facet, and none with one, after which the boundary is curved


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


class _Search:
    """Facets, units and boundary points found so far."""

    def __init__(self, labels, rng, say):
        self.labels, self.rng, self.say = labels, rng, say
        self.units, self.points, self.pairs = Units(labels.n_features), [], []
        self.normals, self.curved, self.random = [], 0, 0

    def remember(self, X, pairs):
        """Keep boundary points."""
        self.points.extend(X)
        self.pairs.extend(map(tuple, pairs))

    def base(self, x, pair, u):
        """Walk from the facet at x until no unknown bend appears."""
        facet = find_facet(self.labels, x, u, tuple(pair), self.rng)
        if facet is None:
            self._refuse_curved()
            return
        self.normals.append(facet.normal)
        self._refuse_tree()
        self.remember(facet.support, [facet.pair] * len(facet.support))
        self.random += 1
        facets, clean = [facet], 0
        for _ in range(_MAX_WALKS):
            start = facets[self.rng.randint(len(facets))]
            step = walk(self.labels, start, self.units, self.rng)
            for f in step.facets:
                self.remember(f.support, [f.pair] * len(f.support))
            facets += [f for f in step.facets if f.crossings <= _MAX_CROSSINGS]
            clean = clean + 1 if step.clean else 0
            if step.pencil is not None and self.units.add(step.pencil):
                self.say(f"{len(self.units.hyperplanes)} units, {self.labels.n_queries} queries")
            if clean >= _CLEAN_WALKS:
                break

    def _refuse_curved(self):
        self.curved += 1
        if self.curved >= _MAX_CURVED and not self.normals:
            raise NotIdentified(
                "boundary", "curved", f"the decision boundary is curved at all {self.curved} points: the model is no "
                "ReLU network (a kernel machine, a smooth activation?), or its labels are random.", final=True,
            )  # fmt: skip

    def _refuse_tree(self):
        axes = [int(np.argmax(np.abs(n))) for n in self.normals if np.sum(np.abs(n) > 1e-9) == 1]
        if len(axes) == len(self.normals) >= _MIN_TREE and len(set(axes)) > 1:
            raise NotIdentified(
                "boundary", "axis-parallel", f"the decision boundary is axis-parallel at all {len(axes)} points: the "
                "model is a tree or an ensemble of trees, no ReLU network.", final=True,
            )  # fmt: skip

    def fill(self):
        """Boundary points on random segments until all coefficients are overdetermined."""
        K = len(self.labels.classes)
        needed = (K - 1) * (len(self.units.hyperplanes) + self.labels.n_features + 1) + 20
        unknowns = needed + self.units.hyperplanes.size
        needed = max(needed - self.random, unknowns - len(self.points)) + len(self.points)
        for _ in range(20):
            if len(self.points) >= needed:
                return
            counts = np.bincount(np.ravel(self.pairs).astype(int), minlength=K) if self.pairs else np.zeros(K)
            rarest = int(np.argmin(counts)) if K > 2 else None
            X, pairs, _ = random_crossings(self.labels, min(needed - len(self.points), 60), self.rng, rarest)
            self.remember(X, pairs)
            self.random += len(X)

    def solve(self):
        """Logits of the units so far and open null vectors, or None if they do not explain the boundary points."""
        X, pairs, H = np.array(self.points), np.array(self.pairs), self.units.hyperplanes
        K = int(pairs.max()) + 1
        K = max(K, len(self.labels.classes))
        U = np.vstack([s * self.rng.standard_normal((_N_LABELS * (K - 1), X.shape[1])) for s in (1.0, 3.0)])
        seen = self.labels(U)
        U, seen = U[seen >= 0], seen[seen >= 0]
        K = max(K, len(self.labels.classes))
        N, _ = null_space(H, X, pairs, K, _ROUGH_TOL)
        coef = separating(H, N, U, seen) if len(N) else None
        if coef is None:
            return None
        logits, residual = refined(Logits(H, coef), X, pairs)
        N, _ = null_space(logits.hyperplanes, X, pairs, K)
        coef = separating(logits.hyperplanes, N, U, seen) if len(N) else None
        if coef is None:
            return None
        logits, residual = refined(Logits(logits.hyperplanes, coef), X, pairs)
        return logits, N, residual


def identify_logits(labels, rng, say=lambda text: None):
    """Logits of a classifier with one hidden ReLU layer, widths unknown; NotIdentified if no network explains it."""
    search = _Search(labels, rng, say)
    starts, best = [], None
    for _ in range(_MAX_BASES):
        if not starts:
            X, pairs, U = random_crossings(labels, 8, rng)
            search.remember(X, pairs)
            starts = list(zip(X, pairs, U, strict=True))
        if not starts:
            break
        search.base(*starts.pop(0))
        search.fill()
        solved = search.solve()
        if solved is None:
            continue
        logits, N, residual = solved
        n_lines = _N_LINES * (len(labels.classes) - 1)
        checked, wrong, (X, pairs, U), seen = wrong_boundary_points(labels, logits, n_lines, rng)
        if checked and not wrong:
            more, wrong, (X, pairs, U), seen = wrong_boundary_points(labels, logits, _FINAL_FACTOR * n_lines, rng)
            checked += more
        met = frozenset(tuple(sorted(map(int, p))) for p in search.pairs)
        found = Found(logits, _open(logits, N), checked, wrong, seen, residual, met)
        if not wrong and checked:
            return _without_idle_units(found)
        best = found if best is None or wrong < best.wrong else best
        search.remember(X, pairs)
        starts = list(zip(X, pairs, U, strict=True))[:4]
    if best is None:
        raise NotIdentified(
            "boundary", "units", f"{len(search.units.hyperplanes)} units with a flat hyperplane were found and do "
            "not explain the decision boundary: the model has more hidden layers, or is no ReLU network.",
        )  # fmt: skip
    return best


def _open(logits, N):
    """Orthonormal null vectors (k, F, K) orthogonal to the coefficients themselves."""
    if len(N) < 2:
        return N[:0]
    flat = N.reshape(len(N), -1)
    own = logits.coef.ravel() / np.linalg.norm(logits.coef)
    _, _, V = np.linalg.svd(flat - np.outer(flat @ own, own), full_matrices=False)
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
