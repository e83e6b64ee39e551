"""A linear function beside units that settle: the gradient far out, where every unit is constant."""

import numpy as np

from ..constants import FARTHEST, SAME

_STEP = 1e-2  # of the differences, over the distance: a unit changes on one in some hundred, and rounding stays 1e-14
_POINTS = 8  # at which gradients are compared (budget: 2 D queries each)
_AGREEING = 0.6  # share of the points that must agree in every entry


def far_linear_part(oracle, rng):
    """The gradient (D, m_L) that nearly all far points share; None if the outputs settle, or gradients differ.

    Units that settle do not contribute far out, so that a linear function beside them is what remains. ReLU and similar
    units contribute to half of the points. In standardized inputs and outputs; ``2 D`` queries at 8 points.
    """
    D = oracle.n_inputs
    points = FARTHEST * rng.standard_normal((_POINTS, D))
    step = _STEP * FARTHEST * np.concatenate([np.eye(D), -np.eye(D)])
    Y = oracle((points[:, None] + step).reshape(-1, D)).reshape(_POINTS, 2, D, -1)
    gradients = (Y[:, 0] - Y[:, 1]) / (2.0 * _STEP * FARTHEST)
    shared = np.median(gradients, axis=0)
    largest = np.abs(shared).max()
    if largest * FARTHEST <= 1.0:
        return None
    same = np.mean(np.abs(gradients - shared) <= SAME * largest, axis=0)
    return shared if same.min() >= _AGREEING else None
