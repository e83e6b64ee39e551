"""Candidate units of one hidden layer by vote: hyperplanes that several lines cross, averaged over the lines."""

import numpy as np

from ...constants import DIRECTION_TOL
from .units import ReLUUnits, units_on_line

_SAME_ERRORS = 4.0  # sums of their errors within which hyperplanes are one: errors are bounds, about ten deviations
_LEAST_ERROR = 1e-9  # relative error of a hyperplane, for weights: several measurements count about equally
_LEAST_SHARE = 0.2  # share of the lines that must have crossed a candidate; a true unit misses few
_LEAST_VOTES = 2  # `_LEAST_SHARE` in lines
_ACCURATE = 1e-2  # error of a direction below which boundaries of one hyperplane are recognized on other lines
_MIN_ACCURATE = 100  # such boundaries that decide whether hyperplanes continue


class CandidateUnits:
    """Boundaries of all lines so far, as units with errors, and the hyperplanes on which several of them agree."""

    def __init__(self, search):
        self._search = search
        self.n_lines, self._pool = 0, search.units

    def scan(self, n_lines):
        """Scan further lines of the `LineSearch`."""
        search, probe = self._search, self._search.probe
        for _ in range(n_lines):
            line = search.next_line()
            scan = search.scan(line)
            self.n_lines += 1
            if len(scan.positions):
                which = np.arange(len(scan.positions))
                units, _ = units_on_line(probe, line, scan, which, search.rng, accurate=True)
                self._pool = self._pool.joined(units.take(units.errors < DIRECTION_TOL))

    def units(self):
        """The `ReLUUnits` of hyperplanes that enough lines cross, in units of the outputs."""
        needed = max(_LEAST_VOTES, _LEAST_SHARE * self.n_lines) if self.n_lines > 1 else 1
        units = averaged(self._pool, [group for group in self._groups() if len(group) >= needed])
        return ReLUUnits(units.weights, units.biases, units.outgoing * self._search.probe.output_error, units.errors)

    def unshared(self):
        """Share of the accurate boundaries on whose hyperplane no other line has one; 0 if they are too few.

        A unit of the first layer has a boundary on its whole hyperplane, one of a deeper layer only on a facet.
        """
        accurate = self._pool.errors < _ACCURATE
        alone = [k for group in self._groups() if len(group) < _LEAST_VOTES for k in group]
        return float(accurate[alone].sum() / accurate.sum()) if accurate.sum() >= _MIN_ACCURATE else 0.0

    def _groups(self):
        return groups_of(self._pool, self._search.probe.length_scale, _SAME_ERRORS)


def groups_of(units, length_scale, same):
    """Lists of indices of units, most accurate first, on the hyperplane of their first one to `same` errors."""
    planes, errors, groups = units.planes(length_scale), units.errors, []
    for k in np.argsort(errors, kind="stable"):
        firsts = [group[0] for group in groups]
        gaps = plane_distances(planes[firsts], planes[k : k + 1])[:, 0] / (errors[firsts] + errors[k])
        nearest = int(np.argmin(gaps)) if groups else 0
        if groups and gaps[nearest] < same:
            groups[nearest].append(k)
        else:
            groups.append([k])
    return groups


def averaged(units, groups):
    """The `ReLUUnits` of the mean hyperplanes of groups of units."""
    if not groups:
        return units.take(slice(0, 0))
    W, b, outgoing, errors = (
        np.array(part) for part in zip(*(_average(units.take(np.array(group))) for group in groups), strict=True)
    )
    return ReLUUnits(W.T, b, outgoing, errors)


def _average(group):
    """Normal (D,), bias, outgoing weights (m_L,) and error of the mean hyperplane of some units."""
    weight = 1.0 / (group.errors + _LEAST_ERROR) ** 2
    weight = weight / weight.sum()
    sign = np.where(group.weights.T @ group.weights[:, 0] < 0, -1.0, 1.0)
    w = group.weights @ (sign * weight)
    norm = np.linalg.norm(w)
    error = float(np.sqrt(np.sum((weight * group.errors) ** 2)))
    return w / norm, (sign * weight) @ group.biases / norm, weight @ group.outgoing, error


def plane_distances(planes, others):
    """Distances (n, k) of unit vectors (n, D + 1) from others (k, D + 1), or from their opposites."""
    same = np.linalg.norm(planes[:, None] - others, axis=2)
    return np.minimum(same, np.linalg.norm(planes[:, None] + others, axis=2))
