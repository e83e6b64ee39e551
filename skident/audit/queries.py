"""Queries of an audit, the outputs, and their precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skident.oracle import BlackBoxError

from .batches import PROBE_ROWS, probe_batches, spread_rows
from .inputs import InputBox, candidate_inputs, chosen_inputs, inputs_on_both_sides
from .parameters import ParameterEffects
from .rounding import Arithmetic, numbers_of, rounding_of_outputs

__all__ = ["FEWEST_ROWS", "Queries"]

_EACH = (3, 12)  # queries per unit in the first round, fewest and most
_EACH_IN_ALL = 6000  # queries of all units together in the first round (budget)
_OTHERS = 64  # further queries in the first round
_REPEATED = PROBE_ROWS  # rows queried twice, to detect outputs that do not repeat
_NOISY_REPEATS = 16  # further rows queried twice if they do not: the noise level to 1 / sqrt(32), 18 %
_CAST_ROWS = 4  # rows at which a black box is queried again with its inputs rounded to float32
_PROBE = PROBE_ROWS + PROBE_ROWS // 2 + _CAST_ROWS + _REPEATED  # queries of both probes and of the check for drift
_BATCH_PROBE = 22  # queries: 6 for noise or batch dependence, 8 single rows, 4 of them again, 4 for noise
_CAST_MOVES = 4.0  # tolerances (of 8 deviations of rounding) by which rounded inputs must move an output that counts
FEWEST_ROWS = 4 * _REPEATED
_SIGMAS = 8.0  # standard deviations of rounding or noise that count as the same
_ROUNDINGS = 16.0  # of the largest output, by which outputs that come again may differ
_TOO_FEW = 1.3  # a deviation measured by twenty numbers may be too small by as much
_MOST_WORK = 2e9  # multiplications spent on candidates
_CANDIDATES = 4  # candidates a row queries


class Queries:
    """Queries so far, their outputs, and the tolerance of these.

    Attributes
    ----------
    X : ndarray of shape (k, D)
        Rows queries.
    Y, tolerance : ndarray of shape (k, m_L)
        Outputs, and what they may differ by.
    box : InputBox
    unseen : list of (layer, unit)
        Units that rest at every candidate.
    shares : ndarray of shape (m_L,)
        Tolerance that precision or noise explains, over the standard deviation of the network's output; 0 if constant.
    kind : str
        Number format of the outputs, or ``noise``.
    batch_dependent : bool
        Whether outputs depend on the other rows of a batch; from then on rows are queried one at a time.
    casts_inputs : bool
        Whether the black box rounds its inputs to float32.
    """

    batch_dependent = casts_inputs = False

    def __init__(self, oracle, network, X, tol, most, single):
        self._oracle, self.network, self._tol, self._most, self._single = oracle, network, tol, most, single
        self._rows, self.box = X, InputBox.of(X)
        self._centred = oracle.response == "predict_proba" and network.n_outputs > 1

    def first(self, rng):
        """The first round, at inputs where units show; how the black box computes; which units rest everywhere."""
        n_units, left = sum(self.network.layer_widths[:-1]), self._most - _PROBE + _REPEATED
        n_each = int(np.clip(_EACH_IN_ALL // max(n_units, 1), *_EACH))
        n = min(n_each * n_units + _OTHERS, left)
        work = self.network.n_parameters * (1 + self.network.n_outputs)
        many = int(np.clip(_MOST_WORK // work, n, max(_CANDIDATES * n, 512)))
        drawn = candidate_inputs(self._rows, self.box, many, rng)
        drawn = inputs_on_both_sides(self.network, drawn, self.box, rng)
        effects = self._effects(drawn, np.ones((len(drawn), self.network.n_outputs)))
        hidden = range(self.network.n_layers - 1)
        resting = [np.flatnonzero(effects.strength(layer).max(axis=0) == 0) for layer in hidden]
        self.unseen = [(layer, int(unit)) for layer, units in enumerate(resting) for unit in units]
        self.X = spread_rows(drawn[chosen_inputs(effects, n, n_each, rng)])
        self.arithmetic = self._measured(*self._query_first())
        self._settle()

    def _query_first(self):
        """Query the first round, in one batch or row by row; whether outputs repeat, and by how much they do not."""
        oracle, rows = self._oracle, self.X[:PROBE_ROWS]
        probe = probe_batches(oracle, rows)
        wanted, given = self.network.n_outputs, probe.Y.shape[1]
        if wanted != given:
            raise ValueError(f"the black box gives {given} output(s), the network {wanted}.")
        rounding = self._rounding(probe.Y, self._numbers(probe.Y, rows)[0])
        repeats = not probe.differs(rounding)
        if not repeats and self._left() >= _BATCH_PROBE:
            single = _SIGMAS * rounding_of_outputs(self.network, rows, single=True).max(axis=0)
            self.batch_dependent = probe.depends_on_batch(oracle, rows, np.maximum(rounding, single))
            left = self._left()
            self.X = self.X[: max(left // 2, left - _REPEATED - _NOISY_REPEATS)]
        if self.batch_dependent:
            oracle.chunk_rows = 1
            self.Y, self._error = oracle.query(self.X)
            gap = self.Y[:_REPEATED] - oracle(rows)
            return np.all(np.abs(gap) <= rounding + self._error[:_REPEATED, None]), gap
        Y, error = oracle.query(self.X[PROBE_ROWS:])
        self.Y, self._error = np.vstack([probe.Y, Y]), np.append(probe.error, error)
        return repeats, probe.gap

    def _left(self):
        """Queries that are left besides the check for drift."""
        return self._most - self._oracle.n_queries - _REPEATED

    def more(self, rng):
        """Query as many further samples as the budget allows."""
        left = self._left()
        if left <= 0:
            return
        X = candidate_inputs(self._rows, self.box, left, rng)[rng.permutation(left)]
        Y, error = self._oracle.query(X)
        self.X, self.Y, self._error = np.vstack([self.X, X]), np.vstack([self.Y, Y]), np.append(self._error, error)
        self._settle()

    def compared(self):
        """Effects of the parameters at the queries, and the largest difference over its tolerance."""
        effects = self._effects(self.X, self.tolerance)
        return effects, float(np.max(np.abs(self.Y - effects.outputs) / self.tolerance))

    def _effects(self, X, tolerance):
        return ParameterEffects(self.network, X, tolerance, self._centred)

    def check_drift(self):
        """Refuse a black box whose outputs change."""
        again = self._oracle(self.X[:_REPEATED])
        gap = np.abs(again - self.Y[:_REPEATED]) / (2.0 * self.tolerance[:_REPEATED])
        if gap.max() > 1.0:
            raise BlackBoxError(
                f"the black box changed while it was audited: queried again at the end, its outputs differed by "
                f"{np.abs(again - self.Y[:_REPEATED]).max():.1e}. Audit a model that stays as it is."
            )

    @property
    def n_queries(self):
        """Rows queries."""
        return self._oracle.n_queries

    def _numbers(self, Y, X):
        """The numbers in which some outputs come."""
        if self._oracle.response == "predict_proba":
            return self._oracle.precision
        return numbers_of(Y, self.network(X))

    @staticmethod
    def _rounding(Y, kind):
        """By how much an output may differ from itself, (m_L,)."""
        return _ROUNDINGS * np.finfo(np.float32 if kind == "float32" else np.float64).eps * np.abs(Y).max(axis=0)

    def _measured(self, repeats, gap):
        """Number format of the outputs, and their noise if they do not repeat."""
        oracle, Y = self._oracle, self.Y
        kind, decimals = self._numbers(Y, self.X)
        noise = np.zeros(Y.shape[1])
        if not repeats:
            n = max(0, min(_NOISY_REPEATS, self._left(), len(self.X)))
            gap = np.vstack([gap, Y[len(Y) - n :] - oracle(self.X[len(Y) - n :])])
            noise = _TOO_FEW * np.sqrt(np.mean(gap**2, axis=0) / 2.0)
        if kind == "float64" and self._single:
            kind = "float32"
        self.kind = "noise" if noise.any() else kind
        return Arithmetic(kind, decimals, kind == "float32" or self._single, noise)

    def check_cast(self):
        """Whether the black box rounds its inputs to float32; if so, float32 counts as its precision from then on.

        A box does if its outputs at rounded inputs are the same where the network's own outputs are not.
        """
        if self.kind != "float64" or self._left() < _CAST_ROWS:
            return False
        rounded = self.X.astype(np.float32).astype(float)
        rounded = np.where(rounded == self.box.inside(rounded), rounded, self.X)
        small = np.maximum(self.tolerance, self._rounding(self.Y, "float64"))
        moved = np.abs(self._known(self.X) - self._known(rounded)) / small
        rows = np.argsort(-moved.max(axis=1), kind="stable")[:_CAST_ROWS]
        counted = moved[rows] > _CAST_MOVES
        if not counted.any():
            return False
        gap = np.abs(self.Y[rows] - self._oracle(rounded[rows])) / small[rows]
        self.casts_inputs = bool(gap[counted].max() <= 1.0)
        if self.casts_inputs:
            self.kind, self.arithmetic = "float32", replace(self.arithmetic, kind="float32", single=True)
            self._settle()
        return self.casts_inputs

    def _known(self, X):
        """Outputs of the network that count."""
        Y = self.network(X)
        return Y - Y.mean(axis=1, keepdims=True) if self._centred else Y

    def _settle(self):
        """Tolerances of all outputs."""
        network, of = self.network, self.arithmetic
        own = rounding_of_outputs(network, self.X, single=False)
        theirs = rounding_of_outputs(network, self.X, single=True) if of.single else own
        tolerance = _SIGMAS * np.sqrt(own**2 + theirs**2 + of.noise**2) + self._error[:, None]
        step = of.spacing(self.Y) if self._oracle.response == "predict" else np.zeros(self.Y.shape)
        if step.any():  # what was computed in single precision before may round to the next number
            single = rounding_of_outputs(network, self.X, single=True)
            tolerance += 0.5 * step + np.minimum(_SIGMAS * single, 0.5 * step)
        deviation = self.Y.std(axis=0)
        known = self._known(self.X).std(axis=0)
        self.shares = np.array([_share(t, d) for t, d in zip(tolerance.T, known, strict=True)])
        if self._tol is not None:
            tolerance = np.maximum(tolerance, self._tol * deviation)
        self.tolerance = tolerance

    @property
    def tolerance_is_chosen(self):
        """Whether the tolerance is the one that was given, rather than precision or noise."""
        return self._tol is not None and bool(np.all(self.shares <= self._tol))


def _share(tolerance, deviation):
    """The median tolerance of an output over the deviation of its values; infinite if none can be compared."""
    counts = np.isfinite(tolerance)
    if not counts.any():
        return np.inf
    return np.median(tolerance[counts]) / deviation if deviation > 0 else 0.0
