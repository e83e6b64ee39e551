"""ReLU networks of many layers with several outputs: one layer after the other from one set of critical points."""

from __future__ import annotations

import os
import numpy as np

from ..deep.readout import read_out
from ..several_outputs.shared_jacobians import Space
from .aimed_lines import aimed_lines
from .critical_set import CriticalSet
from .handover import RecoveredLayer, as_layer_units
from .known_prefix import KnownPrefix
from .signs import layer_signs, linear_direction
from .units import LayerSearch

__all__ = ["find_layers"]

_FEWEST_LINES = 8  # at first
_MOST_LINES = 16  # the same: the hyperplanes of the first layer meet all of them
_FIRST_POINTS = 1200  # critical points on these (budget: 30 queries each)
_AIMED_LINES = 8  # per layer, where single units of it dominate
_MORE_LINES = 2  # at random
_MORE_SEARCHES = 3  # of units of a layer, if some seem to be missing
_ROUNDS = 2  # of further lines, and of all layers (budget: 5 to 10 s each)
_MOST_LAYERS = 10  # hidden ones (budget)
_FEWEST_LAYERS = 2  # that are worth a start: others may not be ReLU units
_LAST_SHARE = 0.6  # share of outputs explained above which a layer is the last hidden one
_KNOWN = 1e-7  # distance from the boundary of a known unit up to which a critical point is its, relative
_MOST_LINEAR = 3  # missing units of one layer that are always active
_LIFT_POINTS = 4000  # at which linear units are active as ReLU units
_STEEPEST = 1e6  # weight that keeps a unit inactive, or active, in units of the known ones, above which there is none
_BEYOND = 2.0  # factor of such a weight: farther out, the unit may be larger


def find_layers(probe, rng, callback=None):
    """Hyperplanes (K, D + 1) of the first layer and a dictionary of `LayerUnits` by depth, as many as are recovered.

    They start `find_deep_relu_network`, which validates and completes them. The outputs of the `DeepProbe` must be
    exact everywhere, and three at least: a Jacobian serves as many critical points as there are outputs. Every
    critical point of the lines costs about ``8 + 1.5 (D + 12) / (m_L - 1)`` queries. ``callback(n_units)`` is called
    after every layer. None if units of one layer only are recovered; raises `NotIdentified` if a line has too many
    boundaries.
    """
    space = Space(probe.oracle, probe.n_inputs, probe.output_error, np.sqrt(probe.n_inputs))
    search = _ManyLayers(space, probe, rng, callback)
    layers = search.run()
    return None if len(layers) < _FEWEST_LAYERS else as_layer_units(layers, search.critical, rng)


