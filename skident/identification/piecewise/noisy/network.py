"""A ReLU network with two hidden layers from outputs that are not exact."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from skident.budget import check_deadline
from skident.budget.constants import PATIENCE
from skident.fitting.errors_of_fit import FitSample
from skident.fitting.rounding import rounding_std
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, OutOfBudgetError

from ...constants import LEAST_GAIN, WRONG
from ..kernel.windows import DEVIATIONS
from .assemble import TwoLayers, assemble, first_layer_signs, folds
from .hyperplanes import NoisyHyperplaneSearch
from .missing_units import find_missing_unit
from .polish import annealed_polish
from .sampling import moved_to_hyperplanes, on_rarer_sides
from .second_layer import SecondLayerSearch

_N_LINES = 10  # scanned per round
_ROUNDS = 12  # of scans at most
_PLANES_PER_ROUND = 32  # per further round without progress: a fit that lacks three of 64 units costs more
_READ_ROWS = 12  # outputs of the readout per coefficient
_MORE_ROWS = 400  # beside these
_SPREADS = (1.0, 1.0, 2.0)  # of random points, in standard deviations of the inputs
_READ_TOL = 1e-3  # residual over the outputs' standard deviation above which the readout lacks units
_READ_WRONG = 0.02  # share of such residuals at which scans end: units that rare are detected from residuals
_READ_RIGHT = 1e-3  # `_READ_WRONG` at which they end at once
_READ_QUANTILE = 0.3  # of the residuals of the readout, below which units are complete
_READ_MARGIN = 10.0  # over that, from which a unit is missing
_USABLE_WRONG = 0.5  # share above which nothing is explained
_SIGN_DOUBT = 0.3  # largest deviation of a sign from +-1
_PER_PARAMETER = 2.5  # outputs of the polish per parameter
_PER_WEIGHT = 1.5  # outputs on either side of a unit, per weight of the unit
_REPAIRS = 8  # rounds of polish and search for what is missing
_N_VALIDATION = 20_000  # held-out outputs at least
_WRONG_SCALES = 12.0  # `WRONG` in deviations of the residuals
_WRONG_MOST = 100.0  # standard deviations above which an output is wrong whatever the residuals of others are
_FAINT_SHARE = 0.1  # share of wrong outputs above which a linear part is not folded: units are missing
_FOLD_ERROR = 300.0  # median residual without the linear part that is error of the units, in standard deviations
_FOLD_GROWTH = 3.0  # that residual over the one with it, as for `_FOLD_ERROR`
_WORSE_FACTOR = 3.0  # share of wrong outputs over that of the best network from which a linear part was folded in vain
_WORSE_SHARE = 0.01  # such share beside it: a polish of the units detected still corrects less (20-32-16-3)
_FOLD_POINTS = 20_000  # points at which activity of units is counted; they are not queried
_NEAR_WRONG = (0.05, 0.2, 0.5)  # distances of rows around wrong points, in standard deviations of the inputs
_MOST_ADDED = 300  # wrong points that a polish adds
_ADDED_SHARE = 0.3  # of the rows of the polish, those around wrong points
_MISSING_PER_ROUND = 6  # units detected from residuals at a time


@dataclass(frozen=True)
class NoisyDeepNetwork:
    """Recovered units, of the oracle's standardized inputs and in its output units; as `DeepNetwork`."""

    network: FeedforwardNetwork
    wrong_share: float  # of held-out outputs, those that differ by more than their errors
    n_validation: int
    sign_deviation: float  # largest | |s| - 1 | of the signs of the first layer
    n_linear: int  # units that stand for a linear part of the outputs of the first layer
    layers: TwoLayers
    sample: FitSample  # of the last fit of all parameters

    @property
    def n_units(self):
        """Number of units of the second layer."""
        return self.network.layer_widths[1]


def find_noisy_deep_network(probe, *, rng, callback=None):
    """The best `NoisyDeepNetwork` for the outputs of a `DeepProbe`; of two hidden layers of unknown widths.

    Raises `NotIdentified` ("unexplained") if no network explains most of the outputs.
    """
    search = _Search(probe, rng, callback)
    try:
        search.run()
    except OutOfBudgetError:
        if search.best is None:
            raise
    return search.best


