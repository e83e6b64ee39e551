"""The units of the next layer: candidates from several critical points, confirmed where they predict others."""

from dataclasses import dataclass, replace

import numpy as np

from skident.optim import bisect

from .aimed_lines import aimed_lines
from .consensus import grown, partial_units
from .critical_set import straight_lines
from .unit_fit import fitted_unit, with_weights_at
from .unseen import complete_unit

_BISECTIONS = 45  # from a step of the grid to rounding
_HIT = 1e-6  # distance of a critical point from a predicted one, relative
_FIRST_HIT = 1e-5  # `_HIT` of a candidate from two critical points
_LEAST_FIRST = 0.35  # share of predicted critical points from which a candidate is refined
_ACCEPTED = 0.95  # share of predicted critical points that the outputs confirm: facets of deeper units have 0.8 or less
_ACCEPTED_BESIDE_LINEAR = 0.85  # `_ACCEPTED` behind linear units, which are wrong where the missing ones are inactive
_HOPELESS = 0.8  # share on the lines of the set below which no further points are tested
_LEAST_PREDICTED = 2  # critical points of a candidate
_LEAST_HITS = 3  # of these that are there
_NEW_SHARE = 0.5  # of a unit's critical points that no other unit explains, at least
_LEAST_KNOWN = 0.45  # share of weights that is known of a unit, unless it has
_MANY_MEMBERS = 30  # critical points, or more
_MOSTLY_KNOWN = 0.7  # share of the weights of a unit that counts with unknown ones
_FEWER_TESTED = 8  # of a unit of which no unknown weight matters, and all predicted points are right
_LEAST_TESTED = 20  # predicted points of other units
FURTHER_GRID = 400  # positions on these, at which units are predicted
_SAME_COSINE = 1.0 - 1e-10  # of the known weights of two units that are one
_LEAST_SHARED = 1e-3  # norm of weights that two parts of a unit share, over that of all
_MOST_FRUITLESS = 6  # attempts to complete units that gave no weight (budget: 500 queries per weight)
_FURTHER = 80  # lines of these
_FURTHER_AIMED = 40  # where units change their signs that hardly do so elsewhere
_TESTED = 40  # predicted points on further lines, where outputs are queried
_TESTED_FIRST = 8  # of these, at first
_TESTED_AT_ONCE = 3  # of these, of which the outputs confirm none of most facets of deeper units
_HOPELESS_FIRST = 0.6  # share that these suggest below which no others are tested
_MOST_IN_VAIN = 2000  # points tested of wrong candidates, per search: behind layers that lack a unit, most are (budget)
_LEAST_HIT_AGAIN = 0.6  # share of critical points where a unit known before predicts them: it is not tested again
_TESTED_HERE = 40  # `_TESTED` on the lines of the set without a critical point there