class _ManyLayers:
    """The critical points of a model, and the units recovered from them."""

    def __init__(self, space, probe, rng, callback):
        self.space, self.probe, self.rng, self.callback = space, probe, rng, callback
        self.critical = CriticalSet(space, rng)
        self.units = {}  # of the last round, by the number of layers before
        self.prefixes = []

    def run(self):
        """`RecoveredLayer`s: all of them if they explain most outputs; else without the last, which fits badly."""
        self.critical.extend(_FEWEST_LINES)
        if len(self.critical) == 0:
            return []
        per_line = max(len(self.critical) // _FEWEST_LINES, 1)
        self.critical.extend(min(_MOST_LINES, _FIRST_POINTS // per_line) - _FEWEST_LINES)
        for n_round in range(_ROUNDS):
            share, layers = self._recover()
            if share > _LAST_SHARE or not layers:
                return layers
            if n_round < _ROUNDS - 1:
                self._explore()
        return layers[: max(len(layers) - 1, 1)]

    def _explore(self):
        """Scan further lines, at random and where units change their signs that hardly do so elsewhere."""
        self.critical.extend(_MORE_LINES)
        for prefix in self.prefixes[1:]:
            self.critical.extend_along(aimed_lines(prefix, _AIMED_LINES, self.rng))

    def _recover(self):
        """The share of outputs that as many layers explain as are recovered, and these."""
        prefix, layers, first = KnownPrefix(self.space.n_coordinates), [], len(self.prefixes)
        self.prefixes = [prefix]
        for depth in range(_MOST_LAYERS):
            if depth and depth >= first:
                self.critical.extend_along(aimed_lines(prefix, _AIMED_LINES, self.rng))
            for n_more in range(_MORE_SEARCHES, -1, -1):
                search = LayerSearch(self.critical, prefix, self._explained(prefix))
                units = search.run(self.units.get(depth, []))
                complete = False
                if units:
                    self.units[depth] = units
                    C, b = search.weights()
                    layer = RecoveredLayer(prefix, units, C, b, np.zeros((len(C), 0)))
                    if self.callback is not None:
                        self.callback(sum(len(one.units) for one in [*layers, layer]))
                    share = self._share_explained(prefix, C, b)
                    if share > _LAST_SHARE:
                        return share, [*layers, layer]
                    signed, complete = self._signed(search, n_more == 0)
                if os.environ.get("DBG"): print("   depth", depth+1, "units", len(units), "complete", complete, self._fit if units else "", "queries", self.probe.oracle.n_queries, flush=True)
                if complete or n_more == 0 or not units:
                    break
                if depth:
                    self.critical.extend_along(aimed_lines(prefix, _AIMED_LINES, self.rng))
                else:
                    self.critical.extend(_AIMED_LINES)
            if not units:
                break
            C, b, mask, linear = signed
            layers.append(RecoveredLayer(prefix, units, C, b, linear))
            prefix = prefix.extended(C, b, mask, linear)
            self.prefixes.append(prefix)
            if not complete:
                break
        return 0.0, layers

    def _explained(self, prefix):
        """Which critical points are on the boundary of a known unit: a mask (n,)."""
        X = self.critical.points
        return prefix.room(X) < _KNOWN * (self.space.unit + np.linalg.norm(X, axis=1))

    def _share_explained(self, prefix, C, b):
        """Share of the outputs that are linear in what units with weights C and biases b add to the layer before."""
        lines = self.critical.lines
        i = self.rng.permutation(len(lines) * len(lines.grid))[:_LIFT_POINTS]
        layers, lift = prefix.as_relu_layers(lines.grid_points[i])
        return read_out(self.probe, layers, C, b - lift @ C, self.rng).share

    def _signed(self, search, with_linear):
        """Weights, biases, masks of a layer's units with their signs, and linear units (m, r) for missing ones.

        Also whether no further unit seems to be missing.
        """
        C, b = search.weights()
        mask = np.array([unit.mask for unit in search.units]).T
        index = search.usable()
        index = index[~np.any((search.H[index] != 0.0) @ (~mask), axis=1)]
        linear, args = np.zeros((len(C), 0)), (self.critical, search.H, search.A, index)
        fit = layer_signs(*args, (C, b, linear), self.rng)
        for _ in range(_MOST_LINEAR if with_linear else 0):
            direction = None if fit.complete else linear_direction(*args, (C, b, linear))
            if direction is None:
                break
            more = np.column_stack([linear, direction])
            new = layer_signs(*args, (C, b, more), self.rng)
            if not new.is_better(fit):
                break
            fit, linear = new, more
        signs = fit.signs; self._fit = (fit.cluster_share, fit.n_violations, fit.n_able)
        C, mask, passed = _with_kept_signs(search, signs, C * signs, b * signs, mask)
        return (C, b * signs, mask, np.column_stack([linear, passed])), fit.complete


def _with_kept_signs(search, signs, C, b, mask):
    """Weights and masks where inputs with unknown weights leave a unit inactive, or active, wherever they are active.

    Any weight that keeps the unit so will do; if it is active, a linear unit (m, q) makes up for the difference.
    """
    C, mask, passed = C.copy(), mask.copy(), []
    for j, unit in enumerate(search.units):
        if unit.kept is None:
            continue
        for u in np.flatnonzero((unit.kept != 0.0) & ~mask[:, j]):
            sign = unit.kept[u] * signs[j]
            H = search.grid[search.grid[:, u] > 0.0]
            steepest = np.max(-sign * (H @ C[:, j] + b[j]) / H[:, u], initial=0.0)
            if steepest < _STEEPEST:
                C[u, j], mask[u, j] = sign * _BEYOND * steepest, True
                passed += [u] if sign > 0.0 and u not in passed else []
    return C, mask, np.eye(len(C))[:, passed]
