"""ReLU networks of many layers with several outputs: one layer after the other from one set of critical points."""

import numpy as np

from skident.budget.constants import FEW_ROUNDS, PATIENCE

from ...constants import (
    EXPLAINED,
    EXPLAINED_ERRORS,
    LAST_SHARE,
    LEAST_FLOOR,
    RESIDUAL_FLOOR,
    REWEIGHTINGS,
    SETTLED,
    WHOLE_SHARE,
)
from ..kernel.robust_fit import fit_outputs
from ..several_outputs.shared_jacobians import Space
from .aimed_lines import aimed_lines
from .critical_set import CriticalSet, straight_lines
from .error_lines import ErrorLines
from .handover import RecoveredLayer, as_relu_layers
from .known_prefix import KnownPrefix
from .signs import layer_signs
from .units import FURTHER_GRID, LayerSearch

_FEWEST_LINES = 8  # at first
_MOST_LINES = 16  # `_FEWEST_LINES`: the hyperplanes of the first layer meet all of them
_FIRST_POINTS = 1200  # critical points on these (budget: 30 queries each)
_AIMED_LINES = 8  # per layer, where single units of it dominate
_MORE_LINES = 2  # at random
_MORE_SEARCHES = 2  # of units of a layer, if some seem to be missing
_ERROR_ROUNDS = 5  # of lines where outputs are wrong (budget: 5 s and 6,000 queries each)
_MOST_QUERIES = 130_000  # after which there are no further rounds (budget)
_MOST_QUERIES_BESIDE = 180_000  # `_MOST_QUERIES` for rounds of lines where outputs are wrong
_MOST_LAYERS = 10  # hidden ones (budget)
_FEWEST_LAYERS = 2  # that are worth a start: others may not be ReLU units
_NEARLY_ALL = 0.999  # `LAST_SHARE` above which the network of all layers is validated
_OUTPUTS_PER_FEATURE = 3  # queried, per unit of this layer and the one before
_MORE_OUTPUTS = 60  # beyond these
_OUTPUT_RADII = (0.5, 1.0, 2.0, 3.0)  # standard deviations of their inputs
_POOL = 20  # random inputs per chosen one
_STEEPEST = 1e6  # weight that keeps a unit inactive, or active, in units of the known ones, above which there is none
_BEYOND = 2.0  # factor of such a weight: farther out, the unit may be larger


def find_layers(probe, rng, callback=None, validate=None):
    """Pairs of `RecoveredLayer`s and their `Unit`s, `OutputSamples`, and a `DeepNetwork` or None.

    They are as many layers as are recovered. They start the engine, which validates and completes them.
    The outputs of the `DeepProbe` must be exact everywhere, and three at least: a Jacobian serves as many critical
    points as there are outputs. Every critical point of the lines costs about ``10 + 1.5 (D + 20) / (m_L - 1)``
    queries. ``callback(n_units)`` is called after every layer. ``validate(relu_layers, samples)`` gives the
    `DeepNetwork` of layers that explain nearly all outputs and its `Validation`, or None twice; lines follow where it
    is wrong. None if units of one layer only are recovered; raises `NotIdentified` if a line has too many boundaries.
    """
    space = Space(probe.oracle, probe.n_inputs, probe.output_error, np.sqrt(probe.n_inputs))
    search = _ManyLayers(space, probe, rng, callback, validate)
    layers = search.run()
    if len(layers) < _FEWEST_LAYERS:
        return None
    units = [layer.as_units(search.critical.points) for layer in layers]
    return list(zip(layers, units, strict=True)), search.errors.samples, search.found


