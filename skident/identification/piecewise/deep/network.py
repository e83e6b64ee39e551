"""A ReLU network of any depth, layer by layer, from the activation boundaries of its outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.budget.constants import PATIENCE
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, OutOfBudgetError

from ...constants import HELD_OUT_PER_PARAMETER, LAST_SHARE, LINE_REACH, N_INTERVALS, NEARLY_RIGHT, WHOLE_SHARE
from ..kernel.gradient import critical_points_on
from ..kernel.lines import random_segments
from ..kernel.robust_fit import NOISY
from .first_layer import HyperplaneSearch
from .follow_facets import extend_units
from .known_layers import KnownLayers
from .layer_units import LayerUnits
from .nearby_points import add_units_of_nearby_points
from .readout import in_oracle_units, inputs_as_pairs, read_out
from .slow_layers import further_queries
from .validation import (
    Validation,
    boundaries_beside_errors,
    sample_where_units_change,
    samples_farther_out,
    validate_readout,
)

__all__ = ["DeepNetwork", "find_deep_relu_network", "validate_relu_layers"]

_MOST_LAYERS = 6  # hidden ones; boundaries of deeper units are too short to be followed
_FURTHER_LAYERS = 2  # hidden ones beyond the layers that the search starts from, if these are more
_N_REPAIRS = 12  # rounds of explaining wrong outputs
_WORSE_ROUNDS = 3  # repairs that do not help, after which the search ends then
_MAX_LINES = 12  # followed per layer
_MAX_SEARCHES = 15  # times that more lines are scanned where nothing else helps
_RANDOM_SHARE = 0.8  # of the held-out samples, those at random points
_CHANGING_SHARE = 0.25  # beside these, over them, samples where missing units would show
_FEWEST_CHANGING = 300  # of these
_LINEAR_SAMPLES = 20_000  # farther out, where a linear part of the outputs may prove to be a rare unit (budget)
_DEEPER_SAMPLES = 5  # times as many for networks of three hidden layers and more, whose units are rarer
_MAX_QUERIES = 400_000  # budget of a search that explains nothing
_MAX_QUERIES_PER_INPUT = 10_000  # beyond these
_MORE_ONCE_EXPLAINED = 3  # times as many if most outputs are explained
_LINE_RADII = (1.0, 2.0, 3.0)  # spreads of the points that lines go through, in standard deviations of the inputs


@dataclass(frozen=True)
class DeepNetwork:
    """Recovered units, of the oracle's standardized inputs and in its output units."""

    network: FeedforwardNetwork
    wrong_share: float  # of the held-out outputs, those that it does not explain
    n_validation: int  # held-out outputs
    sign_deviation: float  # largest | |s| - 1 | of the signs that were solved for in the last hidden layer
    n_linear: int  # pairs of units that stand for a linear part
    n_repairs: int
    n_skips: int = 0  # layers with units that only pass on the outputs of the layer before, or its inputs


def find_deep_relu_network(
    probe, *, rng, leaky=False, callback=None, n_validation=5000, inputs=None, max_queries=None, start=None
):
    """The best `DeepNetwork` of unknown depth and widths for the outputs of a `DeepProbe`; see its `wrong_share`.

    The units of the next layer are linear in features of the known layers, the signs of a layer solve linear equations
    from the units of the next one. Held-out outputs reveal what is missing, and boundaries beside wrong ones where.

    With `leaky`, units have a slope where they are inactive, one for all, which is recovered. `callback(n_units)` is
    called with the units detected so far. `n_validation` held-out outputs, a fifth of them where missing units would
    show, also between and beyond `inputs` (n, D). Raises `NotIdentified` if no network explains most of the outputs
    ("linear" without boundaries, else "unexplained"), and `OutOfBudgetError` if the budget ends before. A search that
    explains nothing ends after `max_queries`, by default ``400_000 + 10_000 D``, and more behind a wide layer. It can
    `start` from hyperplanes (K, D + 1) of the first layer, a dictionary of `LayerUnits` by depth, `OutputSamples` or
    None, and the best `DeepNetwork` so far or None.
    """
    if max_queries is None:
        max_queries = _MAX_QUERIES + _MAX_QUERIES_PER_INPUT * probe.n_inputs
    inputs = np.zeros((0, probe.n_inputs)) if inputs is None else inputs
    search = _DeepSearch(probe, rng, leaky, callback, int(_RANDOM_SHARE * n_validation), inputs, max_queries)
    if start is not None:
        search.first.planes, search.layers, search.samples, search.best = start
    try:
        search.run()
    except (NotIdentified, OutOfBudgetError):
        if search.best is None:
            raise
    return search.best


