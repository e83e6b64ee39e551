"""Signs of units from the linear part of the outputs, and the slope of leaky units with them."""

import numpy as np

_LEAST_SLOPE = 1e-11  # of leaky units: rounding of a ratio of jumps


def linear_part_matrix(weights, outgoing):
    """The matrix (m_L D, m) of ``sum_k s_k outgoing_k weights_k`` in the signs s, outputs first.

    `weights` (D, m), `outgoing` (m, m_L).
    """
    return (outgoing.T[:, None] * weights).reshape(-1, len(outgoing))


def signs_over_ratio(coef, determined, slope):
    """Signs (m,) and the ratio rho that was solved for with them, from the coefficients ``rho s`` (m,).

    As ``leaky(s z) = (1 - a) / 2 (|z| + rho s z)`` with ``rho = (1 + a) / (1 - a)``. A slope a of None is recovered
    from the coefficients that are `determined` (a mask).
    """
    if slope is None:
        rho = max(1.0, float(np.median(np.abs(coef[determined])))) if determined.any() else 1.0
    else:
        rho = (1.0 + slope) / (1.0 - slope)
    return coef / rho, rho


def slope_of_ratio(rho):
    """The slope a of leaky units with ``rho = (1 + a) / (1 - a)``, 0 if that is rounding: ReLU units."""
    slope = (rho - 1.0) / (rho + 1.0)
    return slope if abs(slope) > _LEAST_SLOPE else 0.0
