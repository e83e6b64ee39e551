"""Taylor coefficients at many places of one patch, in the true outputs of its free units."""

from __future__ import annotations

import numpy as np

from skident.linalg.packing import packing_weights

from .charts import exponents

__all__ = ["coefficients_in_outputs", "outputs_to_chart"]


def outputs_to_chart(outputs, stretch, order):
    """Series of ``tanh(t - t_c)`` by powers of ``h - h_c``, where ``h = tanh(stretch t + delta)``.

    Parameters
    ----------
    outputs : ndarray
        ``h_c``, the true outputs at the centre.
    stretch : ndarray
        Factors of lengths that are nearly known; of a shape that goes with that of `outputs`.
    order : int
        p.

    Returns
    -------
    ndarray of shape (..., p + 1)
        For factors 1 a Moebius map, ``h_c^(n-1) / (1 - h_c^2)^n``.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.second_layer.kernel.local_coordinates import outputs_to_chart
    >>> print(outputs_to_chart(np.array(0.5), np.array(1.0), 2).round(6))
    [0.       1.333333 0.888889]
    """
    n = order + 1
    slope = np.zeros((*outputs.shape, n))  # of artanh
    slope[..., 0] = 1.0 / (1.0 - outputs**2)
    for i in range(1, n):
        slope[..., i] = 2.0 * outputs * slope[..., i - 1] + (slope[..., i - 2] if i > 1 else 0.0)
        slope[..., i] /= 1.0 - outputs**2
    slope = slope / stretch[..., None]
    series = np.zeros_like(slope)
    for i in range(1, n):  # y' = (1 - y^2) s'
        squares = [sum(series[..., j] * series[..., q - j] for j in range(q + 1)) for q in range(i)]
        inner = [(1.0 if q == 0 else 0.0) - square for q, square in enumerate(squares)]
        series[..., i] = sum(inner[j] * slope[..., i - 1 - j] for j in range(i)) / i
    return series


def coefficients_in_outputs(tensors, outputs, stretch):
    """Highest Taylor coefficients in ``h - h_c`` from those of all orders in ``tanh(t - t_c)``.

    Parameters
    ----------
    tensors : list of ndarray of shape (n, m_L, C(k + q - 1, q)), q = 0, ..., p
        Packed, see `taylor_coefficients`.
    outputs : ndarray of shape (n, k)
        True outputs ``h_c`` at the places.
    stretch : ndarray of shape (k,)

    Returns
    -------
    ndarray of shape (n, m_L, C(k + p - 1, p))
        Packed.
    """
    order, (n, k) = len(tensors) - 1, outputs.shape
    series = outputs_to_chart(outputs, stretch, order)
    powers = np.zeros((n, k, order + 1, order + 1))  # row a: coefficients of the a-th power
    powers[:, :, 0, 0] = 1.0
    for a in range(1, order + 1):
        for j in range(1, order + 1):
            powers[:, :, a, j:] += series[:, :, j, None] * powers[:, :, a - 1, : order + 1 - j]
    target, result = exponents(k, order), 0.0
    for q in range(1, order + 1):
        source = exponents(k, q)
        change = np.ones((n, len(source), len(target)))
        for i in range(k):
            change *= powers[:, i][:, source[:, i][:, None], target[:, i][None]]
        result = result + (tensors[q] * packing_weights(k, q)) @ change
    return result / packing_weights(k, order)
