"""The units of the next layer: candidates from several critical points, confirmed where they predict others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .consensus import clusters_of_jumps, grown, null_vectors, partial_units
from .critical_set import BISECTIONS, straight_lines
from .unseen import complete_unit

__all__ = ["LayerSearch", "Unit"]

_HIT = 1e-6  # distance of a critical point from a predicted one, relative
_FIRST_HIT = 1e-5  # the same of a candidate from two critical points
_LEAST_FIRST = 0.35  # share of predicted critical points from which a candidate is refined
_ACCEPTED = 0.95  # share of predicted critical points that the outputs confirm: facets of deeper units have 0.8 or less
_ACCEPTED_BESIDE_LINEAR = 0.85  # the same behind linear units, which are wrong where the missing ones are inactive
_LEAST_HITS = 3
_LEAST_KNOWN = 0.45  # share of weights that is known of a unit, or:
_MANY_MEMBERS = 30  # critical points
_MOSTLY_KNOWN = 0.7  # share of the weights of a unit that counts with unknown ones
_TESTED_SIDE, _LEAST_ON_SIDE = 20, 4  # predicted points on one side of another unit
_SIDE_SHARE = 0.35  # of these that are confirmed on the side where facets of deeper units end, at most
_FEWER_TESTED = 8  # of a unit of which all weights are known, and all predicted points are right
_LEAST_TESTED = 20
_FURTHER = 80  # lines of these
_TESTED = 40  # predicted points on further lines, where outputs are queried
_TESTED_HERE = 40  # the same on the lines of the set where no critical point was found
_NORMALS = 120  # of a unit that refine it (budget)
_NORMAL_WEIGHT = 1e-4  # of normals beside positions: their errors are larger
_TRIMMED = 20.0  # median residuals beyond which a critical point is another unit's
_UNDETERMINED = 1e-6  # singular value over the largest of a direction that is not determined
_UNKNOWN = 1e-4  # part of a weight in these directions above which it is unknown


@dataclass(eq=False)
class Unit:
    """A unit, up to a factor: weights w (m,), 0 where the `mask` (m,) says that they are unknown, and bias b.

    `members` are its critical points, and `aimed` (k, D) further ones. The outputs confirm a `share` of `n_tested`
    predicted ones, and not the points `wrong` (k, D). `kept` (m,) is the sign that the unit keeps where an input with unknown weight is active, or 0.
    """

    w: np.ndarray
    b: float
    mask: np.ndarray
    members: np.ndarray
    aimed: np.ndarray
    share: float = 0.0
    n_tested: int = 0
    wrong: np.ndarray | None = None
    kept: np.ndarray | None = None


class LayerSearch:
    """Search for units of one layer behind a `KnownPrefix`, in a `CriticalSet`."""

    def __init__(self, critical, prefix, explained):
        self.critical, self.prefix, self.rng = critical, prefix, critical.rng
        self.H, self.A = prefix.outputs_and_gradients(critical.points)
        self.certain = prefix.certain(critical.points)
        self.explained = explained.copy()
        self.grid = prefix.outputs(critical.lines.grid_points)
        self.grid_certain = prefix.certain(critical.lines.grid_points)
        self.further = straight_lines(_FURTHER, prefix.n_inputs, self.rng, 400)
        self.further_grid = prefix.outputs(self.further.grid_points)
        self.further_certain = prefix.certain(self.further.grid_points)
        self.scale = np.sqrt(1.0 + np.median(np.sum(self.H**2, axis=1)))
        self.accepted = _ACCEPTED_BESIDE_LINEAR if any(prefix.linear) else _ACCEPTED
        self.units, self.poor, self.unresolved = [], [], []

    def usable(self):
        """Critical points that may be units of this layer."""
        return np.flatnonzero(self.critical.reliable & self.certain & ~self.explained)

    def weights(self):
        """Weights (m, K) and biases (K,) of the units that were found, up to their signs."""
        return np.array([unit.w for unit in self.units]).T, np.array([unit.b for unit in self.units])

    def run(self, before):
        """Find units: those found `before`, with fewer critical points, are tried first."""
        self.start_from(before)
        self.from_partial_units()
        self.merge()
        for _ in range(2):
            n = len(self.units)
            self.from_clusters()
            self.merge()
            self.extend_masks()
            if len(self.units) <= n:
                break
        self.add_unresolved()
        self.drop_facets()
        return self.units

    def start_from(self, units):
        """Take over units that were found with fewer critical points."""
        m = self.H.shape[1]
        for unit in units:
            w, mask = np.zeros(m), np.zeros(m, dtype=bool)
            k = min(m, len(unit.w))
            w[:k], mask[:k] = unit.w[:k], unit.mask[:k]
            self.settle(w, unit.b, mask, np.zeros(0, dtype=int), unit.aimed)

    def from_partial_units(self):
        index = self.usable()
        w, b, inside, unique = partial_units(self.H[index], self.A[index], self.critical.normals[index])
        index, w, b = index[unique], w[unique], b[unique]
        if len(index) == 0:
            return
        active = self.H[index] != 0.0 if self.prefix.weights else np.ones(w.shape, dtype=bool)
        free, seeded = np.ones(len(w), dtype=bool), np.zeros(len(w), dtype=bool)
        for seed in np.argsort(-active.sum(axis=1), kind="stable"):
            if seeded[seed] or not free[seed]:
                continue
            c, bias, mask, members = grown(w, b, active, self.scale, seed, free)
            seeded |= members
            k = index[members]
            if len(np.unique(self.critical.line[k])) > 1 and self.settle(c, bias, mask, k):
                free &= ~self.explained[index]

    def from_clusters(self):
        index = self.usable()
        for cluster in clusters_of_jumps(self.critical.jumps[index], self.critical.line[index], 4):
            k = index[cluster]
            k = k[~self.explained[k]]
            if len(k) < 4:
                continue
            x = null_vectors(self.H[k], self.A[k], self.critical.normals[k])
            if x is not None:
                seen = self.A[k].any(axis=(0, 2))
                self.settle(x[:-1] * seen, x[-1], seen, k)

    def predicted(self, w, b, mask, lines, grid_outputs, grid_certain):
        """Lines (k,) and positions (k,) where a unit's pre-activation vanishes."""
        n = len(lines.grid)
        z = (grid_outputs @ (w * mask) + b).reshape(-1, n)
        there = grid_certain.copy()
        if not mask.all():
            there &= ~np.any((grid_outputs != 0.0) & ~mask, axis=1)
        there = there.reshape(-1, n)
        i, j = np.nonzero((z[:, 1:] * z[:, :-1] < 0.0) & there[:, 1:] & there[:, :-1])
        low, high, before = lines.positions(i, j), lines.positions(i, j + 1), z[i, j]
        for _ in range(BISECTIONS):
            t = 0.5 * (low + high)
            left = np.sign(self.prefix.outputs(lines.at(i, t)) @ (w * mask) + b) == np.sign(before)
            low, high = np.where(left, t, low), np.where(left, high, t)
        t = 0.5 * (low + high)
        return i, t

    def settle(self, w, b, mask, members, aimed=None, replaced=None):
        """Refine a candidate by the critical points that it predicts, and keep it if the outputs confirm enough."""
        aimed = self.critical.points[:0] if aimed is None else aimed
        unit = self.tested(Unit(w * mask, b, mask.copy(), members, aimed))
        if unit is not None and unit.share >= self.accepted and not unit.mask.all() and complete_unit(self, unit):
            unit = self.tested(unit)
        if unit is None:
            return False
        if replaced is not None:
            better = unit.mask.sum() > replaced.mask.sum() and len(unit.members) >= len(replaced.members)
            if better and unit.share >= min(self.accepted, replaced.share):
                self.units[self.units.index(replaced)] = unit
                self.explained[unit.members] = True
                return True
            return False
        new, least = np.sum(~self.explained[unit.members]), min(_LEAST_HITS, len(unit.members))
        few = unit.n_tested < (_FEWER_TESTED if unit.share == 1.0 and unit.mask.all() else _LEAST_TESTED)
        if few or unit.share < self.accepted or new < least or new < 0.5 * len(unit.members) or self._is_known(unit):
            self.poor.append(unit)
            return False
        if not self._is_resolved(unit):
            self.unresolved.append(unit)
            return False
        self.units.append(unit)
        self.explained[unit.members] = True
        return True

    def _is_resolved(self, unit):
        """Whether all that the outputs need to know of a unit is known."""
        known = unit.mask if unit.kept is None else unit.mask | (unit.kept != 0.0)
        few = unit.mask.mean() < _LEAST_KNOWN and len(unit.members) < _MANY_MEMBERS
        return bool(known.all()) and not few

    def _is_known(self, unit):
        """Whether a unit is one of those that are known, on the weights that both know."""
        for other in self.units:
            both = unit.mask & other.mask
            x, y = (np.append(u.w[both] * self.scale, u.b) for u in (unit, other))
            if both.sum() > 1 and abs(x @ y) > (1.0 - 1e-10) * np.linalg.norm(x) * np.linalg.norm(y):
                return True
        return False

    def add_unresolved(self):
        """Add units of which some weights are unknown, if there is much evidence of them."""
        for unit in sorted(self.unresolved, key=lambda one: -one.mask.sum()):
            new = np.sum(~self.explained[unit.members])
            if unit.mask.mean() > _MOSTLY_KNOWN and new > 0.5 * len(unit.members) and not self._is_known(unit):
                self.units.append(unit)
                self.explained[unit.members] = True

    def tested(self, unit):
        """The `Unit` fitted to the critical points that it predicts, with the share of these that outputs confirm.

        None if it predicts too few.
        """
        critical, lines = self.critical, self.critical.lines
        args, tols = (lines, self.grid, self.grid_certain), (_FIRST_HIT, _FIRST_HIT, _HIT, _HIT)
        members, w, b, mask, before = unit.members, unit.w, unit.b, unit.mask, None
        for n_round, tol in enumerate(tols):
            i, t = self.predicted(w, b, mask, *args)
            if len(i) < 2:
                return None
            j, gap = critical.nearest(i, t)
            hit = gap < tol * (critical.space.unit + np.abs(t))
            if hit.sum() < _LEAST_HITS or (n_round == 0 and hit.mean() < _LEAST_FIRST):
                return None
            members = np.unique(np.concatenate([j[hit], members]) if n_round == 0 else j[hit])
            if n_round == len(tols) - 1 or np.array_equal(members, before):
                break
            found, before = self.refined(members, unit.aimed), members
            if found is None:
                return None
            w, b, mask = found
        test = self.confirmed_share(w, b, mask, i, t, gap < _HIT * (critical.space.unit + np.abs(t)))
        return Unit(w, b, mask, members, unit.aimed, *test, unit.kept)

    def confirmed_share(self, w, b, mask, i, t, hit):
        """Share of predicted points that the outputs confirm, how many were tested, these (n, D), and which were not."""
        lines = self.critical.lines
        missed = self.rng.permutation(np.flatnonzero(~hit))[:_TESTED_HERE]
        X = lines.at(i[missed], t[missed])
        answers = self.critical.bends(X, lines.directions[i[missed]])
        n_bent, n, wrong = hit.sum() + np.sum(answers == 1), hit.sum() + np.sum(answers >= 0), X[answers == 0]
        if n == 0 or n_bent < 0.8 * n:
            return n_bent / max(n, 1), n, wrong
        X, V = self.further_points(w, b, mask)
        some = self.rng.permutation(len(X))[:_TESTED]
        answers = self.critical.bends(X[some], V[some])
        n_bent, n = n_bent + np.sum(answers == 1), n + np.sum(answers >= 0)
        return n_bent / n, n, np.concatenate([wrong, X[some][answers == 0]])

    def further_points(self, w, b, mask):
        """Points (n, D) on further lines, of directions (n, D), where a unit is predicted to vanish."""
        i, t = self.predicted(w, b, mask, self.further, self.further_grid, self.further_certain)
        return self.further.at(i, t), self.further.directions[i]

    def drop_facets(self):
        """Drop facets of deeper units: they end where another unit of the layer changes its sign."""
        for unit in list(self.units):
            if unit.share == 1.0 or len(unit.wrong) == 0:
                continue
            others = [other for other in self.units if other is not unit]
            X, V = self.further_points(unit.w, unit.b, unit.mask)
            sides, bad = (self._sides(P, others) for P in (X, unit.wrong))
            for k, other in enumerate(others):
                side = sides[:, k] == np.sign(bad[:, k].sum())
                some = self.rng.permutation(np.flatnonzero(side))[:_TESTED_SIDE]
                if abs(bad[:, k].mean()) < 1.0 or len(some) < _LEAST_ON_SIDE or side.mean() > 0.5:
                    continue
                answers = self.critical.bends(X[some], V[some])
                if np.sum(answers == 1) < _SIDE_SHARE * np.sum(answers >= 0):
                    self.units.remove(unit)
                    self.explained[unit.members] = False
                    break

    def _sides(self, X, units):
        """Signs (n, k) of units at points X (n, D)."""
        H = self.prefix.outputs(X)
        return np.sign(np.column_stack([H @ unit.w + unit.b for unit in units]))

    def refined(self, hits, aimed, depth=0):
        """Weights, bias and mask from positions and normals of critical points; None if they are no unit's."""
        H, m = np.concatenate([self.H[hits], self.prefix.outputs(aimed)]), self.H.shape[1]
        size = np.sqrt(1.0 + np.sum(H**2, axis=1))
        rows = np.column_stack([H, np.ones(len(H))]) / size[:, None]
        some = hits[self.critical.reliable[hits]][:_NORMALS]
        if len(some):
            N, B = self.critical.normals[some], np.swapaxes(self.A[some], 1, 2)
            R = (B - N[:, :, None] * np.einsum("nd,ndm->nm", N, B)[:, None]).reshape(-1, m)
            R = np.linalg.qr(np.vstack([R, np.zeros((m, m))]), mode="r")
            rows = np.vstack([rows, _NORMAL_WEIGHT * np.column_stack([R, np.zeros(len(R))])])
        norms = np.linalg.norm(rows[:, :m], axis=0)
        seen = norms > 1e-9
        columns, scale = np.append(seen, True), np.append(norms[seen], np.linalg.norm(rows[:, m]))
        M = rows[:, columns] / scale
        if len(M) < M.shape[1]:
            return None
        _, s, Vt = np.linalg.svd(M, full_matrices=False)
        loose = s[:-1] < max(_UNDETERMINED * s[0], 30.0 * s[-1])
        x = Vt[-1] / scale
        unknown = np.abs(Vt[:-1][loose]).max(axis=0) > _UNKNOWN if loose.any() else np.zeros(len(x), dtype=bool)
        if unknown[-1]:
            return None
        new, known = np.zeros(m), np.zeros(m, dtype=bool)
        new[seen], known[seen] = np.where(unknown[:-1], 0.0, x[:-1]), ~unknown[:-1]
        length = np.linalg.norm(new)
        if length == 0.0:
            return None
        residual = np.abs((H @ new + x[-1]) / size) / length
        bad = residual > max(_TRIMMED * np.median(residual), 1e-11)
        if bad.any() and depth < 3 and bad.mean() < 0.5:
            return self.refined(hits[~bad[: len(hits)]], aimed[~bad[len(hits) :]], depth + 1)
        return new / length, x[-1] / length, known

    def merge(self):
        """Join units that agree on the weights that both know."""
        while True:
            pair = self._same_pair()
            if pair is None:
                return
            one, other, factor = pair
            w = np.where(one.mask, one.w, factor * other.w)
            mask = one.mask | other.mask
            joined = np.concatenate([one.members, other.members])
            self.units.remove(other)
            if not self.settle(w, one.b, mask, joined, replaced=one) and len(other.members) > len(one.members):
                self.units[self.units.index(one)] = other

    def _same_pair(self):
        for k, one in enumerate(self.units):
            for other in self.units[:k]:
                both = one.mask & other.mask
                if both.sum() < 2:
                    continue
                x, y = (np.append(u.w[both] * self.scale, u.b) for u in (one, other))
                nx, ny = np.linalg.norm(x), np.linalg.norm(y)
                if min(np.linalg.norm(one.w[both]), np.linalg.norm(other.w[both])) < 1e-3:
                    continue
                if abs(abs(x @ y) / (nx * ny) - 1.0) < 1e-10:
                    return one, other, (x @ y) / ny**2
        return None

    def extend_masks(self):
        """Unknown weights from critical points that no unit explains, where their inputs are active."""
        for unit in list(self.units):
            if unit.mask.all() or unit not in self.units:
                continue
            index = self.usable()
            on = self.H[index] != 0.0
            index = index[(on & ~unit.mask).any(axis=1) & (on & unit.mask).any(axis=1)]
            w, mask, new = unit.w.copy(), unit.mask.copy(), []
            for i in index:
                value = self._fitting(w, unit.b, mask, i)
                if value is not None:
                    w, mask = value
                    new.append(i)
            if new:
                self.settle(w, unit.b, mask, np.concatenate([unit.members, new]), unit.aimed, unit)

    def _fitting(self, w, b, mask, i):
        """Weights and mask after a critical point that fits them, with its unknown weights; None if it does not."""
        H, A, n = self.H[i], self.A[i], self.critical.normals[i]
        unknown = np.flatnonzero((H != 0.0) & ~mask)
        known = A.T @ (w * mask)
        columns = [known, *A[unknown]]
        M = np.vstack([np.column_stack(columns), [H @ (w * mask) + b, *H[unknown]]])
        M = np.column_stack([M, np.append(-n, 0.0)])
        scale = np.maximum(np.linalg.norm(M, axis=0), 1e-300)
        M = M / scale
        if np.linalg.matrix_rank(M[:, 1:], tol=1e-8) < M.shape[1] - 1:
            return None
        rank = np.linalg.matrix_rank(np.column_stack([A.T / max(np.abs(A).max(), 1e-300), n]), tol=1e-7)
        if rank + 1 < M.shape[1] + 1:  # no equation is left to confirm it
            return None
        x = np.linalg.lstsq(M[:, 1:], -M[:, 0], rcond=1e-10)[0]
        if np.linalg.norm(M[:, 1:] @ x + M[:, 0]) > 1e-6:
            return None
        x = x / scale[1:] * scale[0]
        w, mask = w.copy(), mask.copy()
        w[unknown], mask[unknown] = x[:-1], True
        return w, mask
