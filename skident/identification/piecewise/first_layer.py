"""The first layer: hyperplanes whose predicted crossings are on all lines."""

from __future__ import annotations

import numpy as np

from skident.budget.constants import PATIENCE
from skident.linalg import lapack

from ..constants import SPARE
from ..measure.normals import jacobians
from ..units.candidates import hyperplane
from ..units.layer import LayerUnits, must_be_exact
from ..units.prefix import Prefix
from .acquire import random_lines
from .layer_search import unexplained

__all__ = ["FirstLayer"]

_FIRST_LINES = 5  # scanned at first; the normals of all but two are measured
_FEWEST_LINES = 4  # whose normals are measured
_FEWEST_HITS = 3  # crossings of a hyperplane: on as many lines
_MOST_LINES = 40  # (budget)
_REFINED = 1e-3  # relative error of a hyperplane, in `exact_tol`, above which it is refined: it grows along each unit
_OUTSIDE = 0.02  # share of the normals outside of the hyperplanes' span up to which these are all
_ROOM = 0.1  # free length around random points, in standard deviations of the inputs


class FirstLayer(LayerUnits):
    """Hyperplanes of the first layer."""

    def __init__(self, record):
        super().__init__(record, Prefix(record.outputs.n_inputs))

    def search(self):
        """Add hyperplanes from lines until no new ones follow, or all normals lie in their span."""
        record, idle, n = self.record, 0, 0
        while n < _FEWEST_LINES or (idle < PATIENCE and n < _MOST_LINES):
            if n >= len(record.lines) - _FIRST_LINES + 3:
                random_lines(record, _FIRST_LINES if n == 0 else 1)
            record.measure_normals([n], *unexplained(record, [self], record.on_line(n))[1:])
            idle = 0 if self.add_hyperplanes(record.with_normals()) else idle + 1
            n += 1
            if self.is_whole():
                break

    def add_hyperplanes(self, index):
        """Add the hyperplanes of bends with normals that are on all lines; how many are new."""
        new, index = 0, index[self.explains(index) < 0]
        for i in index[np.argsort(np.linalg.norm(self.record.points[index], axis=1))]:
            if self.explains(np.array([i]))[0] >= 0:
                continue
            unit = hyperplane(self.record, i)
            if self.is_hopeless(unit):
                continue
            evidence = self.evidence(unit)
            if len(evidence.hits) >= _FEWEST_HITS and not self.refuted(unit, evidence)[0]:
                self.refit(unit)
                new += self.add(unit)
        return new

    def refine(self):
        """Locate more points of hyperplanes that are known less exactly than units behind a wide layer need."""
        wide = must_be_exact(len(self.units), self.outputs.n_inputs)
        for k in np.flatnonzero(self.relative_errors() > _REFINED * self.outputs.exact_tol) if wide else ():
            self.sought(self.units[k], self.outputs.n_inputs + SPARE)

    def is_whole(self):
        """Whether all normals, and Jacobians at opposite points, lie in the span of fewer hyperplanes than inputs."""
        record, outputs, W = self.record, self.outputs, self.weights()[0]
        index = record.with_normals()
        if not 0 < W.shape[1] < outputs.n_inputs or len(index) <= 2 * W.shape[1]:
            return False
        N = record.normals[index]
        Q, size = lapack.qr(W)[0], np.linalg.norm(N, axis=1)
        outside = np.linalg.norm(N - N @ Q @ Q.T, axis=1) > outputs.loose_tol * size
        if outside.mean() >= _OUTSIDE:
            return False
        X = outputs.rng.standard_normal((2, outputs.n_inputs))
        J, _, good = jacobians(outputs, np.vstack([X, -X]), np.full(4, _ROOM))
        J = J[good].reshape(-1, outputs.n_inputs)
        return bool(good.any() and np.linalg.norm(J - J @ Q @ Q.T) < outputs.loose_tol * np.linalg.norm(J))

    def span(self):
        """Orthonormal rows (K, n_inputs) of the hyperplanes' normals, if they are fewer than the inputs, or None."""
        W = self.weights()[0]
        return lapack.qr(W)[0].T if W.shape[1] < len(W) else None

    def restrict(self, basis):
        """Change to the coordinates y of ``x = y basis``."""
        self.record.restrict(basis)
        self.prefix = Prefix(len(basis))
        both = np.block([[basis, np.zeros((len(basis), 1))], [np.zeros((1, basis.shape[1])), np.ones((1, 1))]])
        for unit in self.units:
            unit.coef, unit.rows, unit.half = both @ unit.coef, unit.rows @ both.T, both @ unit.half
            unit.V, unit.starts = np.zeros((len(both), 0)), [basis @ x for x in unit.starts]
