"""All activation boundaries along one line of a function whose outputs have bounds of their errors."""

from dataclasses import dataclass

import numpy as np

from skident.oracle import NotIdentified

from ...constants import DEVIATIONS_OF_ERROR
from ...measure.outputs import PAIR_SHARE
from ...measure.record import through
from ...measure.scan import scan
from .lines import Segments

_SPACING = 0.7  # of first pairs on the asinh scale: three per decade
_FEWEST_PAIRS = 6  # first pairs
_NARROWEST = 1e-7  # interval, over 1 + |t|, that is left unresolved: slopes measured on it lose their digits
_STEP_TOL = 1e3  # rise of a narrow interval over its slopes' and its error's that only a jump explains


@dataclass(frozen=True)
class LineScan:
    """Activation boundaries on a line, in order of position; the errors are bounds."""

    positions: np.ndarray  # (k,)
    jumps: np.ndarray  # (k, m_L), change of the slope
    jump_errors: np.ndarray  # (k,), from the lengths of the linear pieces on both sides
    position_errors: np.ndarray  # (k,)
    unresolved: np.ndarray  # (q, 2), narrow intervals with several boundaries, and intervals without outputs


class _Along:
    """A function of one variable as the outputs that `scan` measures."""

    n_inputs, exact_tol, pair_share = 1, _NARROWEST, PAIR_SHARE

    def __init__(self, query, output_error, length_scale, rng):
        self.query, self.output_error, self.length, self.rng = query, output_error, length_scale, rng

    def __call__(self, t):
        """Outputs (n, m_L) at positions (n,), and accuracies (n,)."""
        values = self.query(t)
        if isinstance(values, tuple):
            return values
        return values, self.output_error * (1.0 + np.abs(t) / self.length)

    def block(self, T):
        """Outputs (n, q, m_L) and standard errors (n, q) at a block of points (n, q, 1)."""
        F, tol = self(T.ravel())
        return F.reshape(*T.shape[:-1], F.shape[1]), tol.reshape(T.shape[:-1]) / DEVIATIONS_OF_ERROR


def scan_line(query, reach, *, output_error=1e-14, length_scale=1.0, max_boundaries=1000, n_pairs=None, rng=None):
    """The `LineScan` of a continuous piecewise linear function on ``|t| <= reach``, or ``(low, high)``.

    `query` returns outputs (n, m_L) at positions (n,), or a pair of these and their accuracies (n,), infinite where
    outputs are lost; without accuracies, `output_error` grows as ``1 + |t| / length_scale``. About 8 queries per
    boundary, after `n_pairs` first pairs of them. Raises `NotIdentified` if the outputs jump ("steps"), or bend at more
    than `max_boundaries` places ("crowded"). Boundaries that are too close together are reported as unresolved.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.piecewise.kernel.scan import scan_line
    >>> scan = scan_line(lambda t: np.abs(t - 0.25)[:, None] + np.maximum(t, 3.0)[:, None], 100.0)
    >>> print(scan.positions.round(6))
    [0.25 3.  ]
    """
    along = _Along(query, output_error, length_scale, np.random.RandomState(0) if rng is None else rng)
    low, high = reach if isinstance(reach, tuple) else (-reach, reach)
    lines = Segments(np.zeros((1, 1)), np.ones((1, 1)), np.array([float(low)]), np.array([float(high)]))
    if n_pairs is None:
        n_pairs = max(_FEWEST_PAIRS, int(np.diff(np.arcsinh(np.array([low, high]) / length_scale))[0] / _SPACING) + 2)
    bends, runs, gaps = scan(along, lines, through(along, lines, n_pairs), max_boundaries)
    bends, gaps = bends.take(np.argsort(bends.t)), gaps.take(np.argsort(gaps.low))
    if len(gaps):
        _refuse_steps(along, gaps, np.abs(runs.slope).max(initial=0.0))
    errors = 2.0 * DEVIATIONS_OF_ERROR * bends.jump_error, 2.0 * DEVIATIONS_OF_ERROR * bends.t_error
    return LineScan(bends.t, bends.jump, *errors, np.column_stack([gaps.low, gaps.high]))


def _refuse_steps(along, gaps, steepest):
    """Raise if the function jumps in a narrow gap, by far more than its slopes and its error allow."""
    width = gaps.high - gaps.low
    narrow = width <= 4.0 * _NARROWEST * (along.length + np.minimum(np.abs(gaps.low), np.abs(gaps.high)))
    (before, tol), (after, _) = along(gaps.low[narrow]), along(gaps.high[narrow])
    rise, width = np.abs(after - before).max(axis=1, initial=0.0), width[narrow]
    if np.any(rise > _STEP_TOL * (steepest * width + tol)):
        raise NotIdentified(
            "activation boundaries",
            "steps",
            f"the outputs jump within {width[np.argmax(rise)]:.1e} (in units of the inputs' scale): they are rounded, "
            "or the black box is not continuous (a tree, nearest neighbors).",
        )
