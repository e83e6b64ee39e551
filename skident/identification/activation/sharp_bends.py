"""Outputs that are curved and have sharp bends: max pooling, or ReLU units, in front of smooth units."""

import numpy as np

from skident.budget.constants import ROUNDS

from ..constants import INPUT_REACH
from ..query_points import query_block
from .other_models import OtherModel

_LINES = 12  # near the center (budget)
_POINTS = 129  # per line
_PARTS = 16  # into which the two intervals around the sharpest bend are divided per round
_KEPT = 0.3  # share of the change of slope left at the end, of a sharp bend: a smooth one keeps 1e-3 or less
_SAME = (0.5, 2.0)  # of the change of slope left by the last round: 1 at a sharp bend, 1/8 at a smooth one, 8 at a jump
_ROUNDINGS = 1e3  # eps of the outputs that the bend exceeds in the end
_MANY = 0.3  # share of lines with a sharp bend


def recognize_sharp_bends(oracle, rng):
    """`OtherModel` if outputs of smooth units have sharp bends near the center; None otherwise. 2,400 queries."""
    n_sharp = count_sharp_bends(oracle, rng)
    if n_sharp < _MANY * _LINES:
        return None
    return OtherModel(
        "sharp bends",
        "the outputs are curved and have sharp bends: max pooling or ReLU units in front of smooth units, or several "
        "activations, which are not identified.",
        f"sharp bends on {n_sharp} of {_LINES} lines near the center",
    )


def count_sharp_bends(oracle, rng):
    """On how many of 12 lines near the center the largest bend of outputs is sharp. 2,400 queries."""
    start, direction = rng.standard_normal((2, _LINES, 1, oracle.n_inputs))
    t, rows, sizes = np.tile(np.linspace(-INPUT_REACH, INPUT_REACH, _POINTS), (_LINES, 1)), np.arange(_LINES), []
    for _ in range(ROUNDS + 1):
        Y = query_block(oracle, start + t[:, :, None] * direction)
        bend, step = np.abs(np.diff(Y, 2, axis=1)).max(axis=2), t[:, 1] - t[:, 0]
        k = bend.argmax(axis=1)
        sizes.append(bend[rows, k] / step)
        t = np.linspace(t[rows, k], t[rows, k + 2], _PARTS + 1, axis=1)
    clear = bend[rows, k] > _ROUNDINGS * np.finfo(float).eps * np.abs(Y).max()
    kept = (sizes[-1] > _KEPT * sizes[0]) & (sizes[-1] > _SAME[0] * sizes[-2]) & (sizes[-1] < _SAME[1] * sizes[-2])
    return int(np.sum(clear & kept))