class _ManyLayers:
    """The critical points of a model, and the units recovered from them."""

    def __init__(self, space, probe, rng, callback=None, validate=None):
        self.space, self.probe, self.rng, self.callback, self.validate = space, probe, rng, callback, validate
        self.critical = CriticalSet(space, rng)
        explained = max(EXPLAINED / probe.resolution, EXPLAINED_ERRORS)
        options = {"explained": explained, "n_rounds": REWEIGHTINGS, "settled": SETTLED * explained}
        options["floor"] = lambda residual: RESIDUAL_FLOOR * np.median(residual) + LEAST_FLOOR
        self.errors = ErrorLines(probe, rng, options)
        self.found = None  # the best `DeepNetwork`
        self.units = {}  # of the last round, by the number of layers before
        self.prefixes, self.searched = [], {}
        self.n_before, self.thorough = probe.oracle.n_queries, False  # behind layers that seem to lack units, too

    def run(self):
        """`RecoveredLayer`s: all of them if they explain most outputs; else without the last behind linear units."""
        self.critical.extend(_FEWEST_LINES)
        if len(self.critical) == 0:
            return []
        per_line = max(len(self.critical) // _FEWEST_LINES, 1)
        self.critical.extend(min(_MOST_LINES, _FIRST_POINTS // per_line) - _FEWEST_LINES)
        best, idle, n_explored, explained = (0.0, []), 0, 0, False
        for _ in range(FEW_ROUNDS + _ERROR_ROUNDS):
            share, layers = self._recover()
            checked = share > WHOLE_SHARE
            if checked:
                share, explained = self._right_share(layers), True
            before, best = best, max((share, layers), best, key=_progress)
            idle = 0 if _progress(best) > _progress(before) else idle + 1
            spent = self.probe.oracle.n_queries - self.n_before > (_MOST_QUERIES_BESIDE if checked else _MOST_QUERIES)
            if share == 1.0 or not layers or idle == PATIENCE or spent:
                break
            if checked:
                self.critical.extend_along(self.errors.lines(), self.prefixes[-1])
            else:
                n_explored += 1
                self.thorough = n_explored > 1
                if n_explored == FEW_ROUNDS or (n_explored > 1 and idle):
                    break
                self._explore()
        share, layers = best
        certain = explained or share > LAST_SHARE or not any(layer.linear.shape[1] for layer in layers[:-1])
        return layers if certain else layers[: max(len(layers) - 1, 1)]

    def _right_share(self, layers):
        """Share of the outputs that `RecoveredLayer`s explain, or their network if it is nearly 1."""
        share = self.errors.right_share(layers)
        if share < _NEARLY_ALL or self.validate is None:
            return share
        found, validation = self.validate(as_relu_layers(layers, self.rng), self.errors.samples)
        if found is None:
            return share
        if self.found is None or found.wrong_share < self.found.wrong_share:
            self.found = found
        self.errors.take(validation)
        return 1.0 - found.wrong_share

    def _explore(self):
        """Scan further lines, at random and where units change their signs that hardly do so elsewhere."""
        self.critical.extend(_MORE_LINES)
        for prefix in self.prefixes[1:]:
            self.critical.extend_along(aimed_lines(prefix, _AIMED_LINES, self.rng), prefix)

    def _recover(self):
        """The share of outputs that as many layers explain as are recovered, and these."""
        prefix, layers, first = KnownPrefix(self.space.n_coordinates), [], len(self.prefixes)
        self.prefixes, best = [prefix], (0.0, [])
        for depth in range(_MOST_LAYERS):
            if depth and depth >= first:
                self.critical.extend_along(aimed_lines(prefix, _AIMED_LINES, self.rng), prefix)
            search, share, fit = self._units_of_layer(depth, prefix, layers)
            if not search.units:
                break
            C, b = search.weights()
            layers.append(RecoveredLayer(prefix, search.units, C, b, np.zeros((len(C), 0))))
            best = max(best, (share if share > LAST_SHARE else 0.0, list(layers)), key=_progress)
            if share > WHOLE_SHARE:
                break
            C, b, mask, linear = _signed(search, fit)
            layers[-1] = RecoveredLayer(prefix, search.units, C, b, linear)
            prefix = prefix.extended(C, b, mask, linear)
            self.prefixes.append(prefix)
            if not (fit.complete or self.thorough):
                break
        return best if best[0] > 0.0 else (0.0, layers)

    def _units_of_layer(self, depth, prefix, layers):
        """The `LayerSearch` of the next layer, the share of outputs that it explains, and the `SignFit` of its units.

        If units seem to be missing, further lines follow as long as these have new ones.
        """
        n_units, share, fit = -1, 0.0, None
        for n_more in range(_MORE_SEARCHES, -1, -1):
            search = LayerSearch(self.critical, prefix, self.errors.beside(FURTHER_GRID))
            search.run(self.units.get(depth, []), self._n_searched(depth, prefix))
            if not search.units:
                break
            self.units[depth] = search.units
            if self.callback is not None:
                self.callback(sum(len(one.units) for one in layers) + len(search.units))
            share = self._share_explained(search)
            if share > WHOLE_SHARE:
                return search, share, None
            last = n_more == 0 or len(search.units) <= n_units
            fit, n_units = self._sign_fit(search), len(search.units)
            if fit.complete or last:
                break
            self.critical.extend_along(self._further_lines(depth, prefix), prefix)
        return search, share, fit

    def _further_lines(self, depth, prefix):
        """Lines where units of the next layer change their signs that hardly do so elsewhere; at first, random ones."""
        if depth == 0:
            return straight_lines(_AIMED_LINES, prefix.n_inputs, self.rng)
        return aimed_lines(prefix, _AIMED_LINES, self.rng)

    def _n_searched(self, depth, prefix):
        """How many critical points were searched for units behind this prefix before; from now on, all are."""
        layers = [(W > 0.0).tobytes() + mask.tobytes() for W, mask in zip(prefix.weights, prefix.masks, strict=True)]
        before, n = self.searched.get(depth, (None, 0))
        self.searched[depth] = layers, len(self.critical)
        return n if before == layers else 0

    def _share_explained(self, search):
        """Share of the outputs that are linear in what the units of a `LayerSearch` add to the layer before.

        At points where no input with an unknown weight is active.
        """
        prefix, (C, b) = search.prefix, search.weights()
        n = _OUTPUTS_PER_FEATURE * sum(C.shape) + _MORE_OUTPUTS
        X = self.rng.choice(_OUTPUT_RADII, (_POOL * n, 1)) * self.rng.standard_normal((_POOL * n, prefix.n_inputs))
        unknown = ~np.array([unit.mask for unit in search.units]).T
        X = X[prefix.certain(X) & ~np.any((prefix.outputs(X) != 0.0) @ unknown, axis=1)][:n]
        H = prefix.outputs(X)
        A = np.column_stack([np.abs(H @ C + b), H, np.ones(len(X))])
        if len(X) < A.shape[1] + _MORE_OUTPUTS // 2:
            return 0.0
        F, tol = self.probe.query(X)
        residual = fit_outputs(A, F, tol, **self.errors.options)[1]
        return float(np.mean(residual < self.errors.options["explained"]))

    def _sign_fit(self, search):
        """The `SignFit` of a layer's units."""
        C, b = search.weights()
        mask = np.array([unit.mask for unit in search.units]).T
        C, filled, _ = _with_kept_signs(search, np.ones(len(b)), C, b, mask)
        index = search.usable()
        on = search.H[index] != 0.0
        known = ~np.any(on @ ~filled, axis=1)
        index, unsure = index[known], on[known] @ (filled & ~mask)
        free = np.eye(len(C))[:, np.any(filled & ~mask, axis=1)]
        return layer_signs(self.critical, search.H, search.A, index, (C, b), self.rng, unsure, free)


def _progress(found):
    """How much a share of outputs and `RecoveredLayer`s explain."""
    share, layers = found
    return share, len(layers), sum(len(layer.units) for layer in layers)


def _signed(search, fit):
    """Weights, biases, masks of a layer's units with their signs, and linear units (m, r) that make up for some."""
    C, b = search.weights()
    mask = np.array([unit.mask for unit in search.units]).T
    C, mask, passed = _with_kept_signs(search, fit.signs, C * fit.signs, b * fit.signs, mask)
    return C, b * fit.signs, mask, passed


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
