"""The units of the next layer, from critical points that no known unit explains."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np

from skident.budget import check_deadline, require_memory
from skident.linalg import lapack

from ...constants import ACCEPTED, INDEPENDENT, SVD_OPERATIONS
from ..kernel.lines import CriticalPoints
from .facet_unit import CONTRADICTION, SAME_DIRECTION, FacetUnit, intersection
from .follow_facets import extend_unit
from .known_layers import KnownLayers
from .predictions import crossing_support, ends_at_others, hit_rate, probe_predictions, refine
from .signs import features_with_signs, layer_signs, signs_beside_linear_part, with_missing_weights

__all__ = ["LayerUnits"]

# Accepting units, by the share of predicted points that the outputs confirm.
_DOUBTFUL = 0.2  # above which others of the layer may support it
_FOREIGN = 0.1  # below which it is none of this layer
_LAYER_SUPPORT = 0.5  # of a unit of the layer, once its others are known
_MERGED = 0.8  # share of a merged unit, over that of one part
_CONFIRMED = 0.95  # above which a unit is no part of another one
_MOST_WASTED = 8000  # queries in succession on points of no unit of the layer, after which the others are left
_N_TESTED = 8  # predicted points tested of a new unit
_ROUNDS_MERGED = 10  # of extending a merged unit
_ROUNDS_SIGNED = 15  # of extending a unit whose signs are new
_ASSIGN_TOL = 1e-4  # error of a normal that still assigns its point to a unit
# Equations and directions.
_POINT_TOL = 1e-6  # residual of a critical point of this layer, once the signs are known
_POINT_ERRORS = 1e3  # `_POINT_TOL` in errors of its normal
_SIGNS_TOL = 1e-4  # residual up to which signs are accepted at last
_SIGNS_SHARE = 0.7  # of the units whose equations must agree
_FEWEST_BESIDE_SKIP = 2  # units whose equations must contradict each other before a skip connection is tried
_MOST_CHOICES = 4  # undetermined signs of which both are tried
_LINEAR_TOL = 1e-6  # residual of a normal that a combination of the linear part explains
_LINEAR_TOL_NOISY = 1e-4  # `_LINEAR_TOL` at most for large errors
_LINEAR_ERRORS = 30.0  # `_LINEAR_TOL` in errors of the normal
_POINT_ERROR = 1e-9  # error of the normals of points that units are given up for, as those of exact outputs
# Units that are always active.
_REACH = 6.0  # standard deviations of the inputs up to which they must be
_N_POINTS = 2000  # at which their size is evaluated


class Outcome(enum.Enum):
    """What following the boundary of a critical point says of it."""

    ACCEPTED = "a unit of the layer"
    DOUBTFUL = "a unit of the layer if others support it"
    FOREIGN = "a unit of no such layer, or none"


@dataclass
class LayerUnits:
    """Units of layer l + 1 as far as they are known, and the signs of layer l."""

    known: KnownLayers
    units: list = field(default_factory=list)  # of FacetUnit
    signs: np.ndarray | None = None  # (m_l,), None until the units determine them
    choices: list = field(default_factory=list)  # other signs (m_l,), if no unit determines some of them
    foreign: CriticalPoints | None = None  # points of no unit of this layer
    linear: np.ndarray | None = None  # (m_{l-1}, r), spans the units of layer l that are always active and missing
    skip: bool = False  # whether units read layer l - 1 beside layer l
    slope: float | None = 0.0  # of inactive units of layer l; None until it is recovered
    undetermined: np.ndarray | None = None  # (m_{l-1}, m_l), mask of weights of layer l until the signs are known

    @property
    def basis(self):
        """What the coefficients of units are combinations of, once the signs are known."""
        return None if self.signs is None else features_with_signs(self.known, self.signs, self.linear, self.slope)

    def explains(self, points):
        """Which points (n, D) are on boundaries of the known layers or of these units: a mask (n,)."""
        explained = self.known.on_boundaries(points)
        for unit in self.units:
            explained |= unit.contains(points)
        return explained

    def add(self, probe, critical, rng):
        """Add the units that critical points belong to, and keep the others as foreign; the number of new units."""
        before, wasted, doubtful, foreign = len(self.units), 0, [], []
        queue = list(np.argsort(critical.errors))
        while queue:
            check_deadline()
            i = queue.pop(0)
            if self.explains(critical.points[i][None])[0] or self._assigned(critical, i):
                continue
            if wasted > _MOST_WASTED:
                foreign.append(i)
                continue
            n_queries = probe.oracle.n_queries
            unit, outcome = self._follow(probe, critical, i, rng)
            if outcome is Outcome.FOREIGN:
                foreign.append(i)
                wasted += probe.oracle.n_queries - n_queries
            elif outcome is Outcome.DOUBTFUL:
                doubtful.append((unit, i))
            else:
                wasted = 0
                self._merge_or_append(probe, unit, rng)
                if self.signs is None and self._determine_signs(probe, rng):
                    wasted, queue, foreign = 0, queue + foreign, []
                elif self._units_of_previous_layer():  # without it the others would be followed in vain
                    queue, doubtful, foreign = [], [], [*foreign, *queue, *(j for _, j in doubtful)]
        foreign += self._add_supported(probe, critical, doubtful, rng)
        self._drop_duplicates()
        self._keep_foreign(critical.take(np.array(foreign, dtype=int)))
        return len(self.units) - before

    def _assigned(self, critical, i):
        """Whether a critical point was assigned to a unit that is undetermined there."""
        point = critical.points[i], critical.normals[i], critical.errors[i]
        return point[2] < _ASSIGN_TOL and any(unit.assign(*point) for unit in self.units if unit.nullity)

    def _follow(self, probe, critical, i, rng):
        """The unit of a critical point, followed as far as it goes, or None, and the `Outcome`."""
        unit = FacetUnit(self.known, critical.points[i], critical.normals[i], self.basis, critical.errors[i])
        allowed = CONTRADICTION if self.known.accuracy else max(_POINT_TOL, _POINT_ERRORS * critical.errors[i])
        if self.signs is not None and unit.residual > allowed:
            return None, Outcome.FOREIGN
        if not self.known.accuracy and ends_at_others(probe, unit, self.units, rng):
            return None, Outcome.FOREIGN
        if not extend_unit(probe, unit, rng):
            return None, Outcome.FOREIGN
        refine(probe, unit, rng)
        unit.hit_rate = hit_rate(probe, unit, rng, _N_TESTED)[0]
        if unit.hit_rate < _FOREIGN:
            return unit, Outcome.FOREIGN
        return unit, Outcome.DOUBTFUL if unit.hit_rate < ACCEPTED else Outcome.ACCEPTED

    def _add_supported(self, probe, critical, doubtful, rng):
        """Add doubtful units (pairs of unit and index) that others of the layer support; the indices of the others."""
        foreign = []
        for unit, i in sorted(doubtful, key=lambda pair: -pair[0].hit_rate):
            if self.explains(critical.points[i][None])[0]:
                continue
            if unit.hit_rate < _DOUBTFUL or crossing_support(probe, unit, self.units, rng) < ACCEPTED:
                foreign.append(i)
            else:
                self._merge_or_append(probe, unit, rng)
        return foreign

    def _keep_foreign(self, critical):
        """Keep critical points for the layers behind, as long as no unit explains them."""
        foreign = critical if self.foreign is None else self.foreign.joined(critical)
        self.foreign = foreign.take(~self.explains(foreign.points))

    def _merge_or_append(self, probe, unit, rng):
        """Merge a unit with a known one of which it is another part, or else append it."""
        for k, other in enumerate(self.units):
            joint = intersection(other, unit)
            if joint is not None:
                extend_unit(probe, joint, rng, n_rounds=_ROUNDS_MERGED)
                refine(probe, joint, rng)
                joint.hit_rate = hit_rate(probe, joint, rng)[0]
                if joint.hit_rate >= _MERGED * other.hit_rate:
                    self.units[k] = joint
                    return
        self.units.append(unit)
        n_bytes = sum(u.equations.nbytes + u.null_basis.nbytes + u.cov_root.nbytes for u in self.units)
        require_memory(n_bytes, f"the equations of {len(self.units)} units of one layer")

    def _drop_duplicates(self):
        """Of units that are parallel where both are determined, keep the best known; drop those without any weight."""
        if self.signs is None:
            return
        order = sorted(range(len(self.units)), key=lambda k: (self.units[k].nullity, -self.units[k].hit_rate))
        kept, weights = [], []
        for k in order:
            w, known = self._weights_of(self.units[k])
            same = any(_parallel(w[both], v[both]) for v, other in weights if (both := known & other).sum() > 2)
            if not same and np.any(w[:-1][known[:-1]]):
                kept.append(k)
                weights.append((w, known))
        self.units = [self.units[k] for k in sorted(kept)]

    def _weights_of(self, unit):
        """Weights and bias (m_l + 1,) of a unit, and a mask of the determined ones."""
        B = self.basis
        check_deadline(SVD_OPERATIONS * B.shape[0] * B.shape[1] ** 2)
        # By QR with pivoting: divide and conquer does not always converge on such matrices.
        solved = lapack.scipy_lstsq(B, np.column_stack([unit.coef, unit.null_basis]), lapack_driver="gelsy")[0]
        return solved[:, 0], np.linalg.norm(solved[:, 1:], axis=1) < unit.tolerance

    def _determine_signs(self, probe, rng):
        """Whether the units determine all signs of layer l; then these are applied."""
        known = self.known
        if len(self.units) * known.n_before < known.n_units + 2:
            return False
        solution = layer_signs(known, self.units, self.slope, self.undetermined)
        enough = len(solution.used) > max((known.n_units + 1) / known.n_before, _SIGNS_SHARE * len(self.units))
        agree = solution.certain and solution.residual < CONTRADICTION and enough
        if not (solution.determined.all() and agree):
            return False
        self._fill_missing(solution)
        self._apply_signs(probe, np.sign(solution.signs), rng)
        return True

    def fix_signs(self, probe, rng, with_skip=False):
        """Set the signs of layer l as far as units determine them, keep others as choices; whether there are any.

        `with_skip`, units whose equations contradict each other may read layer l - 1 beside layer l.
        """
        if self.signs is not None or not self.units:
            return self.signs is not None
        solution = layer_signs(self.known, self.units, self.slope, self.undetermined)
        few = len(solution.used) < _SIGNS_SHARE * len(self.units)
        if not solution.certain or solution.residual > _SIGNS_TOL or few:
            if self.slope == 0.0:
                signs, self.linear = signs_beside_linear_part(self.known, self.units)
                if signs is not None:
                    self._apply_signs(probe, signs, rng)
            if self.signs is None and with_skip:
                self._apply_skip(probe, rng)
            return self.signs is not None
        self._fill_missing(solution)
        best, *self.choices = self._best_choices(solution)
        self._apply_signs(probe, best, rng)
        return True

    def _apply_skip(self, probe, rng):
        """Let the units read layer l - 1 beside layer l, by linear units: signs and slopes do not matter.

        Leaky ReLU units of either sign are combinations of ``relu(z)`` and z: they change the linear units only.
        """
        if len([unit for unit in self.units if unit.nullity == 0]) < _FEWEST_BESIDE_SKIP:
            return
        self.linear, self.slope, self.skip = np.eye(self.known.n_before), 0.0, True
        self._apply_signs(probe, np.ones(self.known.n_units), rng)

    def _best_choices(self, solution):
        """The choices of undetermined signs (m_l,) that most units agree with.

        A unit that is active wherever it was queried would leave a residual if it were taken as inactive.
        """
        signs = np.where(solution.signs >= 0, 1.0, -1.0)
        free = np.flatnonzero(~solution.determined)[:_MOST_CHOICES]
        choices = np.repeat(signs[None], 2 ** len(free), axis=0)
        choices[:, free] = [[1.0 - 2.0 * (i >> bit & 1) for bit in range(len(free))] for i in range(len(choices))]
        bases = [features_with_signs(self.known, signs, slope=self.slope) for signs in choices]
        fits = [sum(unit.with_basis(basis).residual <= CONTRADICTION for unit in self.units) for basis in bases]
        return list(choices[np.array(fits) == max(fits)])

    def _fill_missing(self, solution):
        """Set the slope, and the weights of layer l that were solved for with the signs."""
        self.slope = solution.slope
        self.known, self.units = with_missing_weights(self.known, self.units, solution)
        self.undetermined = None

    def try_other_signs(self, probe, rng):
        """Apply the next choice of signs."""
        self._apply_signs(probe, self.choices.pop(0), rng)

    def _apply_signs(self, probe, signs, rng):
        """The same units with the signs of layer l; those that contradict them become foreign points."""
        self.signs, old, self.units, lost = signs, self.units, [], []
        basis = self.basis
        for unit in old:
            new = unit.with_basis(basis)
            if new.residual > CONTRADICTION:
                lost.append(unit)
                continue
            if new.nullity:
                extend_unit(probe, new, rng, n_rounds=_ROUNDS_SIGNED)
            refine(probe, new, rng)
            new.hit_rate = hit_rate(probe, new, rng)[0]
            if new.hit_rate < min(ACCEPTED, _MERGED * unit.hit_rate):
                lost.append(unit)
            else:
                self._merge_or_append(probe, new, rng)
        self._drop_duplicates()
        if lost:
            again = _critical_points_of(lost, self.known.n_inputs)
            self.foreign = again if self.foreign is None else self.foreign.joined(again)

    def _units_of_previous_layer(self):
        """Units of layer l: their boundaries do not change where they cross others of that layer."""
        K = self.known.n_units
        determined = [u for u in self.units if np.abs(u.null_basis[:K]).max(initial=0.0) < u.tolerance]
        return [u for u in determined if np.abs(u.coef[:K]).max() < u.tolerance * np.linalg.norm(u.coef)]

    def points_of_previous_layer(self):
        """Critical points of the units that belong to layer l."""
        return _critical_points_of(self._units_of_previous_layer(), self.known.n_inputs)

    def planes_of_previous_layer(self):
        """Hyperplanes (D + 1,) of these units, if layer l is the first: unit normals and offsets."""
        planes = [unit.coef[self.known.n_units :] for unit in self._units_of_previous_layer()]
        return [plane / np.linalg.norm(plane[:-1]) for plane in planes]

    def drop_deeper_facets(self, probe, rng):
        """Drop facets of deeper units, which end at others of the layer, worst first; how many were dropped."""
        hits = {k: probe_predictions(probe, u, self.units, rng) for k, u in enumerate(self.units) if not u.confirmed}
        kept = [k for k in range(len(self.units)) if k not in hits or not self._is_part_of_another(hits[k], k)]
        while hits and len(kept) > 2:
            new = [k for k in kept if k in hits]
            support = [1.0 if hits[k] is None else hits[k].support([j for j in kept if j != k]) for k in new]
            if not support or min(support) >= _LAYER_SUPPORT:
                break
            kept.remove(new[int(np.argmin(support))])
        dropped = len(self.units) - len(kept)
        self.units = [self.units[k] for k in kept]
        for unit in self.units:
            unit.confirmed = True
        return dropped

    def _is_part_of_another(self, hits, k):
        """Whether all confirmed points of the k-th unit are on another one with a higher hit rate."""
        if hits is None or not 0.0 < hits.hit.mean() <= _CONFIRMED:
            return False
        points, unit = hits.points[hits.hit], self.units[k]
        others = [other for other in self.units if other is not unit and other.hit_rate > unit.hit_rate]
        return any(other.contains(points).mean() > ACCEPTED for other in others)

    def add_from_linear_part(self, linear, critical):
        """Add units that a linear part represented, of which critical points give all that is unknown, the bias.

        Their weights are combinations of `linear` (m_l, r). The number of new units.
        """
        B, before, known = self.basis, len(self.units), self.known
        if len(linear) != B.shape[1] - 1:
            return 0
        Z, phi = known.evaluate(critical.points)
        for i in np.argsort(critical.errors):
            point, normal, error = critical.points[i], critical.normals[i], critical.errors[i]
            if len(self.units) == before + linear.shape[1]:
                break
            gradients = known.feature_gradients(Z[i][None] > 0)[0].T @ B[:, :-1]
            if lapack.matrix_rank(gradients, rtol=INDEPENDENT) <= linear.shape[1]:
                continue
            c = lapack.lstsq(gradients @ linear, normal, rcond=INDEPENDENT)[0]
            slack = min(
                max(_LINEAR_TOL, _LINEAR_ERRORS * error), max(_LINEAR_TOL_NOISY, _LINEAR_ERRORS * known.accuracy)
            )
            if np.linalg.norm(gradients @ linear @ c - normal) > slack or self.explains(point[None])[0]:
                continue
            coef = B[:, :-1] @ (linear @ c)
            coef -= (phi[i] @ coef) * B[:, -1]
            unit = FacetUnit(known, point, normal, B)
            unit.add_equations(np.eye(len(coef)), coef, point[None])
            unit.hit_rate, unit.confirmed = 1.0, True
            self.units.append(unit)
        return len(self.units) - before

    def weights(self):
        """Weights (m_l + r, m_{l+1}) in columns of norm 1 and biases (m_{l+1},) of the units, and undetermined entries.

        The weights are for the units of layer l as in `signed_layer`, undetermined ones the least that are right near
        the critical points. The third array (m_l + r, m_{l+1}) is 1 where a weight is undetermined and its input was
        active on most critical points, -1 where it was not, 0 where the weight is determined.
        """
        pairs, K = [self._weights_of(unit) for unit in self.units], self.known.n_units
        rows = np.array([w / max(np.linalg.norm(w), np.finfo(float).tiny) for w, _ in pairs])
        unknown = ~np.array([known[:-1] for _, known in pairs]).T
        usual = np.where(unknown, 1.0, 0.0)  # units that are always active are so on all critical points
        for j in np.flatnonzero(unknown[:K].any(axis=0)):
            Z = self.known.evaluate(self.units[j].located)[0][:, self.known.first :] * self.signs
            usual[:K, j] = np.where(unknown[:K, j], np.where(np.mean(Z > 0, axis=0) > 0.5, 1.0, -1.0), 0.0)
        return rows[:, :-1].T, rows[:, -1] - rows[:, K:-1] @ self._lifts(), usual

    def signed_layer(self):
        """Weights (m_{l-1}, m_l + r) and biases of layer l with signs, and always active units for a linear part."""
        W, b = self.known.weights * self.signs, self.known.biases * self.signs
        return (W, b) if self.linear is None else (np.hstack([W, self.linear]), np.append(b, self._lifts()))

    def _lifts(self):
        """Biases (r,) of units that are always active within reach, in place of a linear part."""
        if self.linear is None or self.linear.shape[1] == 0:
            return np.zeros(0)
        if self.skip and self.known.layers:  # outputs of ReLU units are their own ReLU
            return np.zeros(self.linear.shape[1])
        X = _REACH * np.random.RandomState(0).standard_normal((_N_POINTS, self.known.n_inputs))
        return 2.0 * np.abs(self.known.evaluate(X)[1][:, self.known.n_units : -1] @ self.linear).max(axis=0)


def _parallel(one, other):
    """Whether two vectors are parallel."""
    sizes = np.linalg.norm(one) * np.linalg.norm(other)
    apart = np.linalg.norm(one - other * (one @ other) / (other @ other))
    return sizes > 0 and apart < SAME_DIRECTION * np.linalg.norm(one)


def _critical_points_of(units, n_inputs):
    """The critical points that units were followed from."""
    points, normals = (np.array([getattr(u, name) for u in units]) for name in ("point", "normal"))
    return CriticalPoints(
        points.reshape(-1, n_inputs), normals.reshape(-1, n_inputs), np.full(len(units), _POINT_ERROR)
    )
