"""Queries of an audit, the outputs, and their precision."""

from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from skident.budget.constants import MOST_WORK, OUTLIER, ROUNDINGS
from skident.oracle import BlackBoxError, Precision, probability_bounds

from .inputs import InputBox, candidate_inputs, chosen_inputs, inputs_on_both_sides
from .links import CENTERED_LOGITS, VALUES, Probabilities, logits_within
from .parameters import ParameterEffects
from .rounding import Arithmetic, numbers_of, rounding_of_outputs

PROBE_ROWS = 4  # rows queried as one batch; the first half of them again, one at a time
_HALF = PROBE_ROWS // 2
_FALSE_ALARM = 1e-4  # probability that noise counts as batch dependence, which costs time but no correctness
_EACH = (3, 12)  # queries per unit in the first round, fewest and most
_EACH_IN_ALL = 6000  # queries of all units together in the first round (budget)
_OTHERS = 64  # further queries in the first round
_MOST_ROWS = 5000  # rows of X queried: all, or so many at random, which miss a difference on 1 % of them once in 1e22
_REPEATED = PROBE_ROWS  # rows queried twice, to detect outputs that do not repeat
_NOISY_REPEATS = 16  # further rows queried twice if they do not: the noise level to 1 / sqrt(32), 18 %
_CAST_ROWS = 4  # rows at which a black box is queried again with its inputs rounded to float32, and beyond
_PROBE = PROBE_ROWS + PROBE_ROWS // 2 + 2 * _CAST_ROWS + _REPEATED  # queries of the probes and of the check for drift
_BATCH_PROBE = 22  # queries: 6 for noise or batch dependence, 8 single rows, 4 of them again, 4 for noise
_CAST_MOVES = 4.0  # tolerances (of 8 deviations of rounding) by which rounded inputs must move an output that counts
FEWEST_ROWS = 4 * _REPEATED
_FEWEST = 24  # queries at least, unless their number is given
_SMALL_PROBABILITY = 0.25  # outputs in [0, 1] may have the absolute error of such numbers, see `probability_bounds`
_TOO_FEW = 1.3  # a deviation measured by twenty numbers may be too small by as much
_CANDIDATES = 4  # candidates a row queries
_WOULD_SHOW = 30.0  # tolerances by which rounded weights change an output that counts: by chance 1 in 30 agrees still
_AGREE = 0.3  # share of such outputs that agree, from which the weights were not rounded
_FEWEST_AGREEING = 8  # of them: by chance once in 1e8


