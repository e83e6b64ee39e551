"""A ReLU network of any depth, layer by layer, from the kinks of its answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skident.fitting.polish import polish_network
from skident.network import FeedforwardNetwork

from .active_set import NOISY
from .answers import Answers
from .hyperplanes import FirstLayerSearch, random_segments, rooms_on_lines
from .known_layers import KnownLayers
from .layer_units import LayerUnits
from .line import NotShallowReLUError
from .readout import read_out, spread_points
from .segments import KinkSet, Segments, kinks_on_segments, normals_at

__all__ = ["DeepNetwork", "find_deep_relu_network"]

_MOST_LAYERS = 6
_REPAIRS = 12
_LAST = 0.6  # share of the answers explained above which a layer was the last hidden one
_WHOLE = 0.97
_PATIENCE, _MOST_LINES = 2, 12
_FAR = (1.0, 2.0, 3.0, 4.0)  # spreads of the points that are looked at in the end
_CHECKS = 15  # fresh answers a parameter that are looked at, where that is more
_DEEPER = 5  # times as many of networks of three hidden layers and more, whose units are rarer
_PATHS = 6  # lines from right to wrong answers
_MOST_SEARCHES = 15  # times that more lines are followed where nothing else helps
_WRONG = 1e-9  # relative error that no rounding of a right network makes
_ROUNDINGS = 1e3
_NOISES = 12.0  # and of noisy answers, in units of their noise
_ANSWERS, _ANSWERS_NOISY = 2.0, 10.0  # answers a parameter at which the network is polished
_FEW = 0.02  # share of wrong answers up to which a network without linear part is preferred
_DEVIATION = 0.5  # of noise, in its own units


@dataclass(frozen=True)
class DeepNetwork:
    """What was found.

    Attributes
    ----------
    network : FeedforwardNetwork
        Of u, in the oracle's units.
    wrong : float
        Share of fresh answers that it does not explain.
    n_checked : int
        Fresh answers that were looked at.
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


def find_deep_relu_network(oracle, noise, spread, *, rng, callback=None, n_check=5000):
    search = _Search(Answers(oracle, noise, spread), rng, callback, n_check)
    return search.run()


