"""First of two hidden layers from labels: hyperplanes that the boundary bends along wherever it meets them."""

from __future__ import annotations

import numpy as np

from skident.budget.constants import ROOT_RANK_TOL
from skident.linalg import lapack, svd
from skident.oracle import NotIdentified

from ...constants import NEAR_HYPERPLANE, TARGETS
from .aiming import aimed_pencils, moves
from .facets import find_facet
from .growth import facet_beyond, pencil_at
from .peeled import Projected
from .points import random_crossings
from .straight import bends_along
from .surfaces import Surface, departure
from .units import Pencil, Units, common_hyperplane

__all__ = ["FirstLayer", "span_of_normals"]

_N_TESTED = 100  # boundary points at which labels must not move orthogonally to the span (statistics)
_N_TESTED_FIRST = 24  # of them per round while some do (budget)
_MAX_MEASURED = 8  # of those that do (budget)
_MAX_SPANS = 40  # rounds of that test (budget)
_WALKS = 10  # from one facet
_PER_FACET = 6  # bends measured from one facet (budget)
_MAX_FACETS = 150  # from which paths start (budget)
_QUIET = 25  # facets in a row without a new unit, after which no more are expected
_QUIET_ALL = 2  # `_QUIET` before the first unit, if all inputs count: nearest neighbors?
_QUIET_MANY = 4  # `_QUIET` if more than a few units are missing
_FEW_MISSING = 2  # units, whose bends are met soon if these are aimed at
_QUIET_AIMED = 1  # facets in a row without a new unit, after which missing units are aimed at
_FIRST_PLACES = 3  # on a candidate, that decide if they agree (budget)
_MIN_PLACES = 2  # on a candidate at which the boundary is examined
_MIN_SHARE = 0.6  # of these places at which it bends along a first-layer unit; second-layer units: at most 0.4
_ACTIVE = 1e-6  # coefficient of a unit in a normal, over the largest one, from which the unit is active
_FITS = 1e-7  # residual of a normal as a combination of the units' normals


def span_of_normals(labels, normals, rng, keep):
    """Orthonormal rows (r, D) that span all normals of the boundary, and the boundary points (X, pairs, U) tested.

    Along directions orthogonal to the span no label may change. If one does, `keep` takes a facet measured there.
    """
    normals, n, tested = list(normals), _N_TESTED_FIRST, ([], [], [])
    for _ in range(_MAX_SPANS):
        if len(_span(normals)) == labels.n_features:
            break
        points = random_crossings(labels, n, rng)
        for columns, new in zip(tested, points, strict=True):
            columns.extend(new)
        moved = np.arange(len(points[0])) if not normals else _moved(labels, normals, points, rng)
        if not len(moved) and n == _N_TESTED:
            break
        n = n if len(moved) else _N_TESTED
        for i in moved[:_MAX_MEASURED]:
            x, pair, u = (column[i : i + 1] for column in points)
            if normals and not len(_moved(labels, normals, (x, pair, u), rng)):
                continue  # a facet measured since is enough
            if (facet := find_facet(labels, x[0], u[0], tuple(map(int, pair[0])), rng)) is not None:
                keep(facet)
                normals.append(facet.normal)
    return _span(normals), tested


def _moved(labels, normals, points, rng):
    """Indices of boundary points (X, pairs, U) whose labels change along a direction orthogonal to all normals."""
    X, _, U = points
    Q, V = _span(normals), rng.standard_normal(X.shape)
    return np.flatnonzero(moves(labels, X, U, V - V @ Q.T @ Q) > 0)


def _span(normals):
    _, s, V = svd(np.array(normals), full_matrices=False)
    return V[s > ROOT_RANK_TOL * s[0]]


