"""Which lines to scan next: anywhere, where all units of the recovered layer are active, beside errors."""

import numpy as np

from skident.linalg import lapack

from ..constants import NEAR_RADII
from ..measure.record import between, through
from .kernel.lines import random_segments

_FAR = 30.0  # half length of random lines in units of sqrt(D)
_N_NODES = 60  # of a random line
_ORTHANT_NODES = 24  # of a line in the positive orthant
_BESIDE_NODES = 14  # of a line from a right to a wrong output
_SIZES = (0.1, 0.5, 1.0, 2.0)  # of the pre-activations at its ends
_POWER = 1.5  # of exponential variables: some pre-activations are small
_LEAST = 0.01  # pre-activation


def random_lines(record, n):
    """Scan random lines; their indices."""
    outputs = record.outputs
    lines = random_segments(outputs.probe, n, outputs.rng, reach=_FAR, radii=NEAR_RADII)
    return record.add(lines, through(outputs, lines, _N_NODES))


def orthant_lines(record, first, n):
    """Scan lines on which all units of the first `Layer` are active, if there are such; their indices or None.

    Units of the second layer are whole there.
    """
    one, other = (_orthant(first, n, record.outputs.rng) for _ in range(2))
    if len(one) == 0:
        return None
    return record.add(*between(one, other, _ORTHANT_NODES, record.outputs.rng, low=0.0, high=1.0))


def lines_beside(record, right, wrong):
    """Scan lines from points (n, k) where outputs are right to others where they are wrong; their indices."""
    return record.add(*between(right, wrong, _BESIDE_NODES, record.outputs.rng))


def _orthant(first, n, rng):
    """Points (n, k) at which all units of the first `Layer` are active; (0, k) if there are none."""
    W, b = first.weights, first.biases
    if W.shape[1] > len(W):
        return np.zeros((0, len(W)))
    H = rng.exponential(1.0, (n, len(b))) ** _POWER * rng.choice(_SIZES, (n, 1)) + _LEAST
    return (H - b) @ lapack.pinv(W)