class _Search:
    """What is known so far: hyperplanes of the first layer, and units of the layers behind it."""

    def __init__(self, answers, rng, callback, n_check):
        self.answers, self.rng, self.n_check = answers, rng, n_check
        self.say = lambda text: None
        self.first = FirstLayerSearch(answers, rng)
        self.layers = {}  # complete LayerUnits by the number of known layers before them
        self.incomplete = None

    def run(self):
        """The best network of all rounds of repair."""
        self._first_layer()
        best, idle = None, 0
        for n_repairs in range(_REPAIRS + 1):
            readout = self._read_layers()
            if max(readout.share, readout.signed) > _LAST:
                found, X, error = self._checked(readout, n_repairs)
                best = found if best is None or found.wrong < best.wrong else best
                if found.wrong == 0:
                    return best
                progress = self._explain_more(found, X, error, readout.linear)
            else:
                progress = self._look_below()
            idle = 0 if progress else idle + 1
            if idle == _PATIENCE:
                break
        if best is None:
            raise self._nothing_explained()
        return best

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
        self.say(f"first layer: {len(self.first.planes)}, {len(self.first.loose)} loose, {self.answers.oracle.n_queries}")
        if len(self.first.planes) == 0:
            raise NotShallowReLUError("unresolved", "no hyperplane")

    def _read_layers(self):
        """The readout of the first layers that explain the answers, or of as many as can be found."""
        layers, W, b, open_entries = [], self.first.planes[:, :-1].T, self.first.planes[:, -1], None
        self.incomplete = None
        for depth in range(1, _MOST_LAYERS + 1):
            readout = read_out(self.answers, layers, W, b, self.rng, open_entries)
            self.say(f"  last at {depth}? share {readout.share:.3f} signed {readout.signed:.3f} doubt {np.median(readout.doubt):.0e}")
            if max(readout.share, readout.signed) > (_WHOLE if depth in self.layers else _LAST):
                break
            if depth not in self.layers:
                accuracy = self.answers.resolution if self.answers.resolution > NOISY else 0.0
                layer = LayerUnits(KnownLayers(layers, W, b, accuracy))
                if not self._find_units(layer):
                    self.incomplete = layer
                    break
                self.layers[depth] = layer
            layer = self.layers[depth]
            if not layer.units:
                self.incomplete = layer
                break
            self.say(f"  layer {depth + 1}: {len(layer.units)} units open {[u.n_open for u in layer.units]} share {[round(u.share,2) for u in layer.units]} {self.answers.oracle.n_queries}")
            layers = [*layers, layer.signed()]
            W, b, open_entries = layer.weights()
        return readout

    def _find_units(self, layer):
        """Units of the next layer, and with them the signs of the last one; whether there are any."""
        n_planes, idle = len(self.first.planes), 0
        layer.take_up(self.answers, self.first.loose, self.rng)
        for _ in range(_MOST_LINES):
            self.say(f"    {len(layer.units)} units, signs {layer.signs is not None}, deep {len(layer.deep)}, {self.answers.oracle.n_queries}")
            if idle and layer.signs is None:
                layer.settle_signs(self.answers, self.rng)
            if layer.signs is not None and self._is_last(layer):
                return True
            if idle == _PATIENCE:
                break
            kinks = self._fresh_kinks(2, layer.explain)
            if self.first.absorb(kinks) or len(self.first.planes) > n_planes:
                self.layers = {}
                return False
            idle = 0 if layer.take_up(self.answers, kinks, self.rng) else idle + 1
        if layer.settle_signs(self.answers, self.rng):
            lost = layer.drop_strangers(self.answers, self.rng)
            self.say(f"    {lost} strangers dropped, {self.answers.oracle.n_queries}")
        return layer.signs is not None and bool(layer.units)

    def _is_last(self, layer):
        """Whether the answers are linear in the outputs of these units."""
        before = [*layer.known.layers, layer.signed()]
        return bool(layer.units) and read_out(self.answers, before, *layer.weights()[:2], self.rng).share > _WHOLE

    def _fresh_kinks(self, n_lines, explain):
        """Kinks on random lines that nothing explains."""
        lines = random_segments(self.answers, n_lines, self.rng, reach=4.0, radii=(1.0, 2.0, 3.0))
        return self._kinks_of(lines, explain, 24)

    def _kinks_of(self, lines, explain, n_intervals):
        line, t = kinks_on_segments(self.answers, lines, self.rng, n_intervals=n_intervals)
        points, rooms = lines.at(line, t), rooms_on_lines(lines, line, t)
        new = ~explain(points)
        return normals_at(self.answers, points[new], lines.directions[line[new]], rooms[new], self.rng)[0]

    def _look_below(self):
        """Where no next layer is found: look for more units of those before it; whether there were any."""
        if self.incomplete is None:
            return False
        if not self.layers and len(self.first.planes) > self.incomplete.known.n_units:
            return True
        missed = self.incomplete.missed_before()
        self.say(f"    {len(missed)} units of the layer before, {self.answers.oracle.n_queries}")
        if len(missed) and self.layers and self._take_up(missed):
            return True
        for _ in range(_MOST_SEARCHES):
            kinks = self._fresh_kinks(4, self._explained)
            self.say(f"    {len(kinks)} kinks that nothing explains, {self.answers.oracle.n_queries}")
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
        self.say(f"    {len(self.first.planes) - n_planes} more hyperplanes")
        self.layers = {}
        return True

    def _take_up(self, kinks):
        """Whether kinks belong to units of layers that counted as complete; then those behind are forgotten."""
        for depth in sorted(self.layers):
            layer, behind = self.layers[depth], depth < max(self.layers) or self.incomplete is not None
            before = sum(unit.n_open for unit in layer.units)
            new = layer.take_up(self.answers, kinks, self.rng)
            new -= layer.drop_strangers(self.answers, self.rng) if new and behind else 0
            if new > 0 or sum(u.n_open for u in layer.units) < before:
                self.say(f"    taken up at layer {depth + 1}")
                self.layers = {d: v for d, v in self.layers.items() if d <= depth}
                return True
        return False

    def _nothing_explained(self):
        return NotShallowReLUError("unresolved", f"layers {1 + len(self.layers)}")

    def _checked(self, readout, n_repairs):
        """The polished network and how much of fresh answers it explains; these, and errors over what is allowed."""
        network, linear = self._polished(readout.network), readout.linear
        n_check = max(self.n_check, _CHECKS * network.n_parameters // network.n_outputs)
        if readout.plain is not None and self.answers.resolution > NOISY:
            # Weights that are not exact leave a linear part where there is none.
            plain = self._polished(readout.plain)
            if np.mean(self._errors(plain, n_check // 8)[1] > 1.0) < _FEW:
                network, linear = plain, linear[:, :0]
        n_check *= 1 if len(network.weights) < 4 else _DEEPER
        for n in (n_check // 8, n_check):
            X, error = self._errors(network, n)
            wrong = float(np.mean(error > 1.0)) if len(error) else 1.0
            if wrong:
                break
        self.say(f"repair {n_repairs}: widths {network.layer_widths} wrong {wrong:.4f} {self.answers.oracle.n_queries}")
        doubt = float(readout.doubt.max(initial=0.0))
        network = _in_oracle_units(network, self.answers.noise)
        return DeepNetwork(network, wrong, n, doubt, linear.shape[1], n_repairs), X, error

    def _explain_more(self, found, X, error, linear):
        """Take up kinks next to wrong answers at the lowest layer that they fit; whether that changed anything."""
        kinks = self._unexplained(found.network, X, error)
        self.say(f"    {len(kinks)} unexplained kinks")
        if self._completed(kinks, linear):
            return True
        if self._more_hyperplanes(kinks) or self._take_up(kinks):
            return True
        for depth in sorted(self.layers):
            if self.layers[depth].choices:
                self.layers[depth].try_other_signs(self.answers, self.rng)
                self.layers = {d: v for d, v in self.layers.items() if d <= depth}
                return True
        return False

    def _completed(self, kinks, linear):
        """Whether kinks belong to units of which all but the bias is known, as a linear part of the next layer."""
        if len(kinks) == 0:
            return False
        for depth in sorted(self.layers):
            behind = self.layers.get(depth + 1)
            part = linear if behind is None else behind.linear
            if part is not None and part.shape[1] and self.layers[depth].complete(part, kinks):
                self.say(f"    completed at layer {depth + 1}")
                self.layers = {d: v for d, v in self.layers.items() if d <= depth}
                return True
        return False

    def _polished(self, network):
        noisy = self.answers.resolution > NOISY
        n = int((_ANSWERS_NOISY if noisy else _ANSWERS) * network.n_parameters / network.n_outputs) + 50
        layers = list(zip(network.weights[:-1], network.biases[:-1], strict=True))
        X = spread_points(self.answers, layers, n, self.rng)
        F, tol = self.answers.ask(X)
        error = np.abs(network(X) - F).max(axis=1)
        good = np.isfinite(tol) & (error < max(1e-4 / self.answers.resolution, 1e3))
        if good.sum() * network.n_outputs < 1.2 * network.n_parameters:
            return network
        polished = polish_network(network, X[good], F[good], noise=_DEVIATION if noisy else None)[0]
        if noisy:  # where a kink was on the wrong side of a point, it is on the right one now
            fits = np.isfinite(tol) & (np.abs(polished(X) - F).max(axis=1) < _NOISES * tol)
            if fits.mean() > _LAST:
                polished = polish_network(polished, X[fits], F[fits], noise=_DEVIATION)[0]
        after = np.abs(polished(X) - F).max(axis=1)
        return polished if np.median(after) <= np.median(error) else network

    def _errors(self, network, n):
        """Points, and the errors of a network there over what rounding and the last digits explain."""
        X = spread_points(self.answers, [], n, self.rng, radii=_FAR)
        F, tol = self.answers.ask(X)
        clear = np.isfinite(tol)
        error = np.abs(network(X[clear]) - F[clear]).max(axis=1)
        if self.answers.resolution > NOISY:
            return X[clear], error / (_NOISES * tol[clear])
        return X[clear], error / np.maximum(_WRONG / self.answers.resolution, _ROUNDINGS * tol[clear])

    def _unexplained(self, network, X, E):
        right, wrong = np.flatnonzero(E < 0.1), np.flatnonzero(E > 1.0)
        if len(right) == 0:
            return KinkSet(X[:0], X[:0], E[:0])
        wrong = self.rng.permutation(np.resize(wrong, max(_PATHS, len(wrong))))[:_PATHS]
        apart = np.linalg.norm(X[right][:, None] - X[wrong], axis=2)
        # The nearest right point, or the next ones where a wrong point comes again.
        rank = np.array([np.sum(wrong[:i] == w) for i, w in enumerate(wrong)])
        start = right[np.argsort(apart, axis=0)[rank % len(right), np.arange(len(wrong))]]
        V = X[wrong] - X[start]
        length = np.linalg.norm(V, axis=1)
        lines = Segments(X[start], V / length[:, None], np.zeros(len(V)), 1.3 * length)

        near = max(1e-6, 300.0 * self.answers.resolution)

        def explain(points):
            known, H = np.zeros(len(points), dtype=bool), points
            for W, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
                Z = H @ W + b
                H = np.maximum(Z, 0.0)
                if len(points):
                    known |= np.abs(Z).min(axis=1) < near * np.median(np.abs(Z))
            return known

        return self._kinks_of(lines, explain, 8)


def _in_oracle_units(network, noise):
    return FeedforwardNetwork(
        [*network.weights[:-1], network.weights[-1] * noise],
        [*network.biases[:-1], network.biases[-1] * noise],
        network.activation,
        network.output_activation,
    )
