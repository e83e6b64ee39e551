"""The critical points of a model on lines: positions, jumps and normals, kept for ever, each with its error."""

import numpy as np

from ..piecewise.kernel.lines import Segments
from .normals import share_jacobians
from .outputs import SIGNIFICANCE
from .scan import Bends, Runs, scan

_JITTER = 0.3  # of a node over its distance from the next one
_DEAD_ERRORS = 4.0  # errors of the outputs that a constant run may change by, over its length


class Record:
    """Lines, their bends and straight runs, and normals n with ``n . direction = 1``, NaN where none was measured.

    Attributes: `lines` (`Segments`), `bends`, `runs`; `normals` (k, n_inputs) and their relative errors
    `normal_errors` (k,), infinite without a normal.
    """

    def __init__(self, outputs):
        self.outputs = outputs
        k, none = outputs.n_inputs, np.zeros(0)
        self.lines = Segments(np.zeros((0, k)), np.zeros((0, k)), none, none)
        jumps = np.zeros((0, outputs.n_outputs))
        self.bends = Bends(np.zeros(0, dtype=int), none, none, jumps, none)
        self.runs = Runs(np.zeros(0, dtype=int), none, none, jumps, none)
        self.normals, self.normal_errors = np.zeros((0, k)), none
        self._forget()

    def __len__(self):
        return len(self.bends)

    def add(self, lines, nodes):
        """Scan lines from first pairs at `nodes` (n, q); the indices of the lines."""
        bends, runs, _ = scan(self.outputs, lines, nodes)
        first, n = len(self.lines), len(bends)
        bends.line[:] += first
        runs.line[:] += first
        self.lines, self.bends, self.runs = self.lines.joined(lines), self.bends.joined(bends), self.runs.joined(runs)
        self.normals = np.vstack([self.normals, np.full((n, self.outputs.n_inputs), np.nan)])
        self.normal_errors = np.append(self.normal_errors, np.full(n, np.inf))
        self._forget()
        return np.arange(first, len(self.lines))

    def _forget(self):
        """Recompute what follows from lines and bends."""
        line, t = self.bends.line, self.bends.t
        self.points, self.directions = self.lines.at(line, t), self.lines.directions[line]
        ends = np.abs(np.r_[self.lines.low, self.lines.high])
        self._length = 4.0 * ends.max(initial=0.0) + 1.0
        self._order = np.lexsort((t, line))
        self._keys = line[self._order] * self._length + t[self._order]

    def on_line(self, line):
        """Indices of a line's bends, in order of position."""
        index = np.flatnonzero(self.bends.line == line)
        return index[np.argsort(self.bends.t[index])]

    def with_normals(self):
        """Indices of bends whose normals were measured."""
        return np.flatnonzero(np.isfinite(self.normal_errors))

    def nearest(self, line, t):
        """Indices of the nearest bends on lines (n,), and their distances (n,) from positions (n,)."""
        if len(self._keys) < 2:
            return np.zeros(len(t), dtype=int), np.full(len(t), np.inf)
        at = line * self._length + t
        after = np.clip(np.searchsorted(self._keys, at), 1, len(self._keys) - 1)
        near = np.where(np.abs(self._keys[after - 1] - at) < np.abs(self._keys[after] - at), after - 1, after)
        return self._order[near], np.abs(self._keys[near] - at)

    def is_silent(self, line, t):
        """Whether the outputs are constant on both sides of positions of lines, or lost: a mask (n,)."""
        runs, silent = self.runs, np.ones(len(t), dtype=bool)
        for i in np.unique(line):
            some, mine = runs.line == i, line == i
            pad = self.outputs.testable_tol * (self.outputs.length + np.abs(t[mine]))[:, None]
            seen = (t[mine, None] > runs.low[some] - pad) & (t[mine, None] < runs.high[some] + pad)
            silent[mine] = ~seen.any(axis=1)
        flat = np.abs(runs.slope).max(axis=1) * (runs.high - runs.low) < SIGNIFICANCE * _DEAD_ERRORS * runs.error
        for i in np.flatnonzero(flat & np.isin(runs.line, line)):
            mine = self.bends.t[self.bends.line == runs.line[i]]
            low = mine[mine <= runs.low[i]].max(initial=self.lines.low[runs.line[i]])
            high = mine[mine >= runs.high[i]].min(initial=self.lines.high[runs.line[i]])
            silent |= (line == runs.line[i]) & (t > low) & (t < high)
        return silent

    def measure_normals(self, lines, known, known_errors):
        """Measure the normals of bends on some lines, but of those with `known` scaled ones (k, n_inputs)."""
        for index, normals, errors in share_jacobians(self, lines, known, known_errors):
            self.normals[index], self.normal_errors[index] = normals, errors


def through(outputs, lines, n_nodes):
    """Nodes (n, n_nodes) of `Segments`: dense near their origins, as boundaries are, and far apart at their ends."""
    return _jittered(line_grid(outputs, lines, n_nodes), outputs.rng)


def line_grid(outputs, lines, n):
    """Positions (n_lines, n) on lines, dense near the origins."""
    unit = outputs.length
    low, high = np.arcsinh(lines.low / unit)[:, None], np.arcsinh(lines.high / unit)[:, None]
    return unit * np.sinh(low + (high - low) * np.linspace(0.0, 1.0, n))


def between(one, other, n_nodes, rng, low=-0.1, high=1.1):
    """`Segments` from points (n, k) to others, and their nodes; `low` and `high` are parts of the distance."""
    length = np.linalg.norm(other - one, axis=1)
    V = (other - one) / length[:, None]
    start = (one * V).sum(axis=1)  # positions are 0 nearest to the center: those of far origins are rounded there
    lines = Segments(one - start[:, None] * V, V, start + low * length, start + high * length)
    return lines, _jittered(start[:, None] + np.linspace(low, high, n_nodes) * length[:, None], rng)


def _jittered(nodes, rng):
    gap = np.diff(nodes, axis=1)
    nodes[:, 1:-1] += _JITTER * np.minimum(gap[:, 1:], gap[:, :-1]) * rng.uniform(-1.0, 1.0, gap[:, 1:].shape)
    return nodes
