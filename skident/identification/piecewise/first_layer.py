"""The first layer: hyperplanes whose predicted crossings are on all lines."""

import numpy as np

from skident.budget.constants import PATIENCE

from ..constants import SPARE
from ..units.candidates import hyperplane
from ..units.layer import LayerUnits, must_be_exact
from ..units.prefix import Prefix
from .acquire import random_lines
from .layer_search import unexplained

_FIRST_LINES = 5  # scanned at first; the normals of all but two are measured
_FEWEST_LINES = 4  # whose normals are measured
_FEWEST_HITS = 3  # crossings of a hyperplane: on as many lines
_MOST_LINES = 40  # (budget)
_REFINED = 1e-3  # relative error of a hyperplane, in `exact_tol`, above which it is refined: it grows along each unit


class FirstLayer(LayerUnits):
    """Hyperplanes of the first layer."""

    def __init__(self, record):
        super().__init__(record, Prefix(record.outputs.n_inputs))

    def search(self):
        """Add hyperplanes from lines until no new ones follow, or there are as many as their span has dimensions."""
        record, idle, n = self.record, 0, 0
        while n < _FEWEST_LINES or (idle < PATIENCE and n < _MOST_LINES):
            if n >= len(record.lines) - _FIRST_LINES + 3:
                random_lines(record, _FIRST_LINES if n == 0 else 1)
            record.measure_normals([n], *unexplained(record, [self], record.on_line(n))[1:])
            idle = 0 if self.add_hyperplanes(record.with_normals()) else idle + 1
            n += 1
            if len(self.units) == record.outputs.n_inputs and record.outputs.probe.oracle.is_span:
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
