"""The units of one layer: which critical points they explain, and whether the crossings that they predict are there."""

from typing import NamedTuple

import numpy as np

from skident.budget.constants import FEW_ROUNDS, ROUNDS, TINY

from ..constants import LEAST_SHARE, NEAR_RADII, POLISHED
from ..measure.outputs import SIGNIFICANCE
from ..measure.record import line_grid
from ..measure.scan import scan
from ..piecewise.kernel.lines import Segments
from .crossings import crossings

FEWEST_HITS = 5  # predicted crossings that must be there: chance is below 1e-12 with positions exact to 1e-3
_MANY = 20  # predicted crossings of a unit that may be hopeless, and
_FEW_SHARE = 0.2  # share of them with bends, below which it is: others may be where outputs are constant
_GRID = 400  # positions of a line at which units are evaluated
_MOST_SCANS = 6  # of missed crossings (budget): a false unit misses most of them
_FARTHEST = 1e-4  # distance of an explained point, relative to its line's position, at most
_SAME = 10.0  # difference of two units that are one, in `loose_tol`
_N_NODES = 6  # of a short scan
_SCAN_ERRORS = 3.0  # half length of a short scan in position errors
_N_LINES = 30  # of these at a time
_NEAR = (0.01, 0.03, 0.1, 0.3, 1.0)  # `NEAR_RADII` of lines around points of a unit
_NEAR_REACH = 1.0  # `_REACH` of these
_AT_ONCE = 4  # scans of predicted crossings, at least
_REACH = 8.0  # half length of these in units of sqrt(D)
_MOST = 0.95  # share of these at which a unit is at least as exact as is said: some weights matter at few points
_SIZE_POINTS = 400  # at which the size of a unit is evaluated
_LEAST_SPREAD = 1e-3  # spread of a unit over the norm of its coefficients, at least


class Evidence(NamedTuple):
    """What a record says of a unit's predicted crossings."""

    hits: np.ndarray  # indices of bends that are there
    missed: tuple  # points, directions, position errors and slopes of those that are not
    n_tested: int

    @property
    def clear(self):
        """Whether nothing is missed."""
        return len(self.hits) == self.n_tested


def must_be_exact(n_units, n_inputs):
    """Whether units behind so many need exact weights: errors grow behind a wide layer, or no polish mends them."""
    return n_units > n_inputs or 2 * n_units * n_inputs > POLISHED