def validate_relu_layers(probe, relu_layers, samples, *, rng, n_validation, inputs):
    """The `DeepNetwork` of given ReLU layers and its `Validation`, on these `OutputSamples` and others; or None twice.

    The layers are arguments of `read_out`; None if they explain too few outputs. The others as in
    `find_deep_relu_network`.
    """
    search = _DeepSearch(probe, rng, False, None, int(_RANDOM_SHARE * n_validation), inputs, 0)
    search.samples, (layers, W, b, undetermined) = samples, relu_layers
    readout = read_out(probe, layers, W, b, rng, undetermined=undetermined)
    return (None, None) if readout.share < LAST_SHARE else search.validated(readout, 0)


class _DeepSearch:
    """What is known so far: hyperplanes of the first layer, and units of the layers behind it."""

    def __init__(self, probe, rng, leaky, callback, n_validation, inputs, max_queries):
        self.probe, self.rng, self.callback = probe, rng, callback
        self.n_validation, self.inputs, self.samples = n_validation, inputs, None
        self.slope = None if leaky else 0.0
        self.first = HyperplaneSearch(probe, rng)
        self.layers = {}  # complete LayerUnits by the number of known layers before them
        self.incomplete, self.handed_back, self.idle = None, False, 0
        self.best, self.share = None, 0.0
        self.n_before, self.max_queries = probe.oracle.n_queries, max_queries

    def run(self):
        """Rounds of reading and repair, until held-out outputs are right or nothing helps."""
        if self.best is not None and self.best.wrong_share == 0:
            return
        if not self.layers:
            self._find_first_layer()
        n_worse = 0
        for n_repairs in range(_N_REPAIRS + 1):
            readout = self._read_layers()
            self.share = readout.share
            if self.share > LAST_SHARE:
                found, validation = self.validated(readout, n_repairs)
                better = self.best is None or found.wrong_share < self.best.wrong_share
                self.best, n_worse = (found, 0) if better else (self.best, n_worse + 1)
                if found.wrong_share == 0 or (self.best.wrong_share < NEARLY_RIGHT and n_worse == _WORSE_ROUNDS):
                    return
                progress = self._explain_errors(validation)
            else:
                progress = self.handed_back or self._search_below()
            self.idle = 0 if progress else self.idle + 1
            if self.idle == PATIENCE or self._exhausted:
                break
        if self.best is None:
            raise self._nothing_explained()

    @property
    def _exhausted(self):
        """Whether so many queries were in vain that the black box is no such network."""
        n_queries = self.probe.oracle.n_queries - self.n_before
        return n_queries > self.max_queries * (1 if self.best is None else _MORE_ONCE_EXPLAINED)

    def _report_progress(self, layer=None):
        """Call back with the number of units detected so far."""
        if self.callback is not None:
            last = 0 if layer is None else len(layer.units)
            self.callback(len(self.first.planes) + sum(len(found.units) for found in self.layers.values()) + last)

    def _forget_from(self, depth):
        """Forget the units of this and deeper layers, which change with what is known before them."""
        self.layers = {d: layer for d, layer in self.layers.items() if d < depth}

    def _find_first_layer(self):
        """Scan lines until they have no new hyperplanes."""
        self.first.scan_lines(2)
        for _ in range(_MAX_LINES):
            if not self.first.scan_lines(1):
                break
        idle = 0
        for _ in range(_MAX_LINES):
            idle = 0 if self.first.scan_lines(1, radii=_LINE_RADII, with_normals=False) else idle + 1
            if idle == PATIENCE:
                break
        self._report_progress()
        n_units = len(self.first.planes)
        self.max_queries += further_queries(self.probe, self.first)
        if n_units == 0:
            raise NotIdentified("activation boundaries", *_no_hyperplane(len(self.first.loose)))

    def _read_layers(self):
        """The readout of the first layers that explain the outputs, or of as many as can be recovered."""
        layers, (W, b), undetermined = [], (self.first.planes[:, :-1].T, self.first.planes[:, -1]), None
        self.incomplete, self.handed_back, slope = None, False, self.slope
        for depth in range(1, max(_MOST_LAYERS, max(self.layers, default=0) + _FURTHER_LAYERS) + 1):
            readout = read_out(self.probe, layers, W, b, self.rng, undetermined=undetermined, slope=slope)
            if readout.share > (WHOLE_SHARE if self.idle or depth in self.layers else LAST_SHARE):
                break
            if depth not in self.layers:
                accuracy = self.probe.resolution if self.probe.resolution > NOISY else 0.0
                known = KnownLayers(layers, W, b, slope=slope or 0.0, accuracy=accuracy)
                missing = None if slope != 0.0 or undetermined is None else undetermined < 0
                layer = LayerUnits(known, slope=slope, undetermined=missing)
                if not self._find_units(layer, depth):
                    self.incomplete = layer
                    break
                self.layers[depth] = layer
                self._report_progress()
            layer = self.layers[depth]
            if not layer.units:
                self.incomplete = layer
                break
            layers = [*layers, layer.signed_layer()]
            (W, b, undetermined), slope = layer.weights(), layer.slope
        return readout

    def _find_units(self, layer, depth):
        """Add the units of the next layer, and with them the signs of the last one; whether there are any."""
        n_planes, idle = len(self.first.planes), 0
        self.handed_back = self._add_from_linear_part(self.first.loose)
        if self.handed_back:
            return False
        if depth == 1:
            add_units_of_nearby_points(self.probe, layer, self.rng)
        layer.add(self.probe, self.first.loose, self.rng)
        for _ in range(_MAX_LINES):
            self._report_progress(layer)
            if self._hand_back(layer, depth):
                return False
            if idle and layer.signs is None:
                layer.fix_signs(self.probe, self.rng)
            if layer.signs is not None and self._is_last(layer):
                return True
            if idle == PATIENCE or self._exhausted:
                break
            critical = self._new_points(2, layer.explains)
            self.handed_back = self._adds_hyperplanes(critical, n_planes) or self._add_from_linear_part(critical)
            if self.handed_back:
                return False
            idle = 0 if layer.add(self.probe, critical, self.rng) else idle + 1
        if layer.fix_signs(self.probe, self.rng, with_skip=self.idle > 0):
            layer.drop_deeper_facets(self.probe, self.rng)
        return layer.signs is not None and bool(layer.units)

    def _hand_back(self, layer, depth):
        """Give detected units to the layer before if they belong there; whether there were any."""
        critical = layer.points_of_previous_layer()
        if len(critical) == 0:
            return False
        if depth == 1:
            new = sum(self.first.add_plane(plane) for plane in layer.planes_of_previous_layer())
        else:
            new = self.layers[depth - 1].add(self.probe, critical, self.rng)
        if new:
            self._forget_from(depth)
            self.handed_back = True
        return new > 0

    def _is_last(self, layer):
        """Whether the outputs are linear in the outputs of these units."""
        if not layer.units:
            return False
        before, (W, b, _) = [*layer.known.layers, layer.signed_layer()], layer.weights()
        return read_out(self.probe, before, W, b, self.rng, slope=layer.slope).features_share > WHOLE_SHARE

    def _new_points(self, n_lines, explains):
        """Critical points on random lines that nothing explains."""
        lines = random_segments(self.probe, n_lines, self.rng, reach=LINE_REACH, radii=_LINE_RADII)
        return critical_points_on(self.probe, lines, explains, N_INTERVALS, self.rng)

    def _search_below(self):
        """If no next layer is detected: search more units of those before it; whether there were any."""
        if self.incomplete is None:
            return False
        for _ in range(_MAX_SEARCHES):
            critical = self._new_points(4, self._explains)
            if self._exhausted:
                break
            if len(critical) and (self._try_hyperplanes(critical) or self._add_units(critical)):
                return True
        return False

    def _explains(self, points):
        """Which points (n, D) are on boundaries of any unit known."""
        explained = self.first.contains(points)
        for layer in [*self.layers.values(), *([] if self.incomplete is None else [self.incomplete])]:
            explained |= layer.explains(points)
        return explained

    def _adds_hyperplanes(self, critical, n_planes):
        """Whether there are more than `n_planes` hyperplanes with these points; then layers behind are forgotten."""
        self.first.add_points(critical)
        if len(self.first.planes) == n_planes:
            return False
        self._forget_from(1)
        return True

    def _try_hyperplanes(self, critical):
        """Whether critical points belong to units of the first layer, also single ones of a hyperplane."""
        n_planes = len(self.first.planes)
        for i in range(len(critical)):
            self.first.try_point(critical.take(np.array([i])))
        return self._adds_hyperplanes(critical, n_planes)

    def _add_units(self, critical):
        """Whether critical points belong to units of layers that counted as complete; those behind are forgotten."""
        for depth in sorted(self.layers):
            layer, behind = self.layers[depth], depth < max(self.layers) or self.incomplete is not None
            before = sum(unit.nullity for unit in layer.units)
            new = layer.add(self.probe, critical, self.rng)
            new -= layer.drop_deeper_facets(self.probe, self.rng) if new and behind else 0
            if new > 0 or sum(unit.nullity for unit in layer.units) < before:
                self._forget_from(depth + 1)
                return True
        return False

    def _nothing_explained(self):
        found = [len(self.first.planes), *(len(layer.units) for _, layer in sorted(self.layers.items()))]
        missing = "" if self.incomplete is None else f" ({len(self.incomplete.units)} detected)"
        return NotIdentified(
            "activation boundaries",
            "unexplained",
            f"after {self.probe.oracle.n_queries} queries, units of {len(found)} layers were detected ({found}), and "
            f"they explain {100.0 * self.share:.0f} % of the outputs; units of layer {len(found) + 1} that would "
            f"explain the others were not{missing}. The black box may not be a ReLU network of dense layers (max "
            "pooling, skip connections, a forest, clipped in- or outputs), or have units that hardly ever change "
            "their sign; another random_state or a larger input_range finds others.",
        )

    def validated(self, readout, n_repairs):
        """The polished network of a readout as `DeepNetwork`, and its `Validation`.

        If nothing is wrong at random points, samples where missing units would show are added: more of them if units
        are always active so far.
        """
        self._report_progress()
        network = readout.network
        n = max(self.n_validation, HELD_OUT_PER_PARAMETER * network.n_parameters // network.n_outputs)
        n *= 1 if len(network.weights) < 4 else _DEEPER_SAMPLES
        validation = validate_readout(self.probe, readout, self.samples, n, self.rng)
        if 1 in self.layers and self.layers[1].skip:
            network = inputs_as_pairs(validation.network, self.layers[1].known.n_units)
            validation = Validation.of(self.probe, network, validation.linear, validation.samples)
        if validation.wrong_share == 0:
            n = max(_FEWEST_CHANGING, int(_CHANGING_SHARE * len(validation.X)))
            more = sample_where_units_change(self.probe, validation.network, self.inputs, n, self.rng)
            validation = validation.with_samples(self.probe, more)
        if validation.wrong_share == 0 and validation.linear.shape[1]:
            more = samples_farther_out(self.probe, _LINEAR_SAMPLES, self.rng)
            validation = validation.with_samples(self.probe, more)
        self.samples = validation.samples
        found = DeepNetwork(
            in_oracle_units(validation.network, self.probe.output_error),
            validation.wrong_share,
            len(validation.X),
            float(readout.deviation.max(initial=0.0)),
            validation.linear.shape[1],
            n_repairs,
            sum(layer.skip for layer in self.layers.values()),
        )
        return found, validation

    def _explain_errors(self, validation):
        """Add boundaries beside wrong outputs at the lowest layer that they fit; whether that changed anything."""
        critical = boundaries_beside_errors(self.probe, validation.network, validation.X, validation.error, self.rng)
        if self._add_from_linear_part(critical, validation.linear):
            return True
        if self._try_hyperplanes(critical) or self._add_units(critical):
            return True
        for depth, layer in sorted(self.layers.items()):
            if extend_units(self.probe, layer.units, self.rng):
                self._forget_from(depth + 1)
                return True
            if layer.choices:
                layer.try_other_signs(self.probe, self.rng)
                self._forget_from(depth + 1)
                return True
        return False

    def _add_from_linear_part(self, critical, linear=None):
        """Whether critical points belong to units of which a linear part of the next layer gives all but the bias."""
        if len(critical) == 0:
            return False
        for depth in sorted(self.layers):
            behind = self.layers.get(depth + 1, self.incomplete)
            part = linear if behind is None else behind.linear
            if part is not None and part.shape[1] and self.layers[depth].add_from_linear_part(part, critical):
                self._forget_from(depth + 1)
                return True
        return False


def _no_hyperplane(n_loose):
    """The reason and message of the error if there is no first layer."""
    if n_loose == 0:
        return "linear", "the outputs do not bend anywhere near the center: there is no unit to detect."
    return "unexplained", (
        f"the outputs bend at {n_loose} places, but no activation boundary continues along a hyperplane: units of "
        "layer 1 were not detected. A black box that bends along curved or bounded surfaces only is no ReLU network of "
        "dense layers."
    )
