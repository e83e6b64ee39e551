"""Jumps of the outputs on lines near the center: where they are, along which inputs, and what lies between them."""

from dataclasses import dataclass

import numpy as np

from ..constants import INPUT_REACH, LINE_POINTS
from ..query_points import query_block

_LINES = 8  # through samples of X (budget)
_STANDS_OUT = 0.2  # share of a change that those beside it do not have, of a jump; smooth units have 0.1 per interval
_PARTS = 8  # into which the interval of a jump is divided per round
_ROUNDS = 10  # of division: to 1e-10 standard deviations
_COMPARED = 5  # round whose interval must contain no larger change: 1e-5 standard deviations wide
_REMAINS = 0.5  # share of that change left in the last interval, of a jump: a smooth change shrinks to 1e-5 of it
_MIN_SIZE = 1e-3  # jump relative to the outputs' spread: one from float32 inputs at 1,000 times their spread is smaller
_STDS = 20.0  # errors of the outputs that a jump exceeds: a rounding step is 3.5 of them
_STDS_OF_STEP = 5.2  # `_STDS` for decimals: one and a half of their steps, as a rounded smooth output moves by one
_SIDE = 1e-6  # standard deviations before and behind a jump, between which single inputs are moved
_CROSSED = 0.5  # share of the change of a jump from which an input has crossed it
_MOST_MOVED = 64  # inputs that are moved alone (budget)
_PROBES = 60  # points at which the outputs are tested for being constant
_PROBE_STEP = 1e-7  # standard deviations between the outputs compared there
_CONSTANT_SHARE = 0.9  # of these points, of piecewise constant outputs: thresholds of 1,000 trees lie at 1e-3
_FINE = 1025  # points of a line along one input, on which thresholds are counted
_FEWEST = 5  # thresholds that show a spacing
_CELLS = 8  # points per spacing, at least
_FROM_GRID = 2  # points by which a threshold may be off its place: its own interval, and that of the previous one
_EVEN_SHARE = 0.9  # of evenly spaced thresholds
_ZOOMS = 6  # shortenings of that line by four, until thresholds are far enough apart


@dataclass(frozen=True)
class Jumps:
    """Jumps of the outputs: points before and behind each (k, D), and the inputs that it takes to cross it.

    ``n_lines`` is the number of lines searched; ``inputs`` has a list of inputs per jump, each of which crosses it
    alone.
    """

    before: np.ndarray
    behind: np.ndarray
    inputs: list
    n_lines: int

    def __len__(self):
        return len(self.before)

    @property
    def aligned(self):
        """Whether every jump is crossed by exactly one input: thresholds of single inputs."""
        return len(self) > 0 and all(len(inputs) == 1 for inputs in self.inputs)

    @property
    def which(self):
        """The inputs that cross jumps alone, sorted."""
        return sorted({i for inputs in self.inputs for i in inputs})


def find_jumps(oracle, U, rng, constant=False):
    """`Jumps` on lines through standardized samples U (n, D): the sharpest change of each line, if it is one.

    `constant`: whether the outputs are constant over short steps, so that their errors are not noise. 264 queries, 70
    per line whose largest change stands out, and D per jump (at most 64).
    """
    D, tol = oracle.n_inputs, _smallest_jump(oracle, constant)  # per output, and 1 after the division by it
    start = U[rng.randint(len(U), size=_LINES)]
    low, high = np.minimum(U.min(axis=0), -INPUT_REACH), np.maximum(U.max(axis=0), INPUT_REACH)
    ends = np.where(rng.uniform(size=(_LINES, D)) < 0.5, low, high)
    start, ends = (oracle.clip_to_range(part) for part in (0.1 * start + 0.9 * (low + high - ends), ends))
    t = np.linspace(0.0, 1.0, LINE_POINTS)[None, :, None]
    Y = query_block(oracle, start[:, None] * (1.0 - t) + ends[:, None] * t) / tol
    some, k, sharp = _sharpest(Y)
    start, ends = start[some], ends[some]
    left, right = k[some] / (LINE_POINTS - 1.0), (k[some] + 1.0) / (LINE_POINTS - 1.0)
    sizes = [sharp[some]]
    for _ in range(_ROUNDS):
        if not len(left):
            break
        t = left[:, None] + (right - left)[:, None] * np.linspace(0.0, 1.0, _PARTS + 1)
        Y = query_block(oracle, start[:, None] * (1.0 - t[..., None]) + ends[:, None] * t[..., None]) / tol
        change = np.abs(np.diff(Y, axis=1)).max(axis=2)
        k, rows = change.argmax(axis=1), np.arange(len(t))
        left, right = t[rows, k], t[rows, k + 1]
        sizes.append(change[rows, k])
    remains = (sizes[-1] > 1.0) & (sizes[-1] > _REMAINS * sizes[min(_COMPARED, len(sizes) - 1)])
    middle = 0.5 * (left + right)[remains, None]
    points, step = start[remains] * (1.0 - middle) + ends[remains] * middle, (ends - start)[remains]
    step = _SIDE * step / np.maximum(np.abs(step).max(axis=1, keepdims=True), np.finfo(float).tiny)
    before, behind = points - step, points + step
    return Jumps(before, behind, _crossing_inputs(oracle, before, behind), _LINES)