class FirstLayer:
    """Units, facets and pencils in coordinates y of the span; boundary points (X, pairs) in inputs."""

    def __init__(self, labels, rng, say):
        self.outer, self.rng, self.say = labels, rng, say
        self.points, self.pairs, self.facets, self.pencils = [], [], [], []
        self.basis, self.labels, self.random = np.eye(labels.n_features), labels, 0
        self.units, self.refused, self.agreement = Units(labels.n_features), [], 0.0
        self.earlier = []  # facets of the search for one hidden layer, from which no paths start

    def keep(self, facet):
        """Remember a facet and the boundary points that were bisected for it."""
        self.facets.append(facet)
        self.remember(facet)

    def remember(self, facet):
        """Remember the boundary points of a facet, in inputs."""
        self.points.extend(facet.support @ self.basis)
        self.pairs.extend([facet.pair] * len(facet.support))

    def project(self, facets, units):
        """Find the span of the weights, and continue within it; facets and units are those of one hidden layer.

        Those facets lie around few places, so that paths from them meet the same bends.
        """
        full = self.outer
        Q, tested = span_of_normals(full, [f.normal for f in facets], self.rng, self.keep)
        self.points.extend(tested[0])
        self.pairs.extend(map(tuple, tested[1]))
        self.random += len(tested[0])
        self.basis, self.labels, self.units = Q, Projected(full, Q), Units(len(Q))
        self.facets, self.earlier = ([_inside(f, Q) for f in kept] for kept in (self.facets, facets))
        for w in units.hyperplanes:
            inside = np.append(Q @ w[:-1], w[-1])
            if np.linalg.norm(inside[:-1]) > 1 - _FITS and not self.units.knows(inside):
                self._consider(inside / np.linalg.norm(inside[:-1]))
        for p in units.pending:
            planes = np.column_stack([p.planes[:, :-1] @ Q.T, p.planes[:, -1]])
            self._add(Pencil(planes, Q @ p.bend))

    @property
    def rank(self):
        """Dimension of the span."""
        return len(self.basis)

    def search(self):
        """Find units until their number is the rank, or no more appear."""
        quiet = 0
        for k in range(_MAX_FACETS):
            before = len(self.units.hyperplanes)
            patience = _QUIET if before or self.rank < self.outer.n_features else _QUIET_ALL
            if self._complete() or quiet >= patience:
                return
            few = self.rank - before <= _FEW_MISSING
            if before and quiet >= (_QUIET_AIMED if few else _QUIET_MANY):
                self._aim()
            else:
                if k >= len(self.facets):
                    self._measure()
                self._walk(self.facets[k % len(self.facets)])
            quiet = 0 if len(self.units.hyperplanes) > before else quiet + 1

    def _complete(self):
        return len(self.units.hyperplanes) >= self.rank

    def _measure(self):
        """One more facet at a random place."""
        X, pairs, U = random_crossings(self.labels, 1, self.rng)
        for x, pair, u in zip(X, pairs, U, strict=True):
            if (facet := find_facet(self.labels, x, u, tuple(map(int, pair)), self.rng)) is not None:
                self.keep(facet)

    def _walk(self, facet):
        """Measure pencils at bends of a facet."""
        measured = 0
        surface = Surface(facet, Units(self.rank))
        for target in self.labels.draw(_WALKS, self.rng, TARGETS):
            if measured >= _PER_FACET or self._complete():
                return
            path = surface.path(facet.point, target)
            touch = departure(self.labels, path, facet.pair) if len(path.lengths) else None
            if touch is None or touch.third_class or self._known(touch.point):
                continue
            d = path.directions[0]
            beyond = facet_beyond(self.labels, facet.plane, facet.pair, touch.point, d, self.rng)
            if beyond is not None:
                measured += 1
                self.remember(beyond)
                self._add(pencil_at(facet.plane, beyond, touch.point))

    def _known(self, x):
        """Whether a bend x belongs to a known unit or a known pencil."""
        one, slack = np.append(x, 1.0), NEAR_HYPERPLANE * (1.0 + np.linalg.norm(x))
        if np.any(np.abs(self.units.hyperplanes @ one) < slack):
            return True
        return any(np.abs(p.planes @ one).max() < slack for p in self.pencils)

    def _add(self, pencil):
        """Add a pencil; candidates are hyperplanes that it shares with others."""
        if self._known(pencil.bend):
            return
        for other in self.pencils:
            w = common_hyperplane(pencil, other)
            if w is not None and not self.units.knows(w) and not self._was_refused(w):
                self._consider(w)
        self.pencils.append(pencil)
        self.pencils = [p for p in self.pencils if not self._on_unit(p)]

    def _on_unit(self, pencil):
        one = np.append(pencil.bend, 1.0)
        return np.any(np.abs(self.units.hyperplanes @ one) < NEAR_HYPERPLANE * (1.0 + np.linalg.norm(pencil.bend)))

    def _was_refused(self, w):
        return any(min(np.abs(v - w).max(), np.abs(v + w).max()) < 1e-5 * np.abs(w).max() for v in self.refused)

    def _consider(self, w):
        hits, total = bends_along(self.labels, w, self.rng, _FIRST_PLACES)
        if 0 < hits < total:
            more = bends_along(self.labels, w, self.rng)
            hits, total = hits + more[0], total + more[1]
        if total >= _MIN_PLACES and hits >= _MIN_SHARE * total:
            self.units.append(w)
            self.say(f"{len(self.units.hyperplanes)} units of the first layer, {self.labels.n_queries} queries")
        elif total >= _MIN_PLACES:
            self.refused.append(w)

    def _missing(self):
        """Orthonormal directions (k, r) that no known unit meets."""
        W = self.units.hyperplanes[:, :-1]
        return svd(W, full_matrices=True)[2][len(W) :]

    def _aim(self):
        """Pencils of missing units, between boundary points where one is active and where none is."""
        for pencil, facets in aimed_pencils(self.labels, self._missing(), self.facets, self.rng):
            for facet in facets:
                self.remember(facet)
                self.facets.append(facet)
            before = len(self.units.hyperplanes)
            self._add(pencil)
            if len(self.units.hyperplanes) > before:
                return

    def signed(self):
        """Planes (r, r + 1) of the units, positive where they are active, and which have no wall; or NotIdentified."""
        H, missing = self.units.hyperplanes[: self.rank], self._missing() if len(self.units.hyperplanes) else None
        if missing is None:
            raise NotIdentified(
                "boundary", "scattered", "no hyperplane along which the decision boundary bends everywhere was "
                "detected: the model is no network with one or two hidden ReLU layers (nearest neighbors?).",
                final=True,
            )  # fmt: skip
        linear = np.arange(self.rank) >= len(H)
        planes = np.vstack([H, np.column_stack([missing, np.zeros(len(missing))])])
        votes = []
        for facet in [*self.earlier, *self.facets]:
            c, *_ = lapack.lstsq(planes[:, :-1].T, facet.normal, rcond=None)
            if np.linalg.norm(planes[:, :-1].T @ c - facet.normal) < _FITS:
                on = np.abs(c) > _ACTIVE * np.abs(c).max()
                votes.append(np.where(on, 1, -1) * np.sign(planes @ np.append(facet.point, 1.0)))
        share = np.mean(votes, axis=0) if votes else np.zeros(self.rank)
        self.agreement = np.abs(share)[~linear].min(initial=1.0)
        planes[~linear] *= np.where(share >= 0, 1.0, -1.0)[~linear, None]
        return planes, linear


def _inside(facet, Q):
    """The facet in coordinates of the span."""
    plane = np.append(Q @ facet.normal, facet.plane[-1])
    return type(facet)(Q @ facet.point, plane, facet.pair, facet.support @ Q.T)
