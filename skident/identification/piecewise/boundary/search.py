"""Search for units on the decision boundary: surfaces of class pairs grow by one unit after the other."""

import numpy as np

from skident.oracle import NotIdentified

from ...constants import EXPLAINED_DISTANCE, NEAR_HYPERPLANE, TARGETS
from .beyond import facet_beyond
from .facets import axes_of, find_facet
from .first_units import find_first_units
from .growth import pencil_at, scale_of
from .points import random_crossings
from .straight import bends_along
from .surfaces import Surface, departure
from .units import Units

_CLEAN_PATHS = 12  # in a row without an unknown bend, after which the logits are tried
_MAX_PATHS = 400  # from one base (budget)
_MAX_FAILED = 30  # paths in a row that learn nothing
_FAILED_RADIUS = 0.02  # around a bend that gave no unit, within which it is not tried again
_BEFORE = 1e-7  # distance before a bend, at which its first facet is evaluated
_MAX_TRIES = 4  # paths towards an unexplained boundary point before a facet is measured there
_NEAREST = 5  # points of a surface from which these paths start
_MIN_TREE = 4  # axis-parallel normals, and none else, after which the model is a tree
_MAX_PENDING = 20  # bends of which no two lie on a common hyperplane, after which no network explains them
_DEEP_PENDING = 4  # such bends from which units are examined for a layer before them (budget)
_EXAMINED = 2  # on each of these units without a bend, after which there is one
_MAX_TESTED = 12  # units that are examined for that, and one more for each such bend (budget)
_PENDING_PER_UNIT = 2  # further ones per unit
_GROWTH = 1.2  # of the number of units, after which all are fitted at once (processor time)
_COARSE_LARGEST = 1e-2  # radius of these facets: the regions of forests are small
_MAX_CURVED = 6  # boundary points without a flat facet, and none with one, after which the boundary is curved
_SPARE = 20  # boundary points beyond the unknown coefficients


