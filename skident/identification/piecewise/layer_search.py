"""The units of one layer from critical points, and the signs of the layer before."""

import numpy as np

from ..constants import CERTAIN
from ..measure.outputs import SIGNIFICANCE
from ..units.candidates import Views, unit_of_point
from ..units.extend import extend
from ..units.layer import FEWEST_HITS, LayerUnits, must_be_exact
from ..units.signs import sign_votes, signs_of_units, some_signs, votes_decide
from ..units.unit import Unit

_MOST_EXTENDED = 8  # points whose units are extended in vain before others are left (budget)
_MOST_CROSSINGS = 30  # of extending a unit (budget)
_OPEN_CROSSINGS = 6  # `_MOST_CROSSINGS` if all its crossings are there: weights that never matter may stay undetermined
_POINTS_PER_UNIT = 4  # critical points of deeper units that decide a layer's signs, at most
_MOST_UNSIGNED = 30  # units over unsigned features that are extended (budget)
_SHARPENINGS = 12  # of a unit over a wide layer (budget)
_NEW_NORMALS = 1.05  # normals over those before, above which candidates are formed again (cost)
_KNOWN = 0.1  # relative error of coefficients that are known well enough, in `exact_tol`
_SHARPENED = 12  # places of each
_SPARE_UNITS = 3  # of these, beyond the unknowns over the equations of one
_SPARE_SHARE = 1.5  # of these unknowns


def left_over(levels, index):
    """Those of some bends that no unit of any level explains."""
    for level in levels:
        index = index[level.explains(index) < 0]
    return index


def unexplained(record, levels, index):
    """Which of some bends no unit of any level explains: their indices; scaled normals (n, k) of the others; errors."""
    normals, errors = np.full((len(record), record.outputs.n_inputs), np.nan), np.full(len(record), np.inf)
    left = index
    for level in levels:
        which = level.explains(left)
        hit = which >= 0
        normals[left[hit]], errors[left[hit]] = level.scaled_normals(left[hit], which[hit])
        left = left[~hit]
    return left, normals, errors


class _Search:
    """What the searches of one layer share: levels of units known so far, the last of them being searched."""

    def __init__(self, record, levels):
        self.record, self.levels, self.outputs = record, levels, record.outputs
        self.behind = np.zeros(0, dtype=int)  # bends that no unit of the levels before explains, of the first ones:
        self.n_tested = 0

    def measure(self, lines):
        """Measure the normals of unexplained bends of lines."""
        index = np.flatnonzero(np.isin(self.record.bends.line, lines))
        self.record.measure_normals(lines, *unexplained(self.record, self.levels, index)[1:])

    def left(self):
        """Indices of the bends that no unit explains."""
        new = left_over(self.levels[:-1], np.arange(self.n_tested, len(self.record)))
        self.behind, self.n_tested = np.append(self.behind, new), len(self.record)
        return left_over(self.levels[-1:], self.behind)

    def open_points(self):
        """Indices of unexplained bends with normals, nearest to the center first."""
        left = self.left()
        left = left[np.isfinite(self.record.normal_errors[left])]
        return left[np.argsort(np.linalg.norm(self.record.points[left], axis=1))]


def find_signs(record, levels, prefix, slope):
    """Signs (K,) of the last layer's units, known up to these by `prefix`, and the slope of inactive units.

    A `slope` of None is solved for. None if the signs are not determined.
    """
    search, K, tol, signs = _Search(record, levels), prefix.n_units, record.outputs.loose_tol, np.ones(prefix.n_units)
    if K <= prefix.n_inputs and slope in (None, 0.0):
        for line in range(len(record.lines)):
            points = search.open_points()
            if len(points) >= _POINTS_PER_UNIT * K or votes_decide(sign_votes(prefix, record, points, tol)).all():
                break
            search.measure([line])
        votes = sign_votes(prefix, record, search.open_points(), tol)
        signs = np.where(votes[:, 1] > votes[:, 0], 1.0, -1.0)
        if votes_decide(votes).all():
            return signs, 0.0
    found = _signs_by_units(search, prefix, slope)
    return None if found is None else (np.where(found.determined, found.signs, signs), found.slope)


