"""Piecewise linear networks of any depth: measure, explain by units, solve signs, read out, take up counterexamples."""

from dataclasses import dataclass, replace

import numpy as np

from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, OutOfBudgetError

from ..constants import LAST_SHARE, WHOLE_SHARE
from ..measure.outputs import Outputs
from ..measure.record import Record
from ..units.layer import FEWEST_HITS, LayerUnits
from ..units.open_parts import close_open_parts
from ..units.prefix import Layer, Prefix, relu_pairs
from ..units.readout import in_oracle_units, inputs_as_pairs, read_out
from ..units.validation import Validation, samples_farther_out, validate_readout
from .acquire import lines_beside, orthant_lines, random_lines
from .first_layer import FirstLayer
from .kernel.robust_fit import NOISY
from .layer_search import find_signs, find_units, left_over, unexplained
from .slow_layers import further_queries

_MOST_LAYERS = 12  # hidden ones (budget)
_MOST_REPAIRS = 25  # rounds of counterexamples (budget)
_MOST_SEARCHES = 3  # times that more lines are scanned if nothing else helps (budget)
_EXPLAINED_SHARE = 0.4  # of the outputs, above which wrong ones are counterexamples
_N_LINES = 3  # of these
_MOST_QUERIES = 400_000  # of a search that explains nothing (budget)
_PATHS = 6  # lines from right to wrong outputs
_PER_PARAMETER = 2  # held-out outputs per parameter and output
_LINEAR_SAMPLES = 20_000  # farther out, where a linear part of the outputs may prove to be a rare unit (budget)


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


def find_piecewise_network(
    probe, *, rng, leaky=False, callback=None, n_validation=1000, inputs=None, max_queries=_MOST_QUERIES, start=None
):
    """The best `DeepNetwork` of unknown depth and widths for the outputs of a `DeepProbe`; see its `wrong_share`.

    With `leaky`, units have a slope where they are inactive, one for all, which is recovered. `callback(n_units)` is
    called with the units detected so far. `n_validation` held-out outputs at least, also between and beyond `inputs`
    (n, D). It can `start` from pairs of `RecoveredLayer`s and `Unit`s, `OutputSamples` or None, and the best
    `DeepNetwork` so far or None.
    Raises `NotIdentified` if no network explains most of the outputs ("linear" without boundaries, else
    "unexplained"), and `OutOfBudgetError` if the budget ends before. A search ends after `max_queries`.
    """
    inputs = np.zeros((0, probe.n_inputs)) if inputs is None else inputs
    search = _Engine(probe, rng, leaky, callback, n_validation, inputs, max_queries)
    if start is not None:
        search.start(*start)
    try:
        search.run()
    except (NotIdentified, OutOfBudgetError):
        if search.best is None:
            raise
    if search.best is None:
        raise search.nothing_explained()
    return search.best


def validate_relu_layers(probe, relu_layers, samples, *, rng, n_validation, inputs):
    """The `DeepNetwork` of given ReLU layers and its `Validation`, on these `OutputSamples` and others; or None twice.

    The layers are arguments of `read_out`; None if they explain too few outputs.
    """
    engine = _Engine(probe, rng, False, None, n_validation, inputs, 0)
    engine.samples = samples
    readout = read_out(probe, *relu_layers, rng)
    if readout.share < LAST_SHARE:
        return None, None
    engine.take(readout, 0)
    return engine.best, engine.validation