@dataclass(eq=False)
class Unit:
    """A unit, up to a factor: weights w (m,), 0 where the `mask` (m,) says that they are unknown, and bias b.

    `members` are its critical points, and `aimed` (k, D) further ones. The outputs confirm a `share` of `n_tested`
    predicted ones, and not the points `wrong` (k, D). `kept` (m,) is the sign that the unit keeps where an input with
    unknown weight is active, or 0.
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

    def __init__(self, critical, prefix, beside=None):
        self.critical, self.prefix, self.rng = critical, prefix, critical.rng
        self.H, self.A = prefix.outputs_and_gradients(critical.points)
        self.certain = prefix.certain(critical.points)
        self.explained = critical.explained(prefix, critical.points)[0]
        self.grid = prefix.outputs(critical.lines.grid_points)
        self.grid_certain = prefix.certain(critical.lines.grid_points)
        self.further = straight_lines(_FURTHER, prefix.n_inputs, self.rng, FURTHER_GRID)
        if prefix.weights:
            self.further = self.further.joined(aimed_lines(prefix, _FURTHER_AIMED, self.rng, FURTHER_GRID))
        self.further = self.further if beside is None else self.further.joined(beside)
        self.further_grid = prefix.outputs(self.further.grid_points)
        self.further_certain = prefix.certain(self.further.grid_points)
        self.scale = np.sqrt(1.0 + np.median(np.sum(self.H**2, axis=1)))
        self.accepted = _ACCEPTED_BESIDE_LINEAR if any(prefix.linear) else _ACCEPTED
        self.units, self.unresolved, self.n_before, self.n_fruitless = [], [], 0, 0
        self.n_in_vain = 0  # tested points of wrong units

    def usable(self):
        """Critical points that may be units of this layer."""
        return np.flatnonzero(self.critical.reliable & self.certain & ~self.explained)

    def weights(self):
        """Weights (m, K) and biases (K,) of the units, up to their signs."""
        return np.array([unit.w for unit in self.units]).T, np.array([unit.b for unit in self.units])

    def run(self, before, n_before=0):
        """Find units: those detected `before`, with the first `n_before` critical points, are tried first.

        Others have critical points beyond these.
        """
        self.n_before = n_before
        self.start_from(before)
        self.from_partial_units()
        self.extend_masks()
        self.add_unresolved()
        return self.units

    def start_from(self, units):
        """Take over units that were detected with fewer critical points."""
        m = self.H.shape[1]
        for unit in units:
            w, mask = np.zeros(m), np.zeros(m, dtype=bool)
            k = min(m, len(unit.w))
            w[:k], mask[:k] = unit.w[:k], unit.mask[:k]
            before = replace(unit, kept=None if unit.kept is None else np.append(unit.kept, np.zeros(m))[:m])
            self.settle(w, unit.b, mask, np.zeros(0, dtype=int), unit.aimed, before=before)

    def from_partial_units(self):
        """Units of which parts in several linear regions agree."""
        index = self.usable()
        w, b, _, unique = partial_units(self.H[index], self.A[index], self.critical.normals[index])
        index, w, b = index[unique], w[unique], b[unique]
        if len(index) == 0:
            return
        active = self.H[index] != 0.0 if self.prefix.weights else np.ones(w.shape, dtype=bool)
        free, seeded = np.ones(len(w), dtype=bool), index < self.n_before
        for seed in np.argsort(-active.sum(axis=1), kind="stable"):
            if seeded[seed] or not free[seed]:
                continue
            c, bias, mask, members = grown(w, b, active, self.scale, seed, free)
            seeded |= members
            k = index[members]
            if len(np.unique(self.critical.line[k])) > 1 and self.settle(c, bias, mask, k):
                free &= ~self.explained[index]

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
        low, high = bisect(
            lambda t: np.sign(self.prefix.outputs(lines.at(i, t)) @ (w * mask) + b) != np.sign(before),
            low,
            high,
            _BISECTIONS,
        )
        return i, 0.5 * (low + high)

    def settle(self, w, b, mask, members, aimed=None, replaced=None, before=None):
        """Refine a candidate by the critical points that it predicts, and keep it if the outputs confirm enough.

        What outputs showed of the same unit `before`, with fewer critical points, is not queried again.
        """
        aimed = self.critical.points[:0] if aimed is None else aimed
        unit = self.tested(Unit(w * mask, b, mask.copy(), members, aimed), before)
        complete = unit is None or unit.mask.all() or not self.prefix.weights  # all inputs of the first layer vary
        complete |= before is not None and before.kept is not None
        if not complete and self._is_worth_completing(unit, replaced):
            if complete_unit(self, unit):
                unit = self.tested(unit)
            else:
                self.n_fruitless += 1
        if unit is None:
            return False
        if replaced is not None:
            return self._replaces(unit, replaced)
        if not self._is_new_unit(unit):
            return False
        if not self._is_resolved(unit):
            self.unresolved.append(unit)
            return False
        self.units.append(unit)
        self.explained[unit.members] = True
        return True

    def _replaces(self, unit, replaced):
        """Replace a unit by a part of it that is better known, if it is; whether it is."""
        better = unit.mask.sum() > replaced.mask.sum() and len(unit.members) >= len(replaced.members)
        if better and unit.share >= min(self.accepted, replaced.share):
            self.units[self.units.index(replaced)] = unit
            self.explained[unit.members] = True
            return True
        return False

    def _is_worth_completing(self, unit, replaced):
        """Whether a unit, or what it replaces, seems to be one of this layer that is not complete yet."""
        new = replaced is not None or self._explains_new_points(unit)
        return (
            new
            and self.n_fruitless < _MOST_FRUITLESS
            and unit.share >= self.accepted
            and unit.n_tested >= _FEWER_TESTED
        )

    def _is_new_unit(self, unit):
        """Whether outputs confirm a unit, and no other one explains its critical points."""
        tested = unit.n_tested >= (_FEWER_TESTED if unit.share == 1.0 and self._is_resolved(unit) else _LEAST_TESTED)
        return tested and unit.share >= self.accepted and self._explains_new_points(unit)

    def _explains_new_points(self, unit):
        """Whether no other unit explains the critical points of a unit."""
        new, n = np.sum(~self.explained[unit.members]), len(unit.members)
        return new >= max(min(_LEAST_HITS, n), _NEW_SHARE * n) and not self._is_known(unit)

    def _is_resolved(self, unit):
        """Whether all that the outputs need to know of a unit is known."""
        known = unit.mask if unit.kept is None else unit.mask | (unit.kept != 0.0)
        few = unit.mask.mean() < _LEAST_KNOWN and len(unit.members) < _MANY_MEMBERS
        return bool(known.all()) and not few

    def _is_known(self, unit):
        """Whether a unit is one of those that are known, on the weights that both know."""
        return any(self._are_same(unit, other) for other in self.units)

    def _are_same(self, one, other):
        """Whether two units are parallel on the weights that both know."""
        both = one.mask & other.mask
        x, y = (np.append(u.w[both] * self.scale, u.b) for u in (one, other))
        shared = min(np.linalg.norm(one.w[both]), np.linalg.norm(other.w[both]))
        if both.sum() < _LEAST_PREDICTED or shared < _LEAST_SHARED:
            return False
        return abs(x @ y) > _SAME_COSINE * np.linalg.norm(x) * np.linalg.norm(y)

    def add_unresolved(self):
        """Add units of which some weights are unknown, if there is much evidence of them."""
        for unit in sorted(self.unresolved, key=lambda one: -one.mask.sum()):
            new = np.sum(~self.explained[unit.members])
            if unit.mask.mean() > _MOSTLY_KNOWN and new > _NEW_SHARE * len(unit.members) and not self._is_known(unit):
                self.units.append(unit)
                self.explained[unit.members] = True

    def tested(self, unit, before=None):
        """The `Unit` fitted to the critical points that it predicts, with the share of these that outputs confirm.

        None if it predicts too few.
        """
        critical, lines = self.critical, self.critical.lines
        args, tols = (lines, self.grid, self.grid_certain), (_FIRST_HIT, _FIRST_HIT, _HIT, _HIT)
        members, w, b, mask, fitted = unit.members, unit.w, unit.b, unit.mask, None
        for n_round, tol in enumerate(tols):
            i, t = self.predicted(w, b, mask, *args)
            if len(i) < _LEAST_PREDICTED:
                return None
            j, gap = critical.nearest(i, t)
            hit = gap < tol * (critical.space.unit + np.abs(t))
            if hit.sum() < _LEAST_HITS or (n_round == 0 and hit.mean() < _LEAST_FIRST):
                return None
            members = np.unique(np.concatenate([j[hit], members]) if n_round == 0 else j[hit])
            if n_round == len(tols) - 1 or np.array_equal(members, fitted):
                break
            found, fitted = self._fitted(members, unit.aimed), members
            if found is None:
                return None
            flip = -1.0 if found[0] @ w < 0.0 else 1.0  # `kept` belongs to one of the two signs
            w, b, mask = flip * found[0], flip * found[1], found[2]
        hit = gap < _HIT * (critical.space.unit + np.abs(t))
        if before is not None and hit.mean() > _LEAST_HIT_AGAIN:
            return Unit(w, b, mask, members, unit.aimed, before.share, before.n_tested, before.wrong, before.kept)
        if self.n_in_vain > _MOST_IN_VAIN:
            return None
        share, n_tested, wrong = self.confirmed_share(w, b, mask, i, t, hit)
        self.n_in_vain += n_tested if share < self.accepted else 0
        return Unit(w, b, mask, members, unit.aimed, share, n_tested, wrong, unit.kept)

    def _fitted(self, members, aimed):
        """Weights, bias and mask of the unit through critical points, and `aimed` ones (k, D)."""
        index = np.concatenate([members[self.critical.reliable[members]], members[~self.critical.reliable[members]]])
        H = np.concatenate([self.H[index], self.prefix.outputs(aimed)])
        normal = index[self.critical.reliable[index]]
        return fitted_unit(H, self.A[normal], self.critical.normals[normal])

    def confirmed_share(self, w, b, mask, i, t, hit):
        """Share of predicted points that the outputs confirm, how many were tested, and those not confirmed (k, D)."""
        lines = self.critical.lines
        missed = self.rng.permutation(np.flatnonzero(~hit))[:_TESTED_HERE]
        X = lines.at(i[missed], t[missed])
        V = lines.directions[i[missed]]
        bends = self.critical.bends(X[:_TESTED_AT_ONCE], V[:_TESTED_AT_ONCE])
        if np.any(bends == 1) or not np.any(bends == 0):
            more = slice(_TESTED_AT_ONCE, _TESTED_FIRST)
            bends = np.concatenate([bends, self.critical.bends(X[more], V[more])])
        seen = bends[bends >= 0]
        expected = hit.sum() + (np.mean(seen) if len(seen) else 1.0) * len(missed)
        if expected < _HOPELESS_FIRST * (hit.sum() + len(missed)):
            return expected / (hit.sum() + len(missed)), len(seen), X[: len(bends)][bends == 0]
        bends = np.concatenate([bends, self.critical.bends(X[len(bends) :], V[len(bends) :])])
        n_bent, n, wrong = hit.sum() + np.sum(bends == 1), hit.sum() + np.sum(bends >= 0), X[bends == 0]
        if n == 0 or n_bent < _HOPELESS * n:
            return n_bent / max(n, 1), n, wrong
        X, V = self.further_points(w, b, mask)
        some = self.rng.permutation(len(X))[:_TESTED]
        bends = self.critical.bends(X[some], V[some])
        n_bent, n = n_bent + np.sum(bends == 1), n + np.sum(bends >= 0)
        return n_bent / n, n, np.concatenate([wrong, X[some][bends == 0]])

    def further_points(self, w, b, mask):
        """Points (n, D) on further lines, of directions (n, D), where a unit is predicted to vanish."""
        i, t = self.predicted(w, b, mask, self.further, self.further_grid, self.further_certain)
        return self.further.at(i, t), self.further.directions[i]

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
                value = with_weights_at(w, unit.b, mask, (self.H[i], self.A[i], self.critical.normals[i]))
                if value is not None:
                    w, mask = value
                    new.append(i)
            if new:
                self.settle(w, unit.b, mask, np.concatenate([unit.members, new]), unit.aimed, unit)
