"""ReLU networks of many layers with several outputs: one layer after the other from one set of critical points."""

from __future__ import annotations

import numpy as np

from ..deep.readout import read_out
from ..several_outputs.shared_jacobians import Space
from .critical_set import CriticalSet, lines_between
from .handover import RecoveredLayer, as_layer_units
from .known_prefix import KnownPrefix
from .signs import layer_signs, linear_direction
from .units import LayerSearch

__all__ = ["find_layers"]

_FEWEST_LINES = 10  # at first
_MOST_LINES = 40  # the same: the hyperplanes of the first layer meet all of them
_FIRST_POINTS = 2400  # critical points on these: most units have 20 or more (budget: 60 queries each)
_MORE_LINES = 5  # at random
_QUIET_LINES = 5  # per layer, where few of its units are active
_ROUNDS = 2  # of further lines, and of all layers (budget: 5 to 10 s each)
_MOST_LAYERS = 10  # hidden ones (budget)
_FEWEST_LAYERS = 2  # that are worth a start: others may not be ReLU units
_LAST_SHARE = 0.6  # share of outputs explained above which a layer is the last hidden one
_POOL = 6000  # points among which those with few active units are chosen
_POOL_RADII = (0.5, 1.0, 3.0)  # standard deviations of these
_QUIET_SHARE = 0.015  # of them
_FITS = 0.05  # share of clusters that fit, above which no unit is missing that is always active
_GAIN = 0.1  # of that share, with a linear unit for a missing one
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
        """Scan further random lines, and lines between points where few units of some layer are active.

        There, units change their signs that are active nearly everywhere else.
        """
        self.critical.extend(_MORE_LINES)
        for prefix in self.prefixes[-2:]:
            X = self.rng.choice(_POOL_RADII, (_POOL, 1)) * self.rng.standard_normal((_POOL, prefix.n_inputs))
            n_active = np.sum(prefix.outputs(X) > 0.0, axis=1) + self.rng.uniform(size=_POOL)
            quiet = X[np.argsort(n_active)[: int(_QUIET_SHARE * _POOL)]]
            pairs = quiet[self.rng.permutation(len(quiet))[: 2 * _QUIET_LINES]]
            self.critical.extend_along(lines_between(*np.split(pairs, 2)))

    def _recover(self):
        """The share of outputs that as many layers explain as are recovered, and these."""
        prefix, explained = KnownPrefix(self.space.n_coordinates), np.zeros(len(self.critical), dtype=bool)
        self.prefixes, layers = [prefix], []
        for depth in range(_MOST_LAYERS):
            search = LayerSearch(self.critical, prefix, explained)
            units = search.run(self.units.get(depth, []))
            if not units:
                break
            self.units[depth], explained = units, search.explained
            C, b = search.weights()
            layers.append(RecoveredLayer(prefix, units, C, b, np.zeros((len(C), 0))))
            if self.callback is not None:
                self.callback(sum(len(layer.units) for layer in layers))
            share = self._share_explained(prefix, C, b)
            if share > _LAST_SHARE:
                return share, layers
            C, b, mask, linear = self._signed(search)
            layers[-1] = RecoveredLayer(prefix, units, C, b, linear)
            prefix = prefix.extended(C, b, mask, linear)
            self.prefixes.append(prefix)
        return 0.0, layers

    def _share_explained(self, prefix, C, b):
        """Share of the outputs that are linear in what units with weights C and biases b add to the layer before."""
        lines = self.critical.lines
        i = self.rng.permutation(len(lines) * len(lines.grid))[:_LIFT_POINTS]
        layers, lift = prefix.as_relu_layers(lines.grid_points[i])
        return read_out(self.probe, layers, C, b - lift @ C, self.rng).share

    def _signed(self, search):
        """Weights, biases, masks of a layer's units with their signs, and linear units (m, r) for missing ones."""
        C, b = search.weights()
        mask = np.array([unit.mask for unit in search.units]).T
        index = search.usable()
        index = index[~np.any((search.H[index] != 0.0) @ (~mask), axis=1)]
        linear, args = np.zeros((len(C), 0)), (self.critical, search.H, search.A, index)
        signs, fit = layer_signs(*args, (C, b, linear), self.rng)
        for _ in range(_MOST_LINEAR):
            direction = None if fit > _FITS else linear_direction(*args, (C, b, linear))
            if direction is None:
                break
            more = np.column_stack([linear, direction])
            new_signs, new_fit = layer_signs(*args, (C, b, more), self.rng)
            if new_fit < fit + _GAIN:
                break
            signs, fit, linear = new_signs, new_fit, more
        C, mask, passed = _with_kept_signs(search, signs, C * signs, b * signs, mask)
        return C, b * signs, mask, np.column_stack([linear, passed])


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