class _Engine:
    """Levels of units, each behind the ones before; signs of all but the last; held-out outputs."""

    def __init__(self, probe, rng, leaky, callback, n_validation, inputs, max_queries):
        self.probe, self.rng, self.callback, self.inputs = probe, rng, callback, inputs
        self.outputs = Outputs(probe, rng)
        self.record = Record(self.outputs)
        self.n_validation, self.samples, self.validation = n_validation, None, None
        self.levels, self.signs, self.linear, self.slope = [], {}, {}, None if leaky else 0.0
        self.best, self.validated, self.share, self.n_searches, self.skips, self.scanned = None, None, 0.0, 0, set(), []
        self.most = probe.oracle.n_queries + max_queries

    def run(self):
        """Climb, read out and repair until held-out outputs are right, or nothing helps."""
        if self.best is not None and self.best.wrong_share == 0:
            return
        if not self.levels:
            self.find_first_layer()
        for n_repairs in range(_MOST_REPAIRS + 1):
            readout = self.climb()
            self.share = 0.0 if readout is None else readout.share
            if self.share > _EXPLAINED_SHARE:
                self.take(readout, n_repairs)
                if self.best.wrong_share == 0 or self.exhausted:
                    return
                if self.repair():
                    continue
            if self.exhausted or not self.search_more():
                return

    def start(self, recovered, samples, best):
        """Take over `RecoveredLayer`s with their `Unit`s, held-out outputs and the best `DeepNetwork` so far."""
        self.samples, self.best, layers = samples, best, []
        for depth, (found, units) in enumerate(recovered, start=1):
            prefix = Prefix(self.outputs.n_inputs, layers)
            level = LayerUnits(self.record, prefix) if layers else FirstLayer(self.record)
            level.units = units
            self.levels.append(level)
            self.signs[depth], self.linear[depth] = np.ones(len(level.units)), found.linear
            layers = [*layers, self.signed(depth)]
        del self.signs[len(recovered)]

    def find_first_layer(self):
        """Find the hyperplanes of the first layer."""
        first = FirstLayer(self.record)
        self.levels = [first]
        first.search()
        if not first.units:
            raise NotIdentified("activation boundaries", *_no_hyperplane(len(self.record)))
        n_unexplained = len(left_over(self.levels, np.arange(len(self.record))))
        self.most += further_queries(self.probe, len(first.units), len(self.record.lines), n_unexplained)
        first.refine()

    @property
    def exhausted(self):
        return self.probe.oracle.n_queries > self.most

    def report_progress(self):
        if self.callback is not None:
            self.callback(sum(len(level.units) for level in self.levels))

    def read(self, layers, level):
        """The `Readout` of layers with signs and the units of a level."""
        *pairs, (W, b) = relu_pairs(layers, level.weights(), self.outputs)
        readout = read_out(self.probe, pairs, W, b, self.rng, slope=self.slope or 0.0)
        if readout.linear.shape[1] and readout.share > LAST_SHARE and self.close(readout.cut()):
            return self.read(layers, level)
        return readout

    def close(self, network):
        """Determine open parts of the hidden layers of a network from outputs; whether there were some."""
        units = [level.units for level in self.levels[: len(network.weights) - 1]]
        return not self.linear and close_open_parts(self.probe, network, units, self.rng)

    def climb(self):
        """The readout of as many layers as are recovered, or None."""
        layers, readout = [], None
        for depth in range(1, _MOST_LAYERS + 1):
            level = self.levels[depth - 1]
            if not level.units:
                break
            self.report_progress()
            readout = self.read(layers, level)
            whole = depth < len(self.levels) or self.n_searches
            if readout.share > (WHOLE_SHARE if whole else LAST_SHARE) or self.exhausted:
                break
            if len(left_over(self.levels[:depth], np.arange(len(self.record)))) < FEWEST_HITS:  # of a deeper unit
                break
            if not self.is_signed(depth) and not self.solve_signs(layers, depth):
                break
            layers = [*layers, self.signed(depth)]
            if depth < len(self.levels):
                self.levels[depth].prefix = Prefix(self.outputs.n_inputs, layers)
                continue
            self.levels.append(LayerUnits(self.record, Prefix(self.outputs.n_inputs, layers)))
            self.search_level()
            if not all(self.is_signed(lower) for lower in range(1, depth + 1)):
                return self.climb()
            if not self.levels[-1].units:
                self.levels.pop()
                if depth in self.skips:
                    self.forget_signs(depth)
                break
        return readout

    def is_signed(self, depth):
        """Whether the signs of a level are those of its units of today; else it and deeper levels lose theirs."""
        if len(self.signs.get(depth, ())) == len(self.levels[depth - 1].units):
            return True
        self.levels = self.levels[:depth]
        self.forget_signs(depth)
        return False

    def signed(self, depth):
        """The `Layer` of a level with its signs."""
        W, b = self.levels[depth - 1].weights()
        layer = Layer.of(W * self.signs[depth], b * self.signs[depth], self.slope or 0.0, self.levels[depth - 1].units)
        return layer.with_linear(self.linear[depth]) if depth in self.linear else layer

    def solve_signs(self, layers, depth):
        """Whether the signs of a level are determined, perhaps without units that more lines refute.

        If they are not after more lines, the next layer may read what this one reads, too: linear units pass that on,
        and signs and slopes do not matter, as leaky ReLU units of either sign are combinations of relu(z) and z.
        """
        level = self.levels[depth - 1]
        if self._solved(layers, depth) or (level.drop_refuted() and level.units and self._solved(layers, depth)):
            return True
        if self.n_searches == 0 or self.probe.resolution > NOISY:
            return False
        self.signs[depth], self.slope = np.ones(len(level.units)), 0.0
        self.linear[depth] = np.eye(level.prefix.n_features - 1)
        self.skips.add(depth)
        return True

    def _solved(self, layers, depth):
        W, b = self.levels[depth - 1].weights()
        prefix = Prefix(self.outputs.n_inputs, layers, Layer.of(W, b, units=self.levels[depth - 1].units))
        found = find_signs(self.record, self.levels[:depth], prefix, self.slope)
        if found is None:
            return False
        self.signs[depth], self.slope = found
        return True

    def forget_signs(self, depth):
        """Forget the signs, and linear units, of this and deeper levels."""
        for kept in (self.signs, self.linear):
            for key in [key for key in kept if key >= depth]:
                del kept[key]
        self.skips = {key for key in self.skips if key < depth}

    def search_level(self):
        """Add units to the last level, from more lines as long as these have new ones."""
        level = self.levels[-1]
        lines = list(range(len(self.record.lines)))
        for _ in range(_MOST_SEARCHES + 1):
            before = len(level.units)
            if find_units(self.record, self.levels, lines) or self.exhausted:
                break
            self.report_progress()
            if len(level.units) == before:
                break
            lines = list(self.more_lines(_N_LINES))

    def more_lines(self, n):
        """Scan lines where all units of the first layer are active if the second is searched, else anywhere."""
        new = orthant_lines(self.record, self.signed(1), 2 * n) if len(self.levels) == 2 else None
        return random_lines(self.record, n) if new is None else new

    def search_more(self):
        """Scan more lines, and take up what they show; False if that was done several times."""
        self.n_searches += 1
        if self.n_searches > _MOST_SEARCHES:
            return False
        self.more_lines(_N_LINES)
        if self.n_searches > 1:
            random_lines(self.record, _N_LINES)
        for level in self.levels:
            level.rejected = set()
        if len(self.levels) == 1:
            self.levels[0].search()
        elif not self.take_up(range(len(self.record.lines))):
            doubtful = [depth for depth, linear in self.linear.items() if linear.shape[1]]
            self.levels = self.levels[: min(doubtful, default=len(self.levels))]
            self.forget_signs(len(self.levels))
        return True

    def take_up(self, lines):
        """Whether bends on lines gave a missing unit, at the lowest level that it fits; the next ones are forgotten."""
        index = np.flatnonzero(np.isin(self.record.bends.line, lines))
        self.record.measure_normals(lines, *unexplained(self.record, self.levels, index)[1:])
        last = len(self.levels) - 1
        whole = [(depth, depth == last) for depth in range(last + 1)]
        for depth, may_extend in [*whole, *((depth, True) for depth in range(1, last))]:
            level, before = self.levels[depth], len(self.levels[depth].units)
            determined = [each.n_determined for each in self.levels]
            if level.complete(left_over(self.levels, self.record.with_normals())):
                return True
            level.rejected -= set(index)
            if depth == 0:
                level.add_hyperplanes(np.intersect1d(index, self.record.with_normals()))
            else:
                find_units(self.record, self.levels[: depth + 1], lines, may_extend=may_extend)
                if depth < last and may_extend:  # an open unit there may be one of a deeper level
                    level.units[before:] = [unit for unit in level.units[before:] if not unit.nullity]
            changed = [each.n_determined > n for each, n in zip(self.levels, determined, strict=True)]
            if any(changed):
                lowest = changed.index(True) + 1
                self.levels = self.levels[:lowest]
                self.forget_signs(lowest)
                return True
        return False

    def take(self, readout, n_repairs):
        """Validate a readout, and keep its network if it is the best so far."""
        self.report_progress()
        network = readout.network
        n = max(self.n_validation, _PER_PARAMETER * network.n_parameters // network.n_outputs)
        found = validate_readout(self.probe, readout, self.samples, n, self.inputs, self.rng)
        if 1 in self.skips:
            network = inputs_as_pairs(found.network, len(self.levels[0].units))
            found = Validation.of(self.probe, network, found.linear, found.samples)
        for n in (_LINEAR_SAMPLES // 16, _LINEAR_SAMPLES):  # most rare units prove to be so among the first
            if found.wrong_share == 0 and found.linear.shape[1]:
                found = found.with_samples(self.probe, samples_farther_out(self.probe, n, self.rng))
        self.samples, self.validation = found.samples, found
        self.validated = found.or_better(self.probe, self.validated)
        if self.validated is found:
            network = in_oracle_units(found.network, self.probe.output_error)
            deviation = float(readout.deviation.max(initial=0.0))
            self.best = DeepNetwork(
                *(network, found.wrong_share, len(found.X), deviation),
                *(found.linear.shape[1], n_repairs, len(self.skips)),
            )
        else:
            self.best = replace(self.best, wrong_share=self.validated.wrong_share, n_validation=len(self.validated.X))

    def repair(self):
        """Determine open parts of lower layers, or scan from right to wrong outputs; whether units changed.

        Bends there give missing units, at the lowest level that they fit.
        """
        if self.close(self.validation.network):
            return True
        X, (right, wrong) = self.validation.X, self.validation.right_and_wrong()
        if len(right) == 0:
            return False
        one, other = self._new_pairs(X, right, self.rng.permutation(wrong)[:_PATHS])
        lines = lines_beside(self.record, X[one], X[other])
        return self.take_up(lines)

    def _new_pairs(self, X, right, wrong):
        """Indices (n,) of the right samples that are nearest to wrong ones, and of these: pairs not scanned before."""
        nearest = right[np.linalg.norm(X[right][:, None] - X[wrong], axis=2).argsort(axis=0)].T
        for i in range(_PATHS):
            w = i % len(wrong)
            new = [(int(r), int(wrong[w])) for r in nearest[w][: _MOST_REPAIRS * _PATHS]]
            self.scanned.extend([pair for pair in new if pair not in self.scanned][:1])
        return np.array(self.scanned[-_PATHS:]).T

    def nothing_explained(self):
        found = [len(level.units) for level in self.levels]
        return NotIdentified(
            "activation boundaries",
            "unexplained",
            f"after {self.probe.oracle.n_queries} queries, units of {len(found)} layers were detected ({found}), and "
            f"they explain {100.0 * self.share:.0f} % of the outputs; units of layer {len(found) + 1} that would "
            "explain the others were not. The black box may not be a ReLU network of dense layers (max pooling, skip "
            "connections, a forest, clipped in- or outputs), or have units that hardly ever change their sign; another "
            "random_state or a larger input_range finds others.",
        )


def _no_hyperplane(n_bends):
    """The reason and message of the error if there is no first layer."""
    if n_bends == 0:
        return "linear", "the outputs do not bend anywhere near the center: there is no unit to detect."
    return "unexplained", (
        f"the outputs bend at {n_bends} places, but no activation boundary continues along a hyperplane: units of "
        "layer 1 were not detected. A black box that bends along curved or bounded surfaces only is no ReLU network of "
        "dense layers."
    )
