"""Units of one hidden layer far from the center, where those that grow linearly are ReLU units up to rounding."""

from dataclasses import dataclass, replace

import numpy as np

from ..constants import FAR_REACH, FAR_UNSHARED
from ..piecewise.kernel.lines import Table
from ..piecewise.kernel.output_error import probe_of
from ..piecewise.shallow.inexact import find_from_inexact_outputs
from ..piecewise.shallow.line_search import LineSearch

_DISTANCE = 1e6  # of the lines, in standard deviations: a unit bends over 1e-6 of it, and float32 leaves 1e-7
FARTHEST_LINE = 1.1 * _DISTANCE * FAR_REACH  # query, in sqrt(D) standard deviations
_LEAST_ERROR = 1e-7  # of the outputs over their spread: that of a limit which is no ReLU within 1e-6 of its bends
_POSITION_ERROR = 0.1  # standard deviations: 1e-7 of the distance
_AVERAGED = 0.01  # error of a position over that of one output, in units of the jump: of a fit to thousands of outputs


@dataclass(frozen=True)
class FarUnits(Table):
    """Units far out, up to their signs."""

    normals: np.ndarray  # (m, D), unit vectors
    positions: np.ndarray  # (m,), p of the hyperplanes n . u + p = 0
    jumps: np.ndarray  # (m, m_L), of the gradient along the normals
    position_errors: np.ndarray  # (m,)


def find_far_units(oracle, n_units, max_units, rng, callback=None):
    """`FarUnits` of an oracle with one hidden layer of units that grow linearly; outputs need not be exact.

    Far out, an activation that is constant on the left and of slope 1 on the right is a ReLU up to rounding: units are
    those of ``f(R v) / R``, recovered as from outputs with errors. Raises NotIdentified if no units explain these, or
    more than `n_units` (if given) do.
    """
    distant, std = oracle.zoomed_out(_DISTANCE), oracle.accuracy.std
    std = np.maximum(std if oracle.accuracy.grows else std / _DISTANCE, _LEAST_ERROR)
    distant.accuracy = replace(distant.accuracy, std=std)
    probe = probe_of(distant, rng, far=FAR_REACH)
    search = LineSearch(probe, FAR_REACH * probe.length_scale, max_units, rng)
    limit, _ = find_from_inexact_outputs(search, n_units, callback, FAR_UNSHARED)
    norms = np.linalg.norm(limit.weights[0], axis=0)
    jumps = limit.weights[1] * norms[:, None]
    errors = np.hypot(_POSITION_ERROR, _DISTANCE * _AVERAGED * np.max(std) / np.linalg.norm(jumps, axis=1))
    # Positions that errors hide are as likely as those of most units, which cross the samples.
    share = 1.0 / (1.0 + errors**2)
    positions = share * _DISTANCE * limit.biases[0] / norms
    return FarUnits((limit.weights[0] / norms).T, positions, jumps, np.sqrt(share) * errors)
