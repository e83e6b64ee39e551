"""First of two hidden layers from labels: hyperplanes that the boundary bends along wherever it meets them."""

import numpy as np

from skident.linalg import lapack, svd
from skident.oracle import NotIdentified

from ...constants import NEAR_HYPERPLANE, TARGETS
from .aiming import aimed_pencils
from .beyond import facet_beyond
from .coordinates import Peeled
from .facets import find_facet
from .growth import pencil_at
from .span import within_span
from .straight import bends_along
from .surfaces import Surface, departure
from .units import Pencil, Units, common_hyperplane

_WALKS = 10  # from one facet
_PER_FACET = 6  # bends measured from one facet (budget)
_MAX_FACETS = 150  # from which paths start (budget)
_QUIET = 12  # facets in a row without a new unit, after which no more are expected
_QUIET_ALL = 2  # `_QUIET` before the first unit, if all inputs count: nearest neighbors?
_QUIET_MANY = 4  # `_QUIET` if more than a few units are missing
_FEW_MISSING = 2  # units, whose bends are met soon if these are aimed at
_FIRST_PLACES = 3  # on a candidate, that decide if they agree (budget)
_MIN_PLACES = 2  # on a candidate at which the boundary is examined
_MIN_SHARE = 0.6  # of these places at which it bends along a first-layer unit; second-layer units: at most 0.4
_FITS = 1e-7  # residual of a normal as a combination of the units' normals


def first_layer(search):
    """Labels where all units of the first of two layers are active; the search keeps all boundary points.

    NotIdentified if there are no units.
    """
    first = _FirstLayer(search)
    first.search()
    return Peeled(first.labels, *first.signed())


class _FirstLayer:
    """Units, facets and pencils in coordinates y of the span."""

    def __init__(self, search):
        before, self.outer, self.rng, self.say = len(search.facets), search, search.rng, search.say
        self.labels = within_span(search)
        Q = self.labels.basis
        self.pencils, self.units, self.refused = [], Units(len(Q)), Units(len(Q))
        self.crossings = [(Q @ x, tuple(map(int, pair)), Q @ u) for x, pair, u in search.crossings]
        facets = [f.within(Q) for f in search.facets]
        # The facets of a search for one layer lie around few places, so that paths from them meet the same bends.
        self.earlier, self.facets = facets[:before], facets[before:]
        for w in search.units.hyperplanes:
            inside = np.append(Q @ w[:-1], w[-1])
            if np.linalg.norm(inside[:-1]) > 1 - _FITS and not self.units.knows(inside):
                self._consider(inside / np.linalg.norm(inside[:-1]))
        for p in search.units.pending:
            self._add(Pencil(np.column_stack([p.planes[:, :-1] @ Q.T, p.planes[:, -1]]), Q @ p.bend))

    def remember(self, facet):
        """Keep the boundary points of a facet."""
        self.outer.remember(facet.support @ self.labels.basis, [facet.pair] * len(facet.support))

    @property
    def rank(self):
        """Dimension of the span."""
        return self.labels.n_features

    def search(self):
        """Find units until their number is the rank, or no more appear."""
        quiet = 0
        for k in range(_MAX_FACETS):
            before = len(self.units.hyperplanes)
            patience = _QUIET if before or self.rank < self.outer.labels.n_features else _QUIET_ALL
            if self._complete() or quiet >= patience:
                return
            few = self.rank - before <= _FEW_MISSING
            if before and quiet >= (1 if few else _QUIET_MANY):
                self._aim()
            else:
                if k >= len(self.facets):
                    self._measure()
                if self.facets:
                    self._walk(self.facets[k % len(self.facets)])
            quiet = 0 if len(self.units.hyperplanes) > before else quiet + 1

    def _complete(self):
        return len(self.units.hyperplanes) >= self.rank

    def _measure(self):
        """One more facet at a random place."""
        x, pair, u = self.crossings[self.rng.randint(len(self.crossings))]
        if (facet := find_facet(self.labels, x, u, pair, self.rng)) is not None:
            self.facets.append(facet)
            self.remember(facet)

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
            if w is not None and not self.units.knows(w) and not self.refused.knows(w):
                self._consider(w)
        self.pencils.append(pencil)
        self.pencils = [p for p in self.pencils if not self._on_unit(p)]

    def _on_unit(self, pencil):
        one = np.append(pencil.bend, 1.0)
        return np.any(np.abs(self.units.hyperplanes @ one) < NEAR_HYPERPLANE * (1.0 + np.linalg.norm(pencil.bend)))

    def _consider(self, w):
        points = np.array([x for x, _, _ in self.crossings])
        hits, total = bends_along(self.labels, w, points, self.rng, _FIRST_PLACES)
        if 0 < hits < total:
            more = bends_along(self.labels, w, points, self.rng)
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
        for pencil, facets in aimed_pencils(self.labels, self._missing(), self.crossings, self.facets, self.rng):
            for facet in facets:
                self.remember(facet)
                self.facets.append(facet)
            before = len(self.units.hyperplanes)
            self._add(pencil)
            if len(self.units.hyperplanes) > before:
                return

    def signed(self):
        """Planes (r, r + 1) of the units, positive where they are active, and which have no wall; or NotIdentified."""
        H = self.units.hyperplanes[: self.rank]
        if not len(H):
            raise NotIdentified(
                "boundary", "scattered", "no hyperplane along which the decision boundary bends everywhere was "
                "detected: the model is no network with one or two hidden ReLU layers (nearest neighbors?).",
                final=True,
            )  # fmt: skip
        m, missing = len(H), self._missing()
        planes = np.vstack([H, np.column_stack([missing, np.zeros(len(missing))])])
        facets = [*self.earlier, *self.facets]
        shares = lapack.solve(planes[:, :-1].T, np.array([f.normal for f in facets]).T).T
        points = np.array([np.append(f.point, 1.0) for f in facets])
        for k in range(m):
            sides, fits = points @ H[k] > 0, []
            for sign, off in ((1.0, ~sides), (-1.0, sides)):
                mixed, *_ = lapack.lstsq(shares[off, m:], shares[off, k], rcond=None)
                fit = np.abs(shares[off, m:] @ mixed - shares[off, k]) < _FITS
                fits.append((np.sum(fit) - len(missing) if np.all(fit) else -1, sign, mixed))
            _, sign, mixed = max(fits, key=lambda f: f[0])
            planes[k] *= sign
            planes[m:] += np.outer(mixed, H[k])
        return planes, np.arange(self.rank) >= m
