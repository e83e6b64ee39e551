"""Whether rounded outputs are piecewise linear, from second differences in short windows near the center."""

import numpy as np

from ..constants import SECOND_DIFFERENCE, STRAIGHT
from ..query_points import query_block
from .growth import is_linear_far_out

_N_WINDOWS = 400  # a share of 0.25 is known to 0.02
_HALF_LENGTH = 0.01  # in sqrt(D) standard deviations; 64 + 64 ReLU units leave half of such windows straight
_MAX_LENGTHENING = 3.0  # longer windows contain an activation boundary in most places
_SHORTENING = 0.03  # of windows for outputs of double precision: 1,000 units leave most of them straight
_USUAL_ERROR = 1.3e-7  # relative error of float32 outputs, for which the half length is made
_PIECEWISE_SHARE = 0.25  # of straight windows; ReLU networks have 0.44 to 0.84, smooth ones 0 to 0.05
_LINEAR_SHARE = 0.99  # of straight windows
_LONGER = 10.0  # factor by which windows grow while all are straight but the outputs are not linear: 1 % of them bend
_LONGEST = 100.0  # largest lengthening of those: sqrt(D) standard deviations


def shape_in_windows(oracle, std, rng, farthest=1e5):
    """Whether outputs are "piecewise" linear, "curved" or "linear"; None if errors of standard deviation `std` hide it.

    Curvature falls with the square of a window's length, and the share of windows with an activation boundary with the
    length: windows are as long as the errors (m_L,) require. If none bends, the outputs are linear only if those far
    out, up to `farthest` standard deviations, agree; else windows grow until some bend. 1,200 queries per length, none
    if the errors are too large.
    """
    lengthening = np.sqrt(np.max(std / np.maximum(oracle.accuracy.output_std, np.finfo(float).tiny)) / _USUAL_ERROR)
    if not lengthening <= _MAX_LENGTHENING:
        return None
    lengthening = max(lengthening, _SHORTENING)
    straight = _straight_share(oracle, std, rng, lengthening)
    if straight > _LINEAR_SHARE and is_linear_far_out(oracle, rng, std, farthest):
        return "linear"
    while straight > _LINEAR_SHARE and lengthening < _LONGEST:
        lengthening *= _LONGER
        straight = _straight_share(oracle, std, rng, lengthening)
    return "piecewise" if straight > _PIECEWISE_SHARE else "curved"


def _straight_share(oracle, std, rng, lengthening):
    """Share of windows of a length, over the usual one, in which no output bends by more than its error."""
    D = oracle.n_inputs
    U, E = rng.standard_normal((2, _N_WINDOWS, D))
    E *= lengthening * _HALF_LENGTH * np.sqrt(D) / np.linalg.norm(E, axis=1, keepdims=True)
    U = oracle.clip_to_range(U, np.abs(E).max())
    before, after = oracle.representable(U - E), oracle.representable(U + E)
    F = query_block(oracle, np.stack([before, 0.5 * (before + after), after], axis=1))
    bend = np.abs(F[:, 0] - 2.0 * F[:, 1] + F[:, 2]) / np.maximum(std, np.finfo(float).tiny)
    return float(np.mean(bend.max(axis=1) < STRAIGHT * SECOND_DIFFERENCE))