class Search:
    """Units, surfaces of class pairs and boundary points detected so far."""

    def __init__(self, labels, rng, say, earlier=None, one_layer=True):
        self.labels, self.rng, self.say, self.one_layer = labels, rng, say, one_layer
        self._known = ([], []) if earlier is None else earlier.evidence()
        self.units, self.surfaces, self.points, self.pairs = Units(labels.n_features), [], [], []
        self.facets, self._failed, self._waiting, self._tested = [], [], [], 0
        self.scattered = self.curved = self._refined = 0
        self.crossings = []

    def cross(self, n, start=None):
        """Boundary points on random segments: points (k, D), pairs (k, 2), directions; they are kept."""
        X, pairs, U = random_crossings(self.labels, n, self.rng, start)
        self.remember(X, pairs)
        self.crossings.extend(zip(X, pairs, U, strict=True))
        return X, pairs, U

    def _places(self):
        return np.array([x for x, _, _ in self.crossings])

    def remember(self, X, pairs):
        """Keep boundary points."""
        self.points.extend(X)
        self.pairs.extend(map(tuple, pairs))

    def keep(self, facet):
        """Keep a facet and the boundary points that were bisected for it."""
        self.facets.append(facet)
        self.remember(facet.support, [facet.pair] * len(facet.support))

    def evidence(self):
        """All boundary points in inputs and their pairs, also those of earlier searches."""
        return [*self.labels.outward(self.points), *self._known[0]], [*self.pairs, *self._known[1]]

    def visit(self, x, pair, u, measure=False):
        """Extend the surfaces to the boundary point x, pair[0] towards u: by paths, else by a facet measured there.

        With `measure`, no paths are tried, unless x lies on the plane of a facet from which a surface started.
        """
        own = [s for s in self.surfaces if set(s.pair) == set(pair)]
        if measure:
            on = [abs(s.base.plane @ np.append(x, 1.0)) < EXPLAINED_DISTANCE * (1.0 + np.linalg.norm(x)) for s in own]
            own = own if any(on) else []
        explained = [s.explains(x) for s in own]
        if any(explained):  # the hypothesis is another surface's: a bend separates both
            own = [s for s, e in zip(own, explained, strict=True) if not e]
        failed = 0
        while own and failed < _MAX_TRIES:
            surface, start = self._nearest(own, x)
            result = self._step(surface, start, x)
            if surface.explains(x) or (any(explained) and result in ("unit", "crossed")):
                return
            failed += result not in ("unit", "crossed")
        if any(explained) or (facet := self.facet(x, pair, u)) is None:
            return
        surface = Surface(facet, self.units)
        if not len(self.units.hyperplanes):
            find_first_units(self, facet)
        self.surfaces.append(surface)
        if len(self.units.hyperplanes):
            self.explore(surface)

    def facet(self, x, pair, u):
        """The facet at x, or None; NotIdentified if the boundary is curved or axis-parallel everywhere."""
        if pair[0] < pair[1]:  # surfaces of one pair have one orientation
            pair, u = pair[::-1], -u
        facet = find_facet(self.labels, x, u, tuple(map(int, pair)), self.rng)
        if facet is not None:
            self.keep(facet)
            if len(self.facets) == 1 and len(axes_of([facet.normal])):
                self._survey()
            return facet
        self.curved += 1
        if self.curved >= _MAX_CURVED and not self.facets:
            raise NotIdentified(
                "boundary", "curved", f"the decision boundary is curved at all {self.curved} points: the model is no "
                "ReLU network (a kernel machine, a smooth activation?), or its labels are random.", final=True,
            )  # fmt: skip
        return None

    def _survey(self):
        """Measure facets elsewhere; NotIdentified if all are axis-parallel, as this one is."""
        X, pairs, U = random_crossings(self.labels, 2 * _MIN_TREE, self.rng)
        normals = [self.facets[0].normal]
        for x, pair, u in zip(X, pairs, U, strict=True):
            facet = find_facet(self.labels, x, u, tuple(map(int, pair)), self.rng, largest=_COARSE_LARGEST)
            normals += [] if facet is None else [facet.normal]
            axes = axes_of(normals)
            if len(axes) < len(normals):
                return
            if len(axes) >= _MIN_TREE and len(set(axes)) > 1:
                raise NotIdentified(
                    "boundary", "axis-parallel", f"the decision boundary is axis-parallel at all {len(axes)} points: "
                    "the model is a tree or an ensemble of trees, no ReLU network.", final=True,
                )  # fmt: skip

    def _nearest(self, surfaces, x):
        """A surface and one of its points near x."""
        places = [(s, p) for s in surfaces for p in s.points]
        apart = np.linalg.norm(np.array([p for _, p in places]) - x, axis=1)
        return places[self.rng.choice(np.argsort(apart)[:_NEAREST])]

    def explore(self, surface):
        """Paths to random targets until none meets an unknown bend."""
        clean = failed = 0
        for _ in range(_MAX_PATHS):
            start = surface.points[self.rng.randint(len(surface.points))]
            result = self._step(surface, start, self.labels.draw(1, self.rng, TARGETS)[0])
            failed = 0 if result in ("unit", "crossed") else failed + 1
            clean = clean + 1 if result == "clean" else clean if result == "end" else 0
            if clean >= _CLEAN_PATHS or failed >= _MAX_FAILED:
                return

    def _step(self, surface, start, target):
        """One path: "clean", "crossed" (a coefficient measured), "unit" (a new one), "end" (third class), "failed"."""
        path = surface.path(start, target).before_walls(self.labels.room)
        if not len(path.lengths):
            return "clean"
        touch = departure(self.labels, path, surface.pair)
        if touch is None:
            surface.points.append(path.starts[-1] + 0.5 * path.lengths[-1] * path.directions[-1])
            return "clean" if path.barrier is None else self._cross(surface, path)
        if touch.third_class:
            return "end"
        x, i = touch.point, touch.piece
        size = 1.0 + np.linalg.norm(x)
        near = np.abs(self.units.hyperplanes @ np.append(x, 1.0)).min(initial=np.inf) < NEAR_HYPERPLANE * size
        if near or self.units.has_ridge(x) or any(np.linalg.norm(x - y) < _FAILED_RADIUS for y in self._failed):
            return "failed"
        return self._grow(surface, path.planes[i], x, path.directions[i])

    def _cross(self, surface, path):
        x = surface.cross(self.labels, path)
        if x is None:
            return "failed"
        self.remember([x], [surface.pair])
        return "crossed"

    def _grow(self, surface, plane, x, d):
        """The unit at a bend x of a path in direction d on `plane`."""
        facet = facet_beyond(self.labels, plane, surface.pair, x, d, self.rng)
        if facet is None:
            self._failed.append(x)
            return "failed"
        self.keep(facet)
        before = x - _BEFORE * d
        if self._learn(surface, before, facet):
            self._learn_waiting()
            return "unit"
        if self.add(pencil_at(plane, facet, x)):
            return "unit"
        self._waiting.append((surface, before, facet))
        pending = len(self.units.pending)
        if pending >= _DEEP_PENDING:
            self._refuse_deep()
        if pending > _MAX_PENDING + _PENDING_PER_UNIT * len(self.units.hyperplanes):
            self.refuse_scattered(pending)
        return "failed"

    def _learn(self, surface, before, facet):
        """Whether known units give the scale of the facet beyond the bend after `before`, and so the unit there."""
        plane = surface.plane_at(surface.signs(before))
        mu, points = scale_of(self.labels, surface, plane, facet)
        self.remember(points, [surface.pair] * len(points))
        return mu is not None and self._learn_jump(surface, facet.point, mu * facet.plane - plane)

    def _learn_jump(self, surface, point, jump):
        """Whether the plane (D + 1,) that is added at `point` beyond the surface belongs to a new unit."""
        size = np.linalg.norm(jump[:-1])
        if size == 0.0 or self.units.knows(jump / size):
            return False
        k = self.units.append(jump / size)
        sign = np.sign(self.units.hyperplanes[k] @ np.append(point, 1.0))
        surface.learn(k, sign * size / 2, -sign)
        surface.points.append(point)
        self.said()
        if len(self.units.hyperplanes) > _GROWTH * self._refined:
            own = [set(p) == set(surface.pair) for p in self.pairs]
            surface.refine(np.array(self.points)[own])
            self._refined = len(self.units.hyperplanes)
        return True

    def _learn_waiting(self):
        """Try again the bends whose scale was not measured: more units are known now."""
        learned = True
        while learned:
            learned, items, self._waiting = False, self._waiting, []
            for item in items:
                if not self.units.has_ridge(item[1]):
                    continue  # a unit detected since
                if self._learn(*item):
                    learned = True
                else:
                    self._waiting.append(item)

    def add(self, pencil):
        """Add a pencil; whether it gives a new unit."""
        new = self.units.add(pencil)
        if new:
            self.said()
        return new

    def said(self):
        """Note and report the number of units."""
        self.labels.note(len(self.units.hyperplanes))
        self.say(f"{len(self.units.hyperplanes)} units, {self.labels.n_queries} queries")

    def refuse_scattered(self, n):
        """NotIdentified: bends of the boundary that belong to no hyperplanes."""
        raise NotIdentified(
            "boundary", "scattered", f"the decision boundary is piecewise flat, but no two of {n} bends lie on a "
            "common hyperplane: the model is no network with one hidden ReLU layer (nearest neighbors, or more hidden "
            "layers), or its boundary meets too few units to determine them.",
        )  # fmt: skip

    def _refuse_deep(self):
        """NotIdentified if the boundary does not bend all along the hyperplane of a unit: it has a layer before it."""
        H = self.units.hyperplanes
        if len(H) < 2 or not self.one_layer:
            return
        end = min(len(H), _MAX_TESTED + len(self.units.pending))
        for k in range(self._tested, end):
            hits, total = bends_along(self.labels, H[k], self._places(), self.rng, _EXAMINED, rough=True)
            if total == _EXAMINED and hits == 0:
                raise NotIdentified(
                    "boundary", "deep", "the decision boundary bends on parts of hyperplanes only: the model has more "
                    "than one hidden layer.",
                )  # fmt: skip
        self._tested = max(self._tested, end)

    def unexplained(self, starts):
        """These boundary points (x, pair, u), those that no surface explains first."""
        return sorted(starts, key=lambda s: any(set(f.pair) == set(s[1]) and f.explains(s[0]) for f in self.surfaces))

    def fill(self):
        """Boundary points on random segments until all coefficients are overdetermined."""
        K = len(self.labels.classes)
        needed = (K - 1) * (len(self.units.hyperplanes) + self.labels.n_features + 1) + _SPARE
        unknowns = needed + self.units.hyperplanes.size
        needed = max(needed - len(self.crossings), unknowns - len(self.points)) + len(self.points)
        for _ in range(20):
            if len(self.points) >= needed:
                return
            counts = np.bincount(np.ravel(self.pairs).astype(int), minlength=K) if self.pairs else np.zeros(K)
            rarest = int(np.argmin(counts)) if K > 2 else None
            self.cross(min(needed - len(self.points), 60), rarest)