class _Samples(NamedTuple):
    """Outputs, and which of them the layers do not explain."""

    X: np.ndarray  # (n, D)
    F: np.ndarray  # (n, m_L), in the units of the probe
    wrong: np.ndarray  # (n,), mask


class _Search:
    """Hyperplanes, units, and the best network so far."""

    def __init__(self, probe, rng, callback):
        self.probe, self.rng, self.oracle = probe, rng, probe.oracle
        self.first = NoisyHyperplaneSearch(probe, rng)
        self.second = SecondLayerSearch(probe, self.first, rng, callback)
        self.best, self.layers, self.sign_doubt, self.read_share = None, None, np.inf, 1.0
        self.extra = np.zeros((0, probe.n_inputs))
        self.X = self.F = None
        self.bad_fold = None  # number of units of which a linear part was folded in vain

    def run(self):
        """Find hyperplanes, units until the readout explains the outputs, then polish and repair."""
        self.first.search()
        if len(self.first.planes) == 0:
            raise NotIdentified("activation boundaries", "unexplained", "no hyperplane of a first layer was detected.")
        self.second.add(self.first.loose)
        self._scan()
        if self.layers is None:
            raise self._unexplained()
        if self.read_share > _USABLE_WRONG:
            raise self._unexplained()
        self._repair()

    def _scan(self):
        """Scan lines until the readout explains nearly all outputs, or no new hyperplane is detected."""
        idle = 0
        for _ in range(_ROUNDS):
            n_planes = len(self.first.planes)
            new = self.second.scan(_N_LINES * (1 + idle))
            if not self._assemble() or self.read_share > _READ_RIGHT:
                new |= self.second.complete()
                self._assemble()
            idle = 0 if new or len(self.first.planes) > n_planes else idle + 1
            patience = PATIENCE + len(self.first.planes) // _PLANES_PER_ROUND
            explained = self.read_share < (_READ_WRONG if idle else _READ_RIGHT)
            if explained or idle == patience:
                break
        if self.second.drop_false_planes():
            self._assemble()

    def _points(self, n):
        """Random points (n, D) whose inputs the model represents exactly."""
        X = self.rng.choice(_SPREADS, (n, 1)) * self.rng.standard_normal((n, self.probe.n_inputs))
        return self.oracle.representable(self.oracle.clip_to_range(X))

    def _assemble(self):
        """Read the outputs out from the units; whether the signs of the first layer are certain."""
        signs = first_layer_signs(self.second.units, self.first.planes)
        if signs is None or signs[1] > _SIGN_DOUBT:
            return False
        n = _READ_ROWS * (len(self.first.planes) + len(self.second.units)) + _MORE_ROWS
        self._query_more(n)
        tol = max(_READ_TOL / self.probe.resolution, WRONG)
        layers, residual = assemble(self.second.units, self.first.planes, signs[0], self.X, self.F, tol, WRONG / tol)
        self.layers, self.sign_doubt, self.read_share = layers, signs[1], float(np.mean(residual > 1.0))
        return True

    def _wrong_share(self, tol=WRONG):
        """Share of the outputs with residuals above tol."""
        return float(np.mean(np.abs(self.F - self.layers(self.X)).max(axis=1) > tol))

    def _query_more(self, n):
        """At least n random points and their outputs."""
        if self.X is None or len(self.X) < n:
            X = self._points(n - (0 if self.X is None else len(self.X)))
            F = self.probe(X)
            self.X, self.F = (X, F) if self.X is None else (np.vstack([self.X, X]), np.vstack([self.F, F]))

    def _repair(self):
        """Polish, and search what wrong outputs lack, until none is wrong or that no longer helps."""
        residual = np.abs(self.F - self.layers(self.X)).max(axis=1)
        tol = max(WRONG, _READ_MARGIN * np.quantile(residual, _READ_QUANTILE))
        self._add_missing(_Samples(self.X, self.F, residual > tol), tol)
        idle, before = 0, np.inf
        for _ in range(_REPAIRS):
            check_deadline()
            folded = self._folded(self.layers)
            found, samples = self._polished(folded)
            if self._is_worse(found) and folded.rank < self.layers.rank:
                self.bad_fold, self.layers = len(folded.b2), self.best.layers
                continue
            better = self._keep(found)
            self.layers = self._without_redundant(found.layers, samples)
            if len(self.layers.b2) < len(found.layers.b2):
                continue
            idle = 0 if better else idle + 1
            if found.wrong_share == 0 or idle == PATIENCE:
                break
            refitted, before = found.wrong_share < LEAST_GAIN * before, found.wrong_share
            if refitted or not self._add_missing(samples, WRONG):
                self._fit_also(samples.X[samples.wrong])
                self.layers = self.best.layers
        if self.best.n_linear:
            self._fold_again()

    def _fold_again(self):
        """Fold the linear part of the best network, whose weights are more accurate than when that was tried."""
        layers = self.best.layers
        whole, likely = folds(layers, np.concatenate([self._points(_FOLD_POINTS), self.extra]))
        for folded in (whole, likely):
            if folded.rank < layers.rank:
                found = self._polished(folded, again=True)[0]
                if not self._is_worse(found) and found.wrong_share <= self.best.wrong_share:
                    self.best = found
                    break

    def _without_redundant(self, layers, samples):
        """The layers without units whose outputs are errors at all samples."""
        size = layers.unit_outputs(samples.X) / self._errors(samples.X)[:, None]
        return layers.take(size.max(axis=0) > WRONG)

    def _is_worse(self, found):
        """Whether a network explains far fewer outputs than the best so far."""
        return self.best is not None and found.wrong_share > _WORSE_FACTOR * self.best.wrong_share + _WORSE_SHARE

    def _keep(self, found):
        """Keep a network if it is the best so far; whether it is."""
        better = self.best is None or found.wrong_share < self.best.wrong_share
        if better or (found.wrong_share == self.best.wrong_share and found.n_units <= self.best.n_units):
            self.best = found
        return better

    def _folded(self, layers):
        """The same function with a linear part of low rank if that is possible, else every unit on its rarer side."""
        X = np.concatenate([self._points(_FOLD_POINTS), self.extra])
        layers = layers.on_rarer_sides(X)
        if self.bad_fold == len(layers.b2) or self._wrong_share() > _FAINT_SHARE:
            return layers
        whole, likely = folds(layers, X)
        right = self._median_residual(whole) < max(_FOLD_ERROR, _FOLD_GROWTH * self._median_residual(layers))
        return whole if right else likely

    def _median_residual(self, layers):
        """Median size of the residuals at the random points."""
        return float(np.median(np.abs(self.F - layers(self.X))))

    def _polished(self, layers, again=False):
        """The polished network of layers, and `_Samples` that validate it and that were fitted, or those of before."""
        network, n_linear = layers.network(self.X, self.probe.output_error)
        if not again:
            X = self._polish_points(layers, network.n_parameters)
            n = max(_N_VALIDATION, 2 * network.n_parameters // network.n_outputs) // 2
            U = np.concatenate([self._points(n), X])
            self.outputs = U, self.oracle(U), np.arange(len(U)) < n
        U, Y, new = self.outputs
        std, rows = self._std(layers, U), np.flatnonzero(~new)
        fitted = U[rows], Y[rows], std[rows]
        best = None
        for anneal in (False, True):  # weights that hardly any output depends on are determined by outliers
            polished, scale = annealed_polish(network, *fitted, anneal=anneal)
            limit = max(WRONG, min(_WRONG_SCALES * scale, _WRONG_MOST))
            wrong = np.any(np.abs(polished(U) - Y) > limit * std, axis=1)
            if best is None or wrong.sum() < best[1].sum():
                best = polished, wrong
            if not wrong.any():
                break
        network, wrong = best
        if not again and not wrong.any():  # the other half is for networks that may be right
            V = self._points(n)
            F = self.oracle(V)
            wrong = np.append(wrong, np.any(np.abs(network(V) - F) > limit * self._std(layers, V), axis=1))
            U, Y, new = np.concatenate([U, V]), np.concatenate([Y, F]), np.append(new, np.ones(n, dtype=bool))
            self.outputs = U, Y, new
        layers = TwoLayers.of(network, n_linear, self.probe.output_error)
        sample = FitSample(*fitted)
        share, n_new = float(wrong[new].mean()), int(new.sum())
        found = NoisyDeepNetwork(network, share, n_new, self.sign_doubt, n_linear, layers, sample)
        return found, _Samples(U, Y / self.probe.output_error, wrong)

    def _polish_points(self, layers, n_parameters):
        """Points (n, D) at which parameters are fitted: random, near boundaries, where the network was wrong."""
        n = int(_PER_PARAMETER * n_parameters / layers.W3.shape[1]) + _MORE_ROWS
        X, half = self._points(n), n // 2
        X[:half] = moved_to_hyperplanes(layers.W1, layers.b1, X[:half], self.rng)
        need = int(_PER_WEIGHT * (len(layers.b1) + 1))
        X = np.concatenate([X, on_rarer_sides(layers, X, self._points(_FOLD_POINTS), need, self.rng)])
        if len(self.extra):
            k = int(_ADDED_SHARE * n)
            step = self.rng.choice(_NEAR_WRONG, (k, 1)) * self.rng.standard_normal((k, X.shape[1]))
            X = np.concatenate([X, self.extra[self.rng.randint(len(self.extra), size=k)] + step, self.extra])
        return self.oracle.representable(self.oracle.clip_to_range(X))

    def _std(self, layers, X):
        """Standard deviations (n, m_L) of the outputs' errors at points (n, D), in the units of the oracle."""
        accuracy = self.oracle.accuracy
        if accuracy.kind != "float32":
            return accuracy.std_of(X, self.oracle(X[:0]) if len(X) == 0 else layers(X) * self.probe.output_error)
        units = replace(layers, V=np.zeros_like(layers.V)).network(X, self.probe.output_error)[0]
        rounding = rounding_std(units, X, center=self.oracle.center, scale=self.oracle.scale)
        return np.maximum(accuracy.std * rounding / np.median(rounding, axis=0), _LEAST_STD * accuracy.std)

    def _add_missing(self, samples, tol):
        """Add units that explain wrong outputs, and polish on the points around them; whether there are any."""
        layers, X, wrong = self.layers, samples.X, samples.wrong
        for _ in range(_MISSING_PER_ROUND if wrong.any() else 0):
            unit = find_missing_unit(layers, self._residual_of(layers), X[wrong], X[~wrong], tol, self.rng)
            if unit is None:
                break
            larger = layers.with_unit(*unit[0])
            still = np.linalg.norm(samples.F - larger(X), axis=1) > tol * self._errors(X)
            if still.sum() > (1.0 - LEAST_GAIN) * wrong.sum():
                break
            layers, wrong = larger, still
            self._fit_also(unit[1])
        found, self.layers = len(layers.b2) > len(self.layers.b2), layers
        return found

    def _fit_also(self, X):
        """Polish on some of these points (n, D) too."""
        self.extra = np.concatenate([self.extra, X[self.rng.permutation(len(X))[:_MOST_ADDED]]])

    def _residual_of(self, layers):
        """The function that queries residuals of layers at points; see `find_missing_unit`."""

        def residual_at(points):
            points = self.oracle.representable(self.oracle.clip_to_range(points))
            return points, self.probe(points) - layers(points), self._errors(points)

        return residual_at

    def _errors(self, X):
        """Standard deviations (n,) of the outputs' errors in units of the probe."""
        return self.probe.tol(X)[:, 0] / DEVIATIONS

    def _unexplained(self):
        return NotIdentified(
            "activation boundaries",
            "unexplained",
            f"after {self.oracle.n_queries} queries, {len(self.first.planes)} units of the first hidden layer and "
            f"{len(self.second.units)} of the second one were detected, and they explain {1.0 - self.read_share:.0%} "
            "of the outputs. The outputs are not exact; with float64 outputs, deeper and wider networks are recovered.",
        )


_LEAST_STD = 0.3  # of the typical error, where rounding seems smaller
