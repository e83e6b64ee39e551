"""How the damping of Levenberg-Marquardt follows its steps."""

from __future__ import annotations

import numpy as np

__all__ = ["GROWTH", "damping_after"]

GROWTH = 2.0  # of the damping after a refused step; doubled at every further one
_SMALLEST = 1e-15


def damping_after(damping, ratio):
    """The next damping after an accepted step.

    Parameters
    ----------
    damping : float or ndarray of shape (b,)
    ratio : float or ndarray of shape (b,)
        Decrease of the cost over the decrease that the linear model predicted.

    Returns
    -------
    float or ndarray of shape (b,)
        ``damping max(1/10, 1 - (2 ratio - 1)^3)``: a tenth where the model was right, up to twice where the cost hardly
        fell, so that the damping vanishes near a solution with zero residual and the last steps converge quadratically.

    Notes
    -----
    A refused step multiplies the damping by 2, the next one by 4, by 8, ... (`GROWTH`).
    Source: H. B. Nielsen (1999), Damping parameter in Marquardt's method, with 1/10 for his 1/3.

    Examples
    --------
    >>> from skident.optim.damping import damping_after
    >>> print(damping_after(1.0, 1.0), damping_after(1.0, 0.5), damping_after(1.0, 0.0))
    0.1 1.0 2.0
    """
    # Capped: a ratio far above 1 (a prediction lost in rounding) says no more than 2, and its cube overflows.
    ratio = np.minimum(ratio, 2.0)
    return np.maximum(damping * np.maximum(0.1, 1.0 - (2.0 * ratio - 1.0) ** 3), _SMALLEST)
