"""Where a model returns valid outputs: a box around the samples, beyond which it raises or returns a sentinel value."""

import numpy as np

from skident.optim import bisect
from skident.oracle import BlackBoxError

from .constants import FARTHEST, FARTHEST_HALF
from .query_points import evenly_spaced_rows

LISTED_INPUTS = 16  # inputs up to which borders are searched, and stated, one by one (budget)
_ROWS = 100  # samples whose outputs are tested (budget)
_DIRECTIONS = 8  # far points that must all give a sentinel value (budget)
_FARTHEST = 1e3  # standard deviations up to which a border is searched: farther out, a range restricts little
_BISECTIONS = 14  # of that distance: to 0.1 standard deviations
_LINE_BISECTIONS = 60  # of a line to a sentinel: to the spacing of numbers
_MIN_JUMP = 1e-3  # change at the border, relative to the outputs' spread: of clips and kernels it is rounding
_MAJORITY = 0.75  # share of the lines that must end in a jump
_CORNERS = 64  # corners of a box that are tested before it is stated (budget)
_SHRINKAGE = 0.7  # factor of a box whose corners are not valid
_BOXES = 8  # boxes that are tested, the last a tenth as wide as the first
_DIGITS = 3  # significant digits of a border


def find_sentinel(oracle, X):
    """The value (m_L,) that all far outputs have, if lines from samples X (n, D) jump to it; None otherwise.

    Outputs of saturated units depend on the direction; clips, and kernels that vanish far out, reach their last value
    without a jump. Some 500 queries, 8 if far outputs differ.
    """
    far = FARTHEST_HALF if oracle.precision.kind == "float16" else FARTHEST
    ends = far * np.random.RandomState(0).standard_normal((_DIRECTIONS, oracle.n_inputs))
    Y = oracle(ends)
    if np.any(Y != Y[0]):
        return None
    samples = oracle.from_inputs(evenly_spaced_rows(X, _ROWS))
    start = np.resize(samples, (_DIRECTIONS, oracle.n_inputs))
    inside = oracle(start)
    low, high = np.zeros(_DIRECTIONS), np.ones(_DIRECTIONS)
    for _ in range(_LINE_BISECTIONS):
        middle = 0.5 * (low + high)
        Z = oracle(start + middle[:, None] * (ends - start))
        reached = np.all(Z == Y[0], axis=1)
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        inside = np.where(reached[:, None], inside, Z)
    spread = max(float(np.ptp(oracle(samples), axis=0).max()), np.finfo(float).tiny)
    jumps = np.abs(inside - Y[0]).max(axis=1) > _MIN_JUMP * spread
    return Y[0] if np.mean(jumps) >= _MAJORITY else None


def find_valid_range(oracle, X, sentinel=None):
    """Bounds (low, high), (D,) each, of a box of inputs in which the model is valid; None if it is not on samples.

    The model is valid where it returns outputs, and not the `sentinel` (m_L,). Borders are searched along single inputs
    from the median of the valid samples, the box is tested at its corners, and shrinks if they are not valid.
    """

    def valid(rows):
        return _valid(oracle, rows, sentinel)

    rows = evenly_spaced_rows(X, _ROWS)
    rows = rows[valid(rows)]
    if len(rows) < 2:
        return None
    low, high, middle = rows.min(axis=0), rows.max(axis=0), np.median(rows, axis=0)
    corners = np.random.RandomState(0).uniform(size=(_CORNERS, oracle.n_inputs)) < 0.5
    if oracle.n_inputs <= LISTED_INPUTS:
        wide = _borders(valid, middle, oracle.scale)
        wide = np.minimum(_rounded(wide[0], np.ceil), low), np.maximum(_rounded(wide[1], np.floor), high)
        if valid(np.where(corners, *wide)).all():
            return wide
    for _ in range(_BOXES):
        if valid(np.where(corners, low, high)).all():
            return low, high
        low, high = (middle + _SHRINKAGE * (bound - middle) for bound in (low, high))
    return None


def _valid(oracle, rows, sentinel):
    """Which inputs (n, D) of the model are valid, (n,); one by one if it raises on all together."""
    try:
        Y = oracle.query_inputs(rows)
    except BlackBoxError:
        if len(rows) == 1:
            return np.zeros(1, dtype=bool)
        return np.concatenate([_valid(oracle, row[None], sentinel) for row in rows])
    return np.ones(len(rows), dtype=bool) if sentinel is None else np.any(Y != sentinel, axis=1)


def _borders(valid, middle, scale):
    """The farthest valid values (low, high), (D,) each, of single inputs, all others at a valid point (D,)."""
    D = len(middle)
    steps = np.concatenate([-np.diag(scale), np.diag(scale)])
    inner = np.where(valid(middle + _FARTHEST * steps), _FARTHEST, 0.0)
    inner, _ = bisect(lambda t: ~valid(middle + t[:, None] * steps), inner, np.full(2 * D, _FARTHEST), _BISECTIONS)
    ends = middle + inner[:, None] * steps
    return np.diag(ends[:D]), np.diag(ends[D:])


def _rounded(bounds, inward):
    """Bounds (D,) rounded inward to three digits, so that a message can state them."""
    decimals = _DIGITS - 1 - np.floor(np.log10(np.maximum(np.abs(bounds), 1e-9))).astype(int)
    return np.array([inward(bound * 10.0**k) / 10.0**k for bound, k in zip(bounds, decimals, strict=True)])