def _signs_by_units(search, prefix, slope):
    """`Signs` from units over unsigned features, extended until they are determined; None if they contradict."""
    record, outputs, found = search.record, search.outputs, None
    layer, K = LayerUnits(record, prefix), prefix.n_units
    enough = max(_MOST_EXTENDED, int(_SPARE_SHARE * K / outputs.n_inputs) + _SPARE_UNITS)
    if len(search.open_points()) == 0:
        search.measure([0, 1])
    for i in search.open_points()[:_MOST_UNSIGNED]:
        if len(layer.units) >= enough:
            break
        if layer.units and layer.explains(np.array([i]))[0] >= 0:
            continue
        unit, rest = unit_of_point(prefix, record, i, outputs.loose_tol)
        if rest > outputs.loose_tol + SIGNIFICANCE * record.normal_errors[i]:
            continue
        unit.learn(*layer.equations(np.array([i]), unit.coef))
        unit.settle()
        if not _passes(layer, unit, slope):
            continue
        layer.units.append(unit)
        found = signs_of_units(prefix, layer.units, outputs.loose_tol, slope)
        if found.certain:
            return found
    if found is None or found.deviation > CERTAIN or slope not in (None, 0.0):
        return None
    signs = some_signs(prefix, layer.units, outputs.loose_tol)
    return None if signs is None else found._replace(signs=signs, determined=signs != 0, slope=0.0)


def _passes(layer, unit, slope):
    """Extend a unit, and whether its crossings are there; a slope that is solved for (None) is as exact as the unit."""
    evidence = layer.evidence(unit)
    if layer.refuted(unit, evidence)[0]:
        return False
    if unit.nullity and not extend(layer, unit, _MOST_CROSSINGS):
        return False
    if layer.prefix.n_units > layer.outputs.n_inputs or slope is None:
        sharpened(layer, unit)
    layer.refit(unit)
    unit.V = unit.vague(layer.outputs.testable_tol)
    evidence = layer.evidence(unit)
    is_wrong, more = layer.refuted(unit, evidence)
    hits = len(evidence.hits) + more
    if is_wrong:
        return False
    if hits < FEWEST_HITS and not unit.nullity:
        more, missed = layer.sought(unit)
        return hits + more >= FEWEST_HITS and not missed
    return True


def sharpened(layer, unit):
    """Scan where a unit is known worst until it is known well: how many crossings are there, and how many are not."""
    hits, missed = 0, 0
    for _ in range(_SHARPENINGS):
        if unit.vague(_KNOWN * layer.outputs.exact_tol).shape[1] == 0:
            break
        more, lost = layer.sharpened(unit, _SHARPENED)
        hits, missed = hits + more, missed + lost
        if more == 0:
            break
    return hits, missed


def find_units(record, levels, lines, may_extend=True):
    """Add units to the last level from bends on lines: whole ones first, then those that have to be extended.

    Returns whether all bends are explained.
    """
    search = _UnitSearch(record, levels)
    for search.may_extend in (False, True)[: 1 + may_extend]:
        left, n_before, n_normals = search.left(), -1, -1
        for line in lines:
            if np.any(record.bends.line[left] == line):
                search.measure([line])
                n_normals = len(record.with_normals())
                if n_normals > _NEW_NORMALS * n_before:
                    search.add_units()
                    left, n_before = search.left(), n_normals
            if len(left) == 0:
                return True
        if n_normals > n_before:
            search.add_units()
    return len(search.left()) == 0