class Queries:
    """Queries so far, their outputs, and the tolerance of these.

    Attributes
    ----------
    X : ndarray of shape (k, D)
        Inputs chosen for the units, then rows of X.
    Y, tolerance : ndarray of shape (k, c)
        Outputs, and what they may differ by.
    excesses : ndarray of shape (k, c)
        Differences from the reference over their tolerance.
    n_rows : int
        Rows of X among the inputs, the last ones.
    box : InputBox
    network : FeedforwardNetwork
        The reference, without its softmax or sigmoid if probabilities are compared.
    unseen : list of (layer, unit)
        Units that rest at every candidate.
    shares : ndarray of shape (c,)
        Tolerance that precision or noise explains, over the standard deviation of the network's output; 0 if constant.
    kind : str
        Number format of the outputs, or ``noise``.
    lacks_softmax : bool
        Whether the outputs are logits where those of the reference are probabilities.
    batch_dependent : bool
        Whether outputs depend on the other rows of a batch; from then on rows are queried one at a time.
    casts_inputs : bool
        Whether the black box rounds its inputs to float32.
    """

    batch_dependent = casts_inputs = False

    def __init__(self, oracle, reference, X, tol, max_queries):
        self._oracle, self._reference, self._tol, self._rows, self.box = oracle, reference, tol, X, InputBox.of(X)
        self.network, n_units = reference.network, sum(reference.network.layer_widths[:-1])
        self._n_each = int(np.clip(_EACH_IN_ALL // max(n_units, 1), *_EACH))
        all_rows = max(PROBE_ROWS, min(len(X), _MOST_ROWS))
        own = max(_FEWEST, -(-2 * self.network.n_parameters // self.network.n_outputs))
        self._most = own + all_rows if max_queries is None else max_queries
        left = self._most - _PROBE + _REPEATED
        wanted = self._n_each * n_units + _OTHERS
        few = left - min(wanted, left // 2)
        self.n_rows = all_rows if max_queries is None else int(np.clip(few, PROBE_ROWS, all_rows))
        self._n_chosen = int(np.clip(left - self.n_rows, 0, wanted))

    def first(self, rng):
        """Query rows of X, then inputs at which units vary; determine the number format and the tolerances."""
        rows = self._rows if self.n_rows >= len(self._rows) else self._rows[rng.permutation(len(self._rows))]
        rows = spread_rows(rows[np.arange(self.n_rows) % len(rows)])
        repeats, gap = self._query_rows(rows)
        numbers = self._numbers(self.Y, self.X)
        self.network, self.link, self.lacks_softmax = self._reference.compared(self.X, self.Y, numbers)
        chosen = self._chosen(rng)
        if len(chosen):
            self.X, self.Y = np.vstack([chosen, self.X]), np.vstack([self._oracle(chosen), self.Y])
        self.arithmetic = self._measured(repeats, gap)
        self._settle()

    def _chosen(self, rng):
        """Inputs at which every unit varies and differs from the others; sets `unseen`."""
        n, work = self._n_chosen, self.network.n_parameters * (1 + self.network.n_outputs)
        many = int(np.clip(MOST_WORK // work, n, max(_CANDIDATES * n, 512)))
        drawn = candidate_inputs(self._rows, self.box, many, rng)
        drawn = inputs_on_both_sides(self.network, drawn, self.box, rng)
        effects = self._effects(drawn, np.ones((len(drawn), self.Y.shape[1])))
        hidden = range(self.network.n_layers - 1)
        resting = [np.flatnonzero(effects.strength(layer).max(axis=0) == 0) for layer in hidden]
        self.unseen = [(layer, int(unit)) for layer, units in enumerate(resting) for unit in units]
        return drawn[chosen_inputs(effects, n, self._n_each, rng)]

    def _query_rows(self, rows):
        """Query rows of X, in one batch or row by row; returns whether outputs repeat, and their differences."""
        oracle, again = self._oracle, rows[:PROBE_ROWS]
        probe = probe_batches(oracle, again)
        kind = self._numbers(probe.Y, again)[0]
        sums = OUTLIER * rounding_of_outputs(self.network, again, single=kind == "float32").max()  # in another order
        rounding = np.maximum(self._rounding(probe.Y, kind), sums)
        repeats = not probe.differs(rounding)
        if not repeats and self._left() >= _BATCH_PROBE:
            single = OUTLIER * rounding_of_outputs(self.network, again, single=True).max()
            self.batch_dependent = probe.depends_on_batch(oracle, again, np.maximum(rounding, single))
            left = self._left()
            share = max(left // 2, left - _REPEATED - _NOISY_REPEATS) / (self.n_rows + self._n_chosen)
            self.n_rows = int(max(PROBE_ROWS, min(1.0, share) * self.n_rows))
            self._n_chosen = int(min(1.0, share) * self._n_chosen)
        self.X = rows[: self.n_rows]
        if self.batch_dependent:
            oracle.chunk_rows = 1
            self.Y = oracle(self.X)
            gap = self.Y[:_REPEATED] - oracle(again)
            return np.all(np.abs(gap) <= rounding), gap
        self.Y = np.vstack([probe.Y, oracle(self.X[PROBE_ROWS:])]) if self.n_rows > PROBE_ROWS else probe.Y
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
        self.X, self.Y = np.vstack([X, self.X]), np.vstack([self._oracle(X), self.Y])
        self._settle()

    @property
    def excess(self):
        """The largest difference over its tolerance."""
        return float(self.excesses.max())

    def effects(self):
        """Effects of the parameters at the chosen inputs, and at the rows of X that differ most."""
        rows = self._shown()
        return self._effects(self.X[rows], self.tolerance[rows])

    def to_explain(self):
        """Effects, outputs and tolerances at the same inputs, as `explain_differences` takes them.

        Probabilities as logits, on which the last layer acts linearly.
        """
        rows = self._shown()
        X, Y, tolerance, link = self.X[rows], self.Y[rows], self.tolerance[rows], self.link
        if isinstance(link, Probabilities):
            n_logits = self.network.n_outputs
            Y, tolerance = logits_within(Y, tolerance, n_logits)
            link = VALUES if n_logits == 1 else CENTERED_LOGITS
        return ParameterEffects(self.network, X, tolerance, link), Y, tolerance

    def _shown(self):
        """Indices of the chosen inputs, and of as many rows of X, those that differ most first."""
        n = len(self.X) - self.n_rows
        worst = np.argsort(-self.excesses[n:].max(axis=1), kind="stable")
        return np.concatenate([np.arange(n), n + worst[: max(n, FEWEST_ROWS)]])

    def _effects(self, X, tolerance):
        return ParameterEffects(self.network, X, tolerance, self.link)

    def check_drift(self):
        """Refuse a black box whose outputs change, at the first rows and the inputs that differ most."""
        worst, first = np.argsort(-self.excesses.max(axis=1), kind="stable"), len(self.X) - self.n_rows
        rows = np.append(worst[: _REPEATED // 2], first + np.arange(_REPEATED // 2))
        gap = np.abs(self._oracle(self.X[rows]) - self.Y[rows])
        if np.max(gap / (2.0 * self.tolerance[rows])) > 1.0:
            raise BlackBoxError(
                f"the black box changed while it was audited: queried again at the end, in a batch of {_REPEATED} "
                f"rows, its outputs differed by {gap.max():.1e}. Likely cause: dropout in training mode (call "
                ".eval()), sampling, or outputs that are wrong beyond some row of a large batch."
            )

    @property
    def data_rows(self):
        """Rows of X that were queried, rows of X in all, and queried ones at which an output differs."""
        n, differing = len(self._rows), np.count_nonzero(self.excesses[-self.n_rows :].max(axis=1) > 1.0)
        return min(self.n_rows, n), n, min(differing, n)

    @property
    def n_queries(self):
        """Number of queries."""
        return self._oracle.n_queries

    def _numbers(self, Y, X):
        """Number format of some outputs."""
        return numbers_of(Y, self._reference.network(X))

    @staticmethod
    def _rounding(Y, kind):
        """By how much an output may differ from itself, (c,)."""
        largest = np.abs(Y).max(axis=0)
        if Y.min() > -_SMALL_PROBABILITY and Y.max() <= 1.0:
            largest = np.maximum(largest, _SMALL_PROBABILITY)
        return ROUNDINGS * np.finfo(np.float32 if kind == "float32" else np.float64).eps * largest

    def _measured(self, repeats, gap):
        """Number format of the outputs, and their noise if they do not repeat."""
        oracle, Y = self._oracle, self.Y
        kind, decimals = self._numbers(Y, self.X)
        noise = np.zeros(Y.shape[1])
        if not repeats:
            n = max(0, min(_NOISY_REPEATS, self._left(), len(self.X)))
            gap = np.vstack([gap, Y[len(Y) - n :] - oracle(self.X[len(Y) - n :])])
            noise = _TOO_FEW * np.sqrt(np.mean(gap**2, axis=0) / 2.0)
        self.kind = "noise" if noise.any() else kind
        return Arithmetic(kind, decimals, kind == "float32", noise)

    @property
    def weights_may_be_rounded(self):
        """Whether outputs in double precision may come from the reference's weights before they were rounded."""
        return self._reference.only_single and self.kind == "float64"

    def agree_in_part(self):
        """Whether many outputs are those of the reference's weights, which are float32 numbers, to double precision."""
        would_show = self.effects().of_rounded_parameters() > _WOULD_SHOW
        agreeing = np.count_nonzero(self.excesses[self._shown()][would_show] <= 1.0)
        return agreeing >= max(_FEWEST_AGREEING, _AGREE * np.count_nonzero(would_show))

    def allow_float32(self):
        """Take float32 as the precision from now on."""
        self.kind, self.arithmetic = "float32", replace(self.arithmetic, kind="float32", single=True)
        self._settle()

    def check_cast(self):
        """Set `casts_inputs`; if the black box rounds its inputs to float32, that is its precision from then on.

        It does if its outputs at rounded inputs are the same, although the network's are not, and its outputs change
        two float32 numbers further.
        """
        if self.kind != "float64" or self._left() < 2 * _CAST_ROWS:
            return
        rounded = self._as_single(self.X, 0)
        small = np.maximum(self.tolerance, self._rounding(self.Y, "float64"))
        moved = np.abs(self._known(self.X) - self._known(rounded)) / small
        rows = np.argsort(-moved.max(axis=1), kind="stable")[:_CAST_ROWS]
        counted = moved[rows] > _CAST_MOVES
        if not counted.any():
            return
        beyond = self._as_single(self.X[rows], 2)
        gap, gap_beyond = (np.abs(self.Y[rows] - self._oracle(X)) / small[rows] for X in (rounded[rows], beyond))
        self.casts_inputs = bool(gap[counted].max() <= 1.0 < gap_beyond[counted].min())
        if self.casts_inputs:
            self.allow_float32()

    def _as_single(self, X, steps):
        """Inputs rounded to float32, and moved by some of its numbers towards the middle of the range, if inside."""
        middle, rounded = (0.5 * (self.box.low + self.box.high)).astype(np.float32), X.astype(np.float32)
        for _ in range(steps):
            rounded = np.nextafter(rounded, middle)
        rounded = rounded.astype(float)
        return np.where((rounded == self.box.inside(rounded)) & ~self.box.integer, rounded, X)

    def _known(self, X):
        """What is compared, of the network."""
        return self.link.values(self.network(X))

    def _settle(self):
        """Tolerances of all outputs, and differences over them."""
        known = self.link.values(self.network(self.X))
        tolerance = self.tolerance_of(self.network, self.link)
        self.shares = np.array([_share(t, d) for t, d in zip(tolerance.T, known.std(axis=0), strict=True)])
        if self._tol is not None:
            tolerance = np.maximum(tolerance, self._tol * self.Y.std(axis=0))
        self.tolerance, self.gaps = tolerance, np.abs(self.Y - known)
        self.excesses = self.gaps / tolerance

    def tolerance_of(self, network, link):
        """By how much rounding and noise may move what is compared of a network, (k, c)."""
        of, Y, Z = self.arithmetic, self.Y, network(self.X)
        own = link.deviations(Z, rounding_of_outputs(network, self.X, single=False))
        step = of.spacing(Y)
        coarse = of.single or step.any()
        single = link.deviations(Z, rounding_of_outputs(network, self.X, single=True)) if coarse else own
        theirs = single if of.single else own
        tolerance = OUTLIER * np.sqrt(own**2 + theirs**2 + of.noise**2)
        if isinstance(link, Probabilities):
            theirs = probability_bounds(Y, Precision("float32" if of.kind == "float32" else "float64"))
            tolerance += theirs + probability_bounds(link.values(Z))
        if step.any():  # what was computed in single precision before may round to the next number
            tolerance += 0.5 * step + np.minimum(OUTLIER * single, 0.5 * step)
        return tolerance

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


@dataclass(frozen=True)
class BatchProbe:
    """Outputs of a few rows in one batch and one at a time.

    Attributes
    ----------
    Y : ndarray of shape (4, m_L)
        In one batch.
    half : ndarray of shape (2, m_L)
        Outputs of the first two rows, queried one at a time.
    """

    Y: np.ndarray
    half: np.ndarray

    @property
    def gap(self):
        """Differences of the first two rows' outputs, (2, m_L)."""
        return self.Y[:_HALF] - self.half

    def differs(self, rounding):
        """Whether the outputs differ by more than their rounding, ndarray of shape (m_L,)."""
        return bool(np.any(np.abs(self.gap) > rounding))

    def depends_on_batch(self, oracle, rows, rounding):
        """Whether batches, rather than noise, explain the difference.

        rows (4, D), rounding (m_L,).

        Six queries. An F-test of the difference between the batches against that between repetitions of a batch.
        """
        Y, half = oracle(rows), _one_by_one(oracle, rows)
        floor = np.maximum(rounding, np.finfo(float).tiny)
        repeated = np.vstack([self.Y - Y, self.half - half]) / floor
        between = 0.5 * (self.Y[:_HALF] + Y[:_HALF] - self.half - half) / floor
        noise = 0.5 * np.mean(repeated**2, axis=0) + 1.0  # at least the rounding, whose square is 1 here
        ratio = np.mean(between**2 / noise)
        return bool(ratio > stats.f.isf(_FALSE_ALARM, between.size, repeated.size))


def probe_batches(oracle, rows):
    """Query four rows as one batch, and the first two again, one at a time.

    rows (4, D).
    """
    return BatchProbe(oracle(rows), _one_by_one(oracle, rows))


def _one_by_one(oracle, rows):
    return np.vstack([oracle(row[None]) for row in rows[:_HALF]])


def spread_rows(X):
    """The rows in an order in which the first two have the smallest entries and the next two the largest.

    Dynamic quantization takes its scale from the largest entries of a batch, so the scale of the first two rows differs
    from that of the first four.

    X (n, D); returns (n, D).
    """
    order = np.argsort(np.abs(X).max(axis=1), kind="stable")
    first = np.concatenate([order[:_HALF], order[_HALF:][-_HALF:]])
    return X[np.concatenate([first, np.setdiff1d(np.arange(len(X)), first)])]