def _smallest_jump(oracle, constant):
    """Change of each standardized output (m_L,) that counts as a jump."""
    accuracy = oracle.accuracy
    n_stds = _STDS_OF_STEP if accuracy.kind == "decimals" else 0.0 if constant and accuracy.kind == "noise" else _STDS
    return np.maximum(np.maximum(_MIN_SIZE * accuracy.output_std, n_stds * accuracy.std), np.finfo(float).tiny)


def _sharpest(Y):
    """Per line: whether a change stands out, its interval, and its size; outputs Y (lines, points, m_L) over jumps."""
    change = np.abs(np.diff(Y, axis=1)).max(axis=2)
    beside = np.pad(change, ((0, 0), (1, 1)), mode="edge")
    stands_out = change - 0.5 * np.minimum(beside[:, :-2] + beside[:, 2:], 2.0 * change)
    k = stands_out.argmax(axis=1)
    rows = np.arange(len(Y))
    sharp = stands_out[rows, k] > np.maximum(0.5, _STANDS_OUT * change[rows, k])
    return sharp, k, change[rows, k]


def _crossing_inputs(oracle, before, behind):
    """Per jump, the inputs that cross it alone, moved from `before` to `behind` (k, D)."""
    found, D = [], oracle.n_inputs
    for a, b in zip(before, behind, strict=True):
        moved = np.argsort(-np.abs(b - a), kind="stable")[:_MOST_MOVED] if D > _MOST_MOVED else np.arange(D)
        rows = np.repeat(a[None], len(moved), axis=0)
        rows[np.arange(len(moved)), moved] = b[moved]
        Y = oracle(np.vstack([a[None], b[None], rows]))
        share = np.abs(Y[2:] - Y[0]).max(axis=1) / max(np.abs(Y[1] - Y[0]).max(), np.finfo(float).tiny)
        found.append([int(i) for i in moved[share > _CROSSED]])
    return found


def is_piecewise_constant(oracle, U, rng):
    """Whether the outputs do not change at all over short steps from standardized samples U (n, D); 120 queries."""
    some = U[rng.randint(len(U), size=_PROBES)] + 0.1 * rng.standard_normal((_PROBES, oracle.n_inputs))
    some = oracle.clip_to_range(some)
    beside = oracle.clip_to_range(some + _PROBE_STEP * rng.standard_normal(some.shape))
    Y = query_block(oracle, np.stack([some, beside]))
    return bool(np.mean(np.all(Y[0] == Y[1], axis=1)) > _CONSTANT_SHARE)


def spacing_of_thresholds(oracle, point, i, beside=None):
    """Spacing of evenly spaced thresholds of input i at a point (D,); None if they are not evenly spaced.

    ``beside`` is an input that is moved far away first: dynamic quantization takes its spacing from the largest one.
    Some 1,000 to 6,000 queries.
    """
    base, reach = point.copy(), INPUT_REACH
    if beside is not None:
        j, value = beside
        base[j] = value
    for _ in range(_ZOOMS):
        t = np.linspace(-reach, reach, _FINE)
        rows = np.repeat(base[None], _FINE, axis=0)
        rows[:, i] = base[i] + t
        # The farthest rows stay in every batch: its extremes may set the scale of a quantization.
        ends = np.repeat(base[None], 2, axis=0)
        ends[:, i] = base[i] + np.array([-INPUT_REACH, INPUT_REACH])
        Y = oracle(np.vstack([rows, ends]))[:_FINE]
        at = np.flatnonzero(np.any(np.diff(Y, axis=0) != 0.0, axis=1))
        if len(at) * _CELLS <= _FINE:
            break
        reach /= 4.0
    if len(at) < _FEWEST:
        return None
    gaps = np.diff(at).astype(float)
    spacing = float(np.median(gaps))
    whole = np.maximum(np.round(gaps / spacing), 1.0)
    even = np.mean(np.abs(gaps - whole * spacing) <= _FROM_GRID)
    return spacing * 2.0 * reach / (_FINE - 1) if even >= _EVEN_SHARE and spacing >= _CELLS else None