class _UnitSearch(_Search):
    """The units of the last level over features with signs."""

    def __init__(self, record, levels):
        super().__init__(record, levels)
        self.level, self.may_extend, self.n_failed = levels[-1], False, 0

    def add_units(self):
        """Add units of unexplained bends with normals."""
        level, record, tol = self.level, self.record, self.outputs.loose_tol
        level.complete(self.open_points())
        index = self.open_points()
        views = Views(level.prefix, record, index, tol, level.views)
        free = views.whole.copy()
        seeds = np.flatnonzero(free & ~np.isin(index, list(level.rejected)))
        for i in seeds[np.argsort(-views.sizes()[seeds], kind="stable")]:
            if not free[i] or self.n_failed > _MOST_EXTENDED:
                continue
            coef, mask, member = views.joined(i, free)
            if not mask.all() and not self.may_extend:
                continue
            unit = Unit(coef / np.linalg.norm(coef[:-1]), np.eye(len(coef))[:, ~mask], record.points[index[i]])
            unit.starts += list(record.points[index[member]])
            if self.try_unit(unit, index[member], index[i]):
                free &= level.explains(index) < 0
        for i in index[~views.whole] if self.may_extend else ():
            if i in level.rejected or level.explains(np.array([i]))[0] >= 0 or self.n_failed > _MOST_EXTENDED:
                continue
            unit, rest = unit_of_point(level.prefix, record, i, tol)
            if rest > tol + SIGNIFICANCE * record.normal_errors[i]:
                level.rejected.add(i)
            else:
                self.try_unit(unit, np.array([i]), i)

    def try_unit(self, unit, members, i):
        """Accept a unit of some bends, or reject bend i if more lines would not change that; whether it is accepted."""
        unit.learn(*self.level.equations(members, unit.coef))
        unit.settle()
        accepted = self.accepts(unit)
        if accepted and not (unit.nullity and self.is_of_lower_layer(i)):
            self.level.add(unit)
            self.n_failed = 0
        elif accepted is False:
            self.level.rejected.add(i)
        return accepted

    def is_of_lower_layer(self, i):
        """Whether bend i, of an open unit here, is of a whole unit of a layer before: added there, it ends the search.

        Where few features of a layer are active, a unit of the layer itself is linear in these, too.
        """
        for depth in range(2, len(self.levels)):
            lower = _UnitSearch(self.record, self.levels[:depth])
            unit, rest = unit_of_point(lower.level.prefix, self.record, i, self.outputs.loose_tol)
            if rest <= self.outputs.loose_tol + SIGNIFICANCE * self.record.normal_errors[i]:
                unit.learn(*lower.level.equations(np.array([i]), unit.coef))
                unit.settle()
                if lower.accepts(unit) and not unit.nullity and lower.level.add(unit):
                    self.n_failed = np.inf
                    return True
        return False

    def accepts(self, unit):
        """Whether a candidate is a unit of the level; None if that is not decided."""
        level = self.level
        if level.is_hopeless(unit):
            return False
        evidence = level.evidence(unit)
        if level.refuted(unit, evidence)[0]:
            return False
        if unit.nullity:
            self.n_failed += 1
            safe = unit.copy() if len(evidence.hits) >= FEWEST_HITS and evidence.clear else None
            if not extend(level, unit, _MOST_CROSSINGS if safe is None else _OPEN_CROSSINGS):
                if safe is None:
                    return False
                unit.coef, unit.V = safe.coef, safe.V
                unit.starts, unit.rows, unit.errors = safe.starts, safe.rows, safe.errors
            unit.settle()
        level.refit(unit)
        evidence = level.evidence(unit)
        is_wrong, more = level.refuted(unit, evidence)
        hits = len(evidence.hits) + more
        if is_wrong:
            return False
        inexact = level.relative_errors([unit])[0] > self.outputs.loose_tol  # it would not explain its other bends
        if not unit.nullity and (inexact or must_be_exact(level.prefix.n_units, self.outputs.n_inputs)):
            more, missed = sharpened(level, unit)
            if missed or level.relative_errors([unit])[0] > self.outputs.loose_tol:
                return False if missed else None
            hits += more
        if hits < FEWEST_HITS and not unit.nullity:
            more, missed = level.sought(unit)
            if missed:
                return False
            hits += more
        return True if hits >= FEWEST_HITS else None
