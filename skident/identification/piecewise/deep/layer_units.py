"""The units of the next layer, from kinks that no known unit explains."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from skident.budget import check_deadline, require_memory

from ..kernel.lines import CriticalPoints
from .facets import FacetUnit
from .fill_missing import with_hidden_weights
from .follow_facets import kinks_seen, share_of_kinks, share_of_sides, trace
from .known_layers import KnownLayers
from .refinement import intersection, kinks_of, parallel, refine
from .same_layer import bends_at
from .signs import features_with_signs, layer_signs, signs_beside_linear_part
from .undetermined_weights import usual_sides

__all__ = ["LayerUnits"]

_GOOD, _POOR = 0.85, 0.2  # share of predicted kinks that a unit shows, and that which others of its layer vouch for
_NONE, _SIDES = 0.1, 0.5
_MOST_WASTED = 8000  # queries in succession on kinks of no unit of the layer, after which the others are left
_REACH, _POINTS = 6.0, 2000  # of what is always on, in standard deviations, and points that tell how large it gets
_SVD = 20.0  # operations of a singular value decomposition, beside n m^2 (Golub and Van Loan, section 8.6)
_CHOICES = 4  # signs at most of which no unit tells anything that are tried both ways


@dataclass
class LayerUnits:
    """Units of layer l + 1 as far as they are known, and the signs of layer l.

    Attributes
    ----------
    known : KnownLayers
    units : list of FacetUnit
    slope : float or None
        Of units of layer l that are not active; None until it is found.
    vague : ndarray of bool, shape (m_{l-1}, m_l) or None
        Weights of layer l that no kink tells, as their inputs are silent there, until the signs are found.
    signs : ndarray of shape (m_l,) or None
        None until the units determine them.
    choices : list of ndarray of shape (m_l,)
        Other signs, where no unit tells some of them.
    deep : CriticalPoints
        Kinks of no unit of this layer.
    linear : ndarray of shape (m_{l-1}, r) or None
        What units of layer l that are always on, and were not found, are combinations of.
    """

    known: KnownLayers
    units: list = field(default_factory=list)
    signs: np.ndarray | None = None
    choices: list = field(default_factory=list)
    deep: CriticalPoints | None = None
    linear: np.ndarray | None = None
    slope: float | None = 0.0
    vague: np.ndarray | None = None

    @property
    def basis(self):
        """What theta is a combination of, once the signs are known."""
        return None if self.signs is None else features_with_signs(self.known, self.signs, self.linear, self.slope)

    def explain(self, points):
        """Which points lie on kinks of the known layers or of these units.

        Parameters
        ----------
        points : ndarray of shape (n, D)

        Returns
        -------
        ndarray of bool, shape (n,)
        """
        explained = self.known.on_known_kinks(points)
        for unit in self.units:
            explained |= unit.passes(points)
        return explained

    def take_up(self, probe, kinks, rng):
        """Units that kinks belong to; the other kinks are kept as deep ones.

        Parameters
        ----------
        probe : DeepProbe
        kinks : CriticalPoints
        rng : numpy.random.RandomState

        Returns
        -------
        int
            New units.

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        before, wasted, doubtful, deep = len(self.units), 0, [], []
        queue, points = list(np.argsort(kinks.errors)), kinks.points
        while queue:
            check_deadline()
            i = queue.pop(0)
            if self.explain(points[i][None])[0] or self._adopted(kinks, i):
                continue
            if wasted > _MOST_WASTED:
                deep.append(i)
                continue
            asked = probe.oracle.n_queries
            unit = self._traced(probe, kinks, i, rng)
            if unit is None or unit.share < _NONE:
                deep.append(i)
                wasted += probe.oracle.n_queries - asked
            elif unit.share < _GOOD:
                doubtful.append((unit, i))
            else:
                wasted = 0
                if not self._merged(probe, unit, rng):
                    self._hold(unit)
                if self.signs is None and self._tell_signs(probe, rng):
                    wasted, queue, deep = 0, queue + deep, []
                elif self._of_layer_before():  # without it the others would be followed in vain
                    queue, doubtful, deep = [], [], [*deep, *queue, *(j for _, j in doubtful)]
        for unit, i in sorted(doubtful, key=lambda pair: -pair[0].share):
            if self.explain(points[i][None])[0]:
                continue
            if unit.share < _POOR or share_of_sides(probe, unit, self.units, rng) < _GOOD:
                deep.append(i)
            elif not self._merged(probe, unit, rng):
                self._hold(unit)
        self._drop_copies()
        deep = kinks.take(np.array(deep, dtype=int))
        deep = deep if self.deep is None else self.deep.joined(deep)
        self.deep = deep.take(~self.explain(deep.points))
        return len(self.units) - before

    def _hold(self, unit):
        self.units.append(unit)
        n_bytes = sum(u.rows.nbytes + u.open.nbytes + u.scatter.nbytes for u in self.units)
        require_memory(n_bytes, f"the equations of {len(self.units)} units of one layer")

    def _adopted(self, kinks, i):
        """Whether a kink belongs to a unit found, where that was not determined."""
        kink = kinks.points[i], kinks.normals[i], kinks.errors[i]
        return kink[2] < 1e-4 and any(unit.adopt(*kink) for unit in self.units if unit.n_open)

    def _traced(self, probe, kinks, i, rng):
        """The unit of a kink, or None."""
        unit = FacetUnit(self.known, kinks.points[i], kinks.normals[i], self.basis, kinks.errors[i])
        allowed = 1e-5 if self.known.accuracy else max(1e-6, 1e3 * kinks.errors[i])
        if self.signs is not None and unit.misfit > allowed:
            return None
        if not self.known.accuracy and bends_at(probe, unit, self.units, rng):
            return None
        if not trace(probe, unit, rng):
            return None
        refine(probe, unit, rng)
        unit.share = share_of_kinks(probe, unit, rng, 8)[0]
        return unit

    def _merged(self, probe, unit, rng):
        """Whether the unit is one of those known, seen elsewhere; then that one takes up what it knows."""
        for k, other in enumerate(self.units):
            joint = intersection(other, unit)
            if joint is not None:
                trace(probe, joint, rng, n_rounds=10)
                refine(probe, joint, rng)
                joint.share = share_of_kinks(probe, joint, rng)[0]
                if joint.share >= 0.8 * other.share:
                    self.units[k] = joint
                    return True
        return False

    def _drop_copies(self):
        """Of units that are the same wherever both are known, keep the one that is known best; drop those unknown."""
        if self.signs is None:
            return
        order = sorted(range(len(self.units)), key=lambda k: (self.units[k].n_open, -self.units[k].share))
        kept, rows = [], []
        for k in order:
            w, known = self._weights_of(self.units[k])
            same = any(parallel(w[both], v[both]) for v, other in rows if (both := known & other).sum() > 2)
            if not same and np.any(w[:-1][known[:-1]]):
                kept.append(k)
                rows.append((w, known))
        self.units = [self.units[k] for k in sorted(kept)]

    def _weights_of(self, unit):
        """Weights and bias (m_l + 1,) of a unit, and which of them are determined."""
        B = self.basis
        check_deadline(_SVD * B.shape[0] * B.shape[1] ** 2)
        w = np.linalg.lstsq(B, unit.theta, rcond=None)[0]
        return w, np.linalg.norm(np.linalg.lstsq(B, unit.open, rcond=None)[0], axis=1) < unit.tolerance

    def _tell_signs(self, probe, rng):
        """Whether the units determine the signs of layer l; then all units are taken up again with these."""
        known = self.known
        if len(self.units) * known.n_before < known.n_units + 2:
            return False
        told = layer_signs(known, self.units, self.slope, vague=self.vague)
        enough = len(told.used) > max((known.n_units + 1) / known.n_before, 0.7 * len(self.units))
        if not (told.determined.all() and told.certain and told.misfit < 1e-5 and enough):
            return False
        self.slope = told.slope
        self._fill(told)
        self._rebase(probe, np.sign(told.signs), rng)
        return True

    def settle_signs(self, probe, rng):
        """The signs of layer l as far as the units tell them; what they do not tell is 1, the rest kept as choices.

        Parameters
        ----------
        probe : DeepProbe
        rng : numpy.random.RandomState

        Returns
        -------
        bool
            Whether there are signs now.

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        if self.signs is not None or not self.units:
            return self.signs is not None
        told = layer_signs(self.known, self.units, self.slope, vague=self.vague)
        if not told.certain or told.misfit > 1e-4 or len(told.used) < 0.7 * len(self.units):
            if self.slope != 0.0:
                return False
            signs, self.linear = signs_beside_linear_part(self.known, self.units)
            if signs is not None:
                self._rebase(probe, signs, rng)
            return signs is not None
        self.slope = told.slope
        self._fill(told)
        signs = np.where(told.signs >= 0, 1.0, -1.0)
        free = np.flatnonzero(~told.determined)[:_CHOICES]
        choices = np.repeat(signs[None], 2 ** len(free), axis=0)
        choices[:, free] = [[1.0 - 2.0 * (i >> bit & 1) for bit in range(len(free))] for i in range(len(choices))]
        # A unit that is on wherever it was seen would leave a misfit if it were taken as off.
        bases = [features_with_signs(self.known, signs, slope=self.slope) for signs in choices]
        fits = [sum(unit.with_basis(basis).misfit <= 1e-5 for unit in self.units) for basis in bases]
        best = np.flatnonzero(np.array(fits) == max(fits))
        self.choices = list(choices[best[1:]])
        self._rebase(probe, choices[best[0]], rng)
        return True

    def _fill(self, told):
        """Take up weights of layer l that only the linear parts of the units told, with the signs."""
        self.known, self.units = with_hidden_weights(self.known, self.units, told)
        self.vague = None

    def try_other_signs(self, probe, rng):
        """Take the next choice of signs.

        Parameters
        ----------
        probe : DeepProbe
        rng : numpy.random.RandomState

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        self._rebase(probe, self.choices.pop(0), rng)

    def _rebase(self, probe, signs, rng):
        """The same units with the signs of layer l; those that contradict them become deep kinks."""
        self.signs, old, self.units, lost = signs, self.units, [], []
        basis = self.basis
        for unit in old:
            new = unit.with_basis(basis)
            if new.misfit > 1e-5:
                lost.append(unit)
                continue
            if new.n_open:
                trace(probe, new, rng, n_rounds=15)
            refine(probe, new, rng)
            new.share = share_of_kinks(probe, new, rng)[0]
            if new.share < min(_GOOD, 0.8 * unit.share):
                lost.append(unit)
            elif not self._merged(probe, new, rng):
                self._hold(new)
        self._drop_copies()
        if lost:
            again = kinks_of(lost, self.known.n_inputs)
            self.deep = again if self.deep is None else self.deep.joined(again)

    def missed_before(self):
        """Kinks of units that belong to layer l: they do not change where other units of that layer have their kinks.

        Returns
        -------
        CriticalPoints
        """
        return kinks_of(self._of_layer_before(), self.known.n_inputs)

    def planes_before(self):
        """Hyperplanes of such units, if layer l is the first.

        Returns
        -------
        list of ndarray of shape (D + 1,)
            Normals of norm 1, and offsets.
        """
        planes = [unit.theta[self.known.n_units :] for unit in self._of_layer_before()]
        return [plane / np.linalg.norm(plane[:-1]) for plane in planes]

    def _of_layer_before(self):
        K = self.known.n_units
        told = [u for u in self.units if np.abs(u.open[:K]).max(initial=0.0) < u.tolerance]
        return [u for u in told if np.abs(u.theta[:K]).max() < u.tolerance * np.linalg.norm(u.theta)]

    def drop_strangers(self, probe, rng):
        """Drop facets of deeper units, which end where they meet other units of the layer; one after the other.

        Parameters
        ----------
        probe : DeepProbe
        rng : numpy.random.RandomState

        Returns
        -------
        int
            Units dropped.

        Raises
        ------
        BlackBoxError
            If the black box fails.
        """
        new = [unit for unit in self.units if not unit.vouched]
        seen = {id(unit): kinks_seen(probe, unit, self.units, rng) for unit in new}
        copies = [k for k, unit in enumerate(self.units) if not unit.vouched and self._is_copy(seen[id(unit)], unit)]
        kept, dropped = [k for k in range(len(self.units)) if k not in copies], len(copies)
        while new and len(kept) > 2:
            index = [k for k in kept if not self.units[k].vouched]
            looks = [seen[id(self.units[k])] for k in index]
            shares = [1.0 if s is None else s.share_of_sides([j for j in kept if j != k]) for k, s in zip(index, looks)]
            if not shares or min(shares) >= _SIDES:
                break
            kept.remove(index[int(np.argmin(shares))])
            dropped += 1
        self.units = [self.units[k] for k in kept]
        for unit in self.units:
            unit.vouched = True
        return dropped

    def _is_copy(self, looked_at, unit):
        """Whether all that is seen of a unit are kinks of another one that is seen more often."""
        if looked_at is None or looked_at.hit.mean() > _GOOD + 0.1:
            return False
        points = looked_at.points[looked_at.hit]
        return any(o is not unit and o.share > unit.share and o.passes(points).mean() > _GOOD for o in self.units)

    def weights(self):
        """Weights and biases of the units, up to a factor each.

        Returns
        -------
        W : ndarray of shape (m_l + r, m_{l+1})
            Columns of norm 1, for the units of layer l as `signed` has them; of what is not determined the least that
            is right near the kinks seen.
        b : ndarray of shape (m_{l+1},)
        open_entries : ndarray of shape (m_l + r, m_{l+1})
            Not 0 where weights are not determined: 1 where inputs are active on all kinks seen, -1 where they are not.
        """
        pairs, K = [self._weights_of(unit) for unit in self.units], self.known.n_units
        rows = np.array([w / max(np.linalg.norm(w), np.finfo(float).tiny) for w, _ in pairs])
        unknown = ~np.array([known[:-1] for _, known in pairs]).T
        usual = np.where(unknown, 1.0, 0.0)  # what is always on is so on all kinks
        usual[:K] = usual_sides(self.known, self.signs, self.units, unknown[:K])
        return rows[:, :-1].T, rows[:, -1] - rows[:, K:-1] @ self._lifts(), usual

    def signed(self):
        """Weights and biases of layer l with their signs, and units that are always on for what is linear.

        Returns
        -------
        W : ndarray of shape (m_{l-1}, m_l + r)
        b : ndarray of shape (m_l + r,)
        """
        W, b = self.known.weights * self.signs, self.known.biases * self.signs
        return (W, b) if self.linear is None else (np.hstack([W, self.linear]), np.append(b, self._lifts()))

    def _lifts(self):
        """Biases (r,) of units that are always on within reach, in place of a linear part."""
        if self.linear is None or self.linear.shape[1] == 0:
            return np.zeros(0)
        X = _REACH * np.random.RandomState(0).standard_normal((_POINTS, self.known.n_inputs))
        return 2.0 * np.abs(self.known.evaluate(X)[1][:, self.known.n_units : -1] @ self.linear).max(axis=0)
