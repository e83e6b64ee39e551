"""A ReLU network of any depth, layer by layer, from the kinks of its probe."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, OutOfBudgetError

from ..kernel.output_error import DeepProbe
from ..kernel.robust_fit import NOISY
from .fill_missing import complete
from .held_out_checks import answers_where_units_show
from .hyperplanes import FirstLayerSearch, random_segments
from .known_layers import KnownLayers
from .layer_units import LayerUnits
from .polished import judge
from .readout import read_out
from .refinement import trace_on
from .repair import kinks_beside_errors, unexplained_kinks

__all__ = ["DeepNetwork", "find_deep_relu_network"]

_MOST_LAYERS = 6
_REPAIRS = 12
_LAST = 0.6  # share of the probe explained above which a layer was the last hidden one
_WHOLE = 0.97
_PATIENCE, _MOST_LINES = 2, 12
_CHECKS = 12  # fresh probe a parameter that are looked at, where that is more
_AT_RANDOM, _SHOWN, _LEAST_SHOWN = 0.8, 0.25, 300  # part of them, and how many beside them where units would show
_MOST_QUERIES, _MOST_QUERIES_AN_INPUT = 400_000, 10_000  # at which a search that explains nothing ends
_MORE_ONCE_EXPLAINED = 3  # times as many where most probe are explained
_DEEPER = 5  # times as many of networks of three hidden layers and more, whose units are rarer
_MOST_SEARCHES = 15  # times that more lines are followed where nothing else helps


@dataclass(frozen=True)
class DeepNetwork:
    """What was found.

    Attributes
    ----------
    network : FeedforwardNetwork
        Of u, in the oracle's units.
    wrong : float
        Share of fresh probe that it does not explain.
    n_checked : int
        Fresh probe that were looked at.
    doubt : float
        Largest ``| |s| - 1 |`` of the signs that were solved for in the last hidden layer.
    n_linear : int
        Pairs of units that stand for a linear part.
    n_repairs : int
    """

    network: FeedforwardNetwork
    wrong: float
    n_checked: int
    doubt: float
    n_linear: int
    n_repairs: int


def find_deep_relu_network(oracle, noise, spread, *, rng, leaky=False, callback=None, n_check=5000, rows=None):
    """A ReLU network of any depth from its probe, widths not told.

    Layer by layer: the units of the next layer are linear in features of the layers known, the signs of a layer are a
    linear problem over the units of the next one. Fresh probe tell what is still missing, and the kinks beside wrong
    ones where.

    Parameters
    ----------
    oracle : Oracle
    noise : ndarray of shape (m_L,)
        Rounding of every output near the centre; see `rounding_between_kinks`.
    spread : ndarray of shape (m_L,)
        Deviation of every output's probe.
    rng : numpy.random.RandomState
    leaky : bool, default=False
        Whether units have a slope, one for all of them and to be found, where they are not active.
    callback : callable, default=None
        Called with the number of units found so far.
    n_check : int, default=5000
        Fresh probe looked at in the end, a fifth of them where missing units would show; five times as many for three
        hidden layers and more.
    rows : ndarray of shape (n, D), default=None
        Inputs as they come, between and beyond which probe are looked at too.

    Returns
    -------
    DeepNetwork
        The best one, not always right: see its `wrong`.

    Raises
    ------
    NotIdentified
        (a ValueError) If no network explains most of the probe: `reason` is "linear" where there are no kinks, else
        "unexplained".
    OutOfBudgetError
        If time or questions are used up before any network explains most of the probe.
    BlackBoxError
        If the black box fails.

    Notes
    -----
    A search that explains nothing ends after ``400_000 + 10_000 D`` queries.
    """
    search = _Search(DeepProbe(oracle, noise, spread), rng, leaky, callback, n_check, rows)
    try:
        search.run()
    except OutOfBudgetError:
        if search.best is None:
            raise
    return search.best


class _Search:
    """What is known so far: hyperplanes of the first layer, and units of the layers behind it."""

    def __init__(self, probe, rng, leaky, callback, n_check, rows):
        self.probe, self.rng, self.n_check, self.callback = probe, rng, int(_AT_RANDOM * n_check), callback
        self.rows = np.zeros((0, probe.n_inputs)) if rows is None else rows
        self.slope = None if leaky else 0.0
        self.first, self.asked = FirstLayerSearch(probe, rng), None
        self.layers = {}  # complete LayerUnits by the number of known layers before them
        self.incomplete, self.handed_back, self.idle = None, False, 0
        self.best, self.share = None, 0.0
        self.most_queries = probe.oracle.n_queries + _MOST_QUERIES + _MOST_QUERIES_AN_INPUT * probe.n_inputs

    def run(self):
        """Rounds of reading and repair, until fresh probe show nothing wrong or nothing helps."""
        self._first_layer()
        for n_repairs in range(_REPAIRS + 1):
            readout = self._read_layers()
            self.share = max(readout.share, readout.signed)
            if self.share > _LAST:
                found, judged = self._checked(readout, n_repairs)
                if found.wrong == 0:
                    found, judged = self._looked_again(found, judged)
                self.best = found if self.best is None or found.wrong < self.best.wrong else self.best
                if found.wrong == 0:
                    return
                progress = self._explain_more(judged)
            else:
                progress = self.handed_back or self._look_below()
            self.idle = 0 if progress else self.idle + 1
            if self.idle == _PATIENCE or self._exhausted:
                break
        if self.best is None:
            raise self._nothing_explained()

    @property
    def _exhausted(self):
        """Whether so much was asked in vain that the black box is no such network."""
        return self.probe.oracle.n_queries > self.most_queries * (1 if self.best is None else _MORE_ONCE_EXPLAINED)

    def _tell_progress(self, layer=None):
        """The number of units found so far."""
        if self.callback is not None:
            last = 0 if layer is None else len(layer.units)
            self.callback(len(self.first.planes) + sum(len(found.units) for found in self.layers.values()) + last)

    def _first_layer(self):
        """Follow lines until they show no more hyperplanes."""
        self.first.follow_lines(2)
        for _ in range(_MOST_LINES):
            if not self.first.follow_lines(1):
                break
        idle = 0
        for _ in range(_MOST_LINES):
            idle = 0 if self.first.follow_lines(1, radii=(1.0, 2.0, 3.0), with_normals=False) else idle + 1
            if idle == _PATIENCE:
                break
        self._tell_progress()
        if len(self.first.planes) == 0:
            raise NotIdentified("activation boundaries", *_no_hyperplane(len(self.first.loose)))

    def _read_layers(self):
        """The readout of the first layers that explain the probe, or of as many as can be found."""
        layers, W, b, open_entries = [], self.first.planes[:, :-1].T, self.first.planes[:, -1], None
        self.incomplete, self.handed_back, slope = None, False, self.slope
        for depth in range(1, _MOST_LAYERS + 1):
            readout = read_out(self.probe, layers, W, b, self.rng, open_entries=open_entries, slope=slope)
            if max(readout.share, readout.signed) > (_WHOLE if self.idle or depth in self.layers else _LAST):
                break
            if depth not in self.layers:
                accuracy = self.probe.resolution if self.probe.resolution > NOISY else 0.0
                known = KnownLayers(layers, W, b, slope=slope or 0.0, accuracy=accuracy)
                vague = None if slope != 0.0 or open_entries is None else open_entries < 0
                layer = LayerUnits(known, slope=slope, vague=vague)
                if not self._find_units(layer, depth):
                    self.incomplete = layer
                    break
                self.layers[depth] = layer
                self._tell_progress()
            layer = self.layers[depth]
            if not layer.units:
                self.incomplete = layer
                break
            layers = [*layers, layer.signed()]
            (W, b, open_entries), slope = layer.weights(), layer.slope
        return readout

    def _find_units(self, layer, depth):
        """Units of the next layer, and with them the signs of the last one; whether there are any."""
        n_planes, idle = len(self.first.planes), 0
        self.handed_back = self._completed(self.first.loose)
        if self.handed_back:
            return False
        layer.take_up(self.probe, self.first.loose, self.rng)
        for _ in range(_MOST_LINES):
            self._tell_progress(layer)
            if self._hand_back(layer, depth):
                return False
            if idle and layer.signs is None:
                layer.settle_signs(self.probe, self.rng)
            if layer.signs is not None and self._is_last(layer):
                return True
            if idle == _PATIENCE or self._exhausted:
                break
            kinks = self._fresh_kinks(2, layer.explain)
            if self.first.absorb(kinks) or len(self.first.planes) > n_planes:
                self.layers = {}
                self.handed_back = True
                return False
            if self._completed(kinks):
                self.handed_back = True
                return False
            idle = 0 if layer.take_up(self.probe, kinks, self.rng) else idle + 1
        if layer.settle_signs(self.probe, self.rng):
            layer.drop_strangers(self.probe, self.rng)
        return layer.signs is not None and bool(layer.units)

    def _hand_back(self, layer, depth):
        """Give units found to the layer before where they belong; whether there were any."""
        missed = layer.missed_before()
        if len(missed) == 0:
            return False
        if depth == 1:
            new = sum(self.first.take_up(plane) for plane in layer.planes_before())
        else:
            new = self.layers[depth - 1].take_up(self.probe, missed, self.rng)
        if new:
            self.layers = {d: v for d, v in self.layers.items() if d < depth}
            self.handed_back = True
        return new > 0

    def _is_last(self, layer):
        """Whether the probe are linear in the outputs of these units."""
        if not layer.units:
            return False
        before, (W, b, _) = [*layer.known.layers, layer.signed()], layer.weights()
        return read_out(self.probe, before, W, b, self.rng, slope=layer.slope).share > _WHOLE

    def _fresh_kinks(self, n_lines, explain):
        """Kinks on random lines that nothing explains."""
        lines = random_segments(self.probe, n_lines, self.rng, reach=4.0, radii=(1.0, 2.0, 3.0))
        return unexplained_kinks(self.probe, lines, explain, 24, self.rng)

    def _look_below(self):
        """Where no next layer is found: look for more units of those before it; whether there were any."""
        if self.incomplete is None:
            return False
        for _ in range(_MOST_SEARCHES):
            kinks = self._fresh_kinks(4, self._explained)
            if self._exhausted:
                break
            if len(kinks) and (self._more_hyperplanes(kinks) or self._take_up(kinks)):
                return True
        return False

    def _explained(self, points):
        """Which points lie on kinks of any unit known."""
        explained = self.first.on_planes(points)
        for layer in [*self.layers.values(), *([] if self.incomplete is None else [self.incomplete])]:
            explained |= layer.explain(points)
        return explained

    def _more_hyperplanes(self, kinks):
        """Whether kinks belong to units of the first layer; then those behind are forgotten."""
        n_planes = len(self.first.planes)
        for i in range(len(kinks)):
            self.first.try_kink(kinks.take(np.array([i])))
        self.first.absorb(kinks)
        if len(self.first.planes) == n_planes:
            return False
        self.layers = {}
        return True

    def _take_up(self, kinks):
        """Whether kinks belong to units of layers that counted as complete; then those behind are forgotten."""
        for depth in sorted(self.layers):
            layer, behind = self.layers[depth], depth < max(self.layers) or self.incomplete is not None
            before = sum(unit.n_open for unit in layer.units)
            new = layer.take_up(self.probe, kinks, self.rng)
            new -= layer.drop_strangers(self.probe, self.rng) if new and behind else 0
            if new > 0 or sum(u.n_open for u in layer.units) < before:
                self.layers = {d: v for d, v in self.layers.items() if d <= depth}
                return True
        return False

    def _nothing_explained(self):
        found = [len(self.first.planes), *(len(layer.units) for _, layer in sorted(self.layers.items()))]
        missing = "" if self.incomplete is None else f" ({len(self.incomplete.units)} seen)"
        return NotIdentified(
            "activation boundaries",
            "unexplained",
            f"after {self.probe.oracle.n_queries} queries, units of {len(found)} layers were found ({found}), and "
            f"they explain {100.0 * self.share:.0f} % of the probe; units of layer {len(found) + 1} that would "
            f"explain the others were not{missing}. The black box may not be a ReLU network of dense layers (max "
            "pooling, skip connections, a forest, clipped in- or outputs), or have units that hardly ever change "
            "their side; another random_state or a larger input_range shows others.",
        )

    def _checked(self, readout, n_repairs):
        """The polished network and how much of fresh probe it explains; and these."""
        self._tell_progress()
        # Those of networks of three hidden layers and more are rarer.
        n_check = max(self.n_check, _CHECKS * readout.network.n_parameters // readout.network.n_outputs)
        n_check *= 1 if len(readout.network.weights) < 4 else _DEEPER
        judged = judge(self.probe, readout, self.asked, n_check, self.rng)
        self.asked = judged.asked
        network = _in_oracle_units(judged.network, self.probe.output_error)
        doubt, n_linear = float(readout.doubt.max(initial=0.0)), judged.linear.shape[1]
        return DeepNetwork(network, judged.wrong, len(judged.X), doubt, n_linear, n_repairs), judged

    def _looked_again(self, found, judged):
        """The same where missing units would show."""
        n = max(_LEAST_SHOWN, int(_SHOWN * found.n_checked))
        shown = answers_where_units_show(self.probe, judged.network, self.rows, n, self.rng)
        judged = judged.beside(self.probe, shown)
        self.asked = judged.asked
        return replace(found, wrong=judged.wrong, n_checked=len(judged.X)), judged

    def _explain_more(self, judged):
        """Take up kinks next to wrong probe at the lowest layer that they fit; whether that changed anything."""
        kinks = kinks_beside_errors(self.probe, judged.network, judged.X, judged.error, self.rng)
        if self._completed(kinks, judged.linear) or self._more_hyperplanes(kinks) or self._take_up(kinks):
            return True
        for depth in sorted(self.layers):
            if trace_on(self.probe, self.layers[depth].units, self.rng):
                self.layers = {d: v for d, v in self.layers.items() if d <= depth}
                return True
            if self.layers[depth].choices:
                self.layers[depth].try_other_signs(self.probe, self.rng)
                self.layers = {d: v for d, v in self.layers.items() if d <= depth}
                return True
        return False

    def _completed(self, kinks, linear=None):
        """Whether kinks belong to units of which all but the bias is known, as a linear part of the next layer."""
        if len(kinks) == 0:
            return False
        for depth in sorted(self.layers):
            behind = self.layers.get(depth + 1, self.incomplete)
            part = linear if behind is None else behind.linear
            if part is not None and part.shape[1] and complete(self.layers[depth], part, kinks):
                self.layers = {d: v for d, v in self.layers.items() if d <= depth}
                return True
        return False


def _no_hyperplane(n_loose):
    """What was seen, and an error, where there is no first layer."""
    if n_loose == 0:
        return "linear", "the probe do not bend anywhere near the centre: there is no unit to be found."
    return "unexplained", (
        f"the probe bend at {n_loose} places, but no kink goes on along a hyperplane: units of layer 1 were not "
        "found. A black box that bends along curved or bounded surfaces only is no ReLU network of dense layers."
    )


def _in_oracle_units(network, noise):
    """A network of probe in units of their rounding as one of the oracle's."""
    weights, biases = network.weights, network.biases
    return network.with_parameters([*weights[:-1], weights[-1] * noise], [*biases[:-1], biases[-1] * noise])