class LayerUnits:
    """Units of the layer behind a `Prefix`, in spread 1; `rejected` are bends from which none was recovered."""

    def __init__(self, record, prefix):
        self.record, self.units, self.rejected = record, [], set()
        self.prefix = prefix

    @property
    def prefix(self):
        """The known layers; what was computed of others is forgotten."""
        return self._prefix

    @prefix.setter
    def prefix(self, prefix):
        """Replace the known layers."""
        self._prefix, self.views, self._grid = prefix, {}, None  # views: of bends, see `Views`
        self._seen = np.zeros((3, 0, prefix.n_features))

    @property
    def outputs(self):
        """The `Outputs` that the record was measured on."""
        return self.record.outputs

    def weights(self):
        """Weights (m_{l-1}, m_l) and biases (m_l,)."""
        coef = np.array([unit.coef for unit in self.units]).reshape(len(self.units), self.prefix.n_features)
        return coef[:, :-1].T, coef[:, -1]

    @property
    def n_determined(self):
        """How many coefficients of its units are determined."""
        return sum(len(unit.coef) - unit.nullity for unit in self.units)

    def add(self, unit):
        """Add a unit, or merge it with one that it equals; whether it is new."""
        outputs = self.outputs
        X = outputs.rng.choice(NEAR_RADII, (_SIZE_POINTS, 1)) * outputs.rng.standard_normal(
            (_SIZE_POINTS, outputs.n_inputs)
        )
        size = (self.prefix.evaluate(X)[1] @ unit.coef).std()
        unit.scaled(1.0 / max(size, _LEAST_SPREAD * np.linalg.norm(unit.coef)))
        for i, other in enumerate(self.units):
            joint = other.joined(unit, _SAME * outputs.loose_tol)
            if joint is not None and not self.refuted(joint, self.evidence(joint))[0]:
                self.units[i] = joint
                return False
        self.units.append(unit)
        return True

    def explains(self, index, units=None):
        """For bends with indices (n,): the unit on whose boundary they lie, or -1."""
        best, record = np.full(len(index), -1), self.record
        units = self.units if units is None else units
        if not units or len(index) == 0:
            return best
        phi, tangents, variances = self._at_bends(index)
        t_error, far = record.bends.t_error[index], _FARTHEST * (1.0 + np.abs(record.bends.t[index]))
        for k, unit in enumerate(units):
            slope = np.abs(tangents @ unit.coef)
            error = t_error * slope + unit.error(phi) + np.sqrt(variances @ unit.coef**2)
            hit = np.abs(phi @ unit.coef) < np.minimum(SIGNIFICANCE * error, far * slope)
            hit &= unit.is_determined(phi, self.outputs.loose_tol)
            best[hit & (best < 0)] = k
        return best

    def _at_bends(self, index):
        """Features of bends, their derivatives along the lines, and their variances (n, T), computed once."""
        prefix, record = self.prefix, self.record
        n = self._seen.shape[1]
        if n < len(record):
            P, V = record.points[n:], record.directions[n:]
            new = prefix.evaluate(P)[1], prefix.tangents(P, V), prefix.variances(P)
            self._seen = np.concatenate([self._seen, new], axis=1)
        return self._seen[:, index]

    def scaled_normals(self, index, which):
        """Gradients of units at their bends (n, k), with ``n . direction = 1``, and their relative errors (n,)."""
        n, errors = np.zeros((len(index), self.outputs.n_inputs)), np.zeros(len(index))
        for k in np.unique(which):
            mine, unit = which == k, self.units[k]
            P = self.record.points[index[mine]]
            G, of_features = self.prefix.gradients(P)[1], np.sqrt(self.prefix.variances(P) @ unit.coef**2)
            n[mine] = np.einsum("ntk,t->nk", G, unit.coef)
            of_features *= np.sqrt(P.shape[1]) / np.hypot(np.linalg.norm(P, axis=1), 1.0)
            own = np.linalg.norm(np.swapaxes(G, 1, 2) @ unit.half, axis=(1, 2))
            errors[mine] = np.hypot(own, of_features) / np.maximum(np.linalg.norm(n[mine], axis=1), TINY)
        return n / (n * self.record.directions[index]).sum(axis=1, keepdims=True), errors

    def evidence(self, unit):
        """The `Evidence` of the record; predicted crossings count where they are sharp and the outputs not constant."""
        record, outputs, lines = self.record, self.outputs, self.record.lines
        found = crossings(self.prefix, unit, lines, *self._on_lines(), outputs.loose_tol)
        near, gap = record.nearest(found.line, found.t)
        if len(found) == 0 or len(record) == 0:
            return Evidence(near[:0], found.take(slice(0)), 0)
        size = outputs.length + np.abs(found.t)
        tol = SIGNIFICANCE * (record.bends.t_error[near] + found.errors) + outputs.exact_tol * size
        sharp = tol < outputs.testable_tol * size
        there = sharp & (gap < tol)
        missed = np.flatnonzero(sharp & ~there & ~record.is_silent(found.line, found.t))
        return Evidence(near[there], found.take(missed), int(there.sum()) + len(missed))

    def _on_lines(self):
        """A grid (n_lines, n) of positions of the record's lines, and features (n_lines, n, T) there."""
        outputs, lines = self.outputs, self.record.lines
        if self._grid is None or len(self._grid[0]) != len(lines):
            grid = line_grid(outputs, lines, _GRID)
            points = lines.origins[:, None] + grid[:, :, None] * lines.directions[:, None]
            phi = self.prefix.evaluate(points.reshape(-1, outputs.n_inputs))[1]
            self._grid = grid, phi.reshape(*grid.shape, self.prefix.n_features)
        return self._grid

    def is_hopeless(self, unit):
        """Whether far more crossings of a unit without open weights are predicted than there are bends on it."""
        if unit.nullity:
            return False
        Z = self._on_lines()[1] @ unit.coef
        n = np.count_nonzero(Z[:, 1:] * Z[:, :-1] < 0)
        return n > _MANY and np.count_nonzero(self.explains(np.arange(len(self.record)), [unit]) == 0) < _FEW_SHARE * n

    def scanned(self, unit, points, directions, errors, slopes):
        """Scan shortly where crossings are predicted, and learn from them: how many are there, and how many are not."""
        outputs, hits, n_missed = self.outputs, 0, 0
        if len(points) == 0:
            return 0, 0
        tol = SIGNIFICANCE * errors
        half = np.maximum(_SCAN_ERRORS * tol, outputs.testable_tol)
        lines = Segments(points, directions, -half, half)
        bends, runs, _ = scan(outputs, lines, np.linspace(-1.0, 1.0, _N_NODES) * half[:, None])
        size = outputs.exact_tol * (outputs.length + np.linalg.norm(points, axis=1))
        for k in range(len(points)):
            mine = np.flatnonzero(bends.line == k)
            near = mine[np.abs(bends.t[mine]) < tol[k] + SIGNIFICANCE * bends.t_error[mine] + size[k]]
            if len(near) == 1:
                at = (points[k] + bends.t[near[0]] * directions[k])[None]
                phi = self.prefix.evaluate(at)[1]
                rounding = np.sqrt(self.prefix.variances(at) @ unit.coef**2)
                unit.learn(phi, slopes[k] * bends.t_error[near[0]] + rounding)
                hits += 1
            flat = np.abs(runs.slope[runs.line == k]).max(initial=0.0) * half[k] < 2.0 * SIGNIFICANCE * outputs.error
            n_missed += len(near) == 0 and not flat
        return hits, n_missed

    def refuted(self, unit, evidence):
        """Whether crossings that the record lacks are not there, and how many are there after all."""
        n = len(evidence.missed[0])
        if n == 0:
            return False, 0
        if len(evidence.hits) < LEAST_SHARE * evidence.n_tested and evidence.n_tested >= FEWEST_HITS:
            return True, 0
        some = self.outputs.rng.permutation(n)[:_MOST_SCANS]
        hits, n_missed = self.scanned(unit, *(part[some] for part in evidence.missed))
        return n_missed > 0, hits

    def drop_refuted(self):
        """Drop units whose crossings are not all there on the lines of today; whether there are any."""
        before = len(self.units)
        self.units = [unit for unit in self.units if not self.refuted(unit, self.evidence(unit))[0]]
        return len(self.units) < before

    def relative_errors(self, units=None):
        """Relative errors (K,) of pre-activations at most random points, of some units or all."""
        units = self.units if units is None else units
        X = self.outputs.rng.standard_normal((_SIZE_POINTS, self.outputs.n_inputs))
        phi = self.prefix.evaluate(X)[1]
        size = np.median(np.linalg.norm(phi, axis=1))
        return np.array([np.quantile(unit.error(phi), _MOST) / np.linalg.norm(unit.coef) for unit in units]) / size

    def sought(self, unit, enough=FEWEST_HITS):
        """Scan where the unit predicts crossings best on new lines: how many are there, and how many are not."""
        hits, n_missed = 0, 0
        for _ in range(FEW_ROUNDS):
            if hits >= enough:
                break
            n = min(max(_AT_ONCE, enough // 2), enough - hits)
            D, rng = self.outputs.n_inputs, self.outputs.rng
            origins, V = rng.standard_normal((2, _N_LINES, D))
            found = self.predicted(unit, rng.choice(NEAR_RADII, (_N_LINES, 1)) * origins, V, _REACH)
            best = np.argsort(found.errors)[: 3 * n]
            if len(best) == 0:
                break
            more, missed = self.scanned(unit, *found.take(rng.permutation(best)[:n]))
            hits, n_missed = hits + more, n_missed + missed
            unit.settle()
        return hits, n_missed

    def predicted(self, unit, origins, V, reach):
        """Testable `Crossings` on lines through origins (n, k) along V (n, k), of half length `reach` sqrt(k)."""
        outputs, (n, D) = self.outputs, origins.shape
        half = np.full(n, reach * outputs.length)
        lines = Segments(origins, V / np.linalg.norm(V, axis=1, keepdims=True), -half, half)
        grid = line_grid(outputs, lines, _GRID // 2)
        points = (lines.origins[:, None] + grid[:, :, None] * lines.directions[:, None]).reshape(-1, D)
        phi = self.prefix.evaluate(points)[1].reshape(n, grid.shape[1], -1)
        found = crossings(self.prefix, unit, lines, grid, phi, outputs.loose_tol)
        found.keep(SIGNIFICANCE * found.errors < outputs.testable_tol * outputs.length)
        return found

    def sharpened(self, unit, n):
        """Scan where a unit that is known near its starts is known worst there, so that errors do not grow along it."""
        rng, starts = self.outputs.rng, np.array(unit.starts)
        unit.settle()
        near = starts[rng.randint(len(starts), size=_N_LINES)]
        normals = np.einsum("ntk,t->nk", self.prefix.gradients(near)[1], unit.coef)
        origins = near + rng.choice(_NEAR, (_N_LINES, 1)) * rng.standard_normal(near.shape)
        found = self.predicted(unit, origins, normals, _NEAR_REACH)
        found.keep(found.errors < self.outputs.loose_tol * self.outputs.length)  # else others may be in the window
        worst = np.argsort(-found.errors)[:n]
        result = self.scanned(unit, *found.take(worst))
        unit.settle()
        return result

    def equations(self, index, coef):
        """Equations (n, T) of bends for a unit with coefficients coef, and their errors (n,)."""
        record, prefix = self.record, self.prefix
        P = record.points[index]
        phi, G = prefix.evaluate(P)[1], prefix.gradients(P)[1]
        slope = np.abs(prefix.tangents(P, record.directions[index]) @ coef)
        rounding = np.sqrt(prefix.variances(P) @ coef**2)
        rows, errors = [phi], [np.hypot(slope * record.bends.t_error[index], rounding)]
        for i, k in enumerate(index):
            if np.isfinite(record.normal_errors[k]):
                n = record.normals[k] / np.linalg.norm(record.normals[k])
                rows.append(G[i].T - np.outer(n, n @ G[i].T))
                error = record.normal_errors[k] * np.linalg.norm(G[i].T @ coef) / np.sqrt(len(n))
                errors.append(np.full(len(n), np.hypot(error, rounding[i] / np.hypot(np.linalg.norm(P[i]), 1.0))))
        return np.vstack(rows), np.concatenate(errors)

    def complete(self, index):
        """Determine open parts of units from bends with normals that lie on them; whether there are some."""
        changed = False
        for unit in self.units:
            for i in index if unit.nullity else ():
                trial = unit.copy()
                rows, errors = self.equations(np.array([i]), unit.coef)
                if (
                    trial.close(rows, errors, self.outputs.testable_tol)
                    and not self.refuted(trial, self.evidence(trial))[0]
                ):
                    trial.starts.append(self.record.points[i])
                    unit.take(trial)
                    changed = True
        return changed

    def refit(self, unit):
        """Fit a unit to all its crossings in the record."""
        base, before = (unit.rows, unit.errors), -1
        for _ in range(ROUNDS):
            hits = self.evidence(unit).hits
            unit.rows, unit.errors = base
            if len(hits):
                unit.learn(*self.equations(hits, unit.coef))
            if len(unit.rows):
                unit.settle()
            if len(hits) == before:
                break
            before = len(hits)
