"""Charts: hidden coordinates on a patch, and the change of packed Taylor coefficients between them."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np
from scipy.special import erfinv

from skident.linalg import n_symmetric_entries
from skident.linalg.packing import packing_weights

__all__ = ["ErfChart", "TanhChart", "change_coordinates", "exponents", "powers_of_series", "series_in_outputs"]


@functools.lru_cache(maxsize=32)
def exponents(n_free, order):
    """Exponents (C(k + p - 1, p), k) of the monomials of a packed symmetric tensor; read-only and cached."""
    table = np.zeros((n_symmetric_entries(n_free, order), n_free), dtype=np.int64)
    for row, indices in zip(table, itertools.combinations_with_replacement(range(n_free), order), strict=True):
        np.add.at(row, list(indices), 1)
    table.flags.writeable = False
    return table


@dataclass(frozen=True)
class TanhChart:
    """``h' = tanh z``, z known up to a correction: the true output is ``h = tanh(z + artanh(center_output))``.

    h' is a Moebius map of h, unit by unit: Taylor coefficients in h' become those in ``h - center_output`` as soon as
    the center outputs are known.
    """

    center_outputs: None = None

    def preactivations(self, H):
        """z at coordinates h' (q, k)."""
        return np.arctanh(H)

    def coefficients(self, tensors, center_outputs, order):
        """Coefficients of one order in ``h - center_outputs`` from those of orders 0, ..., p in h'."""
        return change_coordinates(tensors, powers_of_series(series_in_outputs(center_outputs, order)))


@dataclass(frozen=True)
class ErfChart:
    """``h = center_output + (1 - |center_output|) h'``, h being the true output: center outputs are known."""

    center_outputs: np.ndarray

    def preactivations(self, H):
        """z at coordinates h' (q, k)."""
        center = self.center_outputs
        return erfinv(center + (1.0 - np.abs(center)) * H) - erfinv(center)

    def coefficients(self, tensors, center_outputs, order):
        """Coefficients of one order in ``h - center_outputs``, which are those of the chart."""
        scales = 1.0 - np.abs(self.center_outputs)
        return tensors[order] / np.prod(scales ** exponents(len(scales), order), axis=1)


def series_in_outputs(outputs, order, norm_factors=None):
    """Series (..., p + 1) of ``tanh(z - z_c)`` in powers of ``h - h_c``, with ``h = tanh(norm_factor z + correction)``.

    `outputs` (...) are h_c. Without norm factors, the Moebius map ``h_c^(n-1) / (1 - h_c^2)^n``.

    Examples
    --------
    >>> import numpy as np
    >>> from skident.identification.second_layer.kernel.charts import series_in_outputs
    >>> print(series_in_outputs(np.array(0.5), 2).round(6))
    [0.       1.333333 0.888889]
    """
    outputs, n = np.asarray(outputs), order + 1
    series = np.zeros((*outputs.shape, n))
    if norm_factors is None:
        powers = np.arange(1, n)
        series[..., 1:] = outputs[..., None] ** (powers - 1.0) / (1.0 - outputs[..., None] ** 2) ** powers
        return series
    slope = np.zeros_like(series)  # derivative of artanh at h_c, by the recursion of 1 / (1 - h^2)
    slope[..., 0] = 1.0 / (1.0 - outputs**2)
    for i in range(1, n):
        slope[..., i] = 2.0 * outputs * slope[..., i - 1] + (slope[..., i - 2] if i > 1 else 0.0)
        slope[..., i] /= 1.0 - outputs**2
    slope = slope / norm_factors[..., None]
    for i in range(1, n):  # y' = (1 - y^2) slope
        squares = [sum(series[..., j] * series[..., q - j] for j in range(q + 1)) for q in range(i)]
        inner = [(1.0 if q == 0 else 0.0) - square for q, square in enumerate(squares)]
        series[..., i] = sum(inner[j] * slope[..., i - 1 - j] for j in range(i)) / i
    return series


def powers_of_series(series):
    """Powers 0, ..., p of power series (..., p + 1) without constant term, each truncated: (..., p + 1, p + 1)."""
    n = series.shape[-1]
    powers = np.zeros((*series.shape, n))
    powers[..., 0, 0] = 1.0
    for a in range(1, n):
        for j in range(1, n):
            powers[..., a, j:] += series[..., j, None] * powers[..., a - 1, : n - j]
    return powers


def change_coordinates(tensors, powers):
    """Packed coefficients (n, m_L, C(k + p - 1, p)) of order p after series are substituted for the k variables.

    `tensors` has one array (n, m_L, C(k + q - 1, q)) for each order q. `powers` are `powers_of_series`, (k, p + 1,
    p + 1), or (n, k, p + 1, p + 1) if they differ from point to point.
    """
    k, order = powers.shape[-3], powers.shape[-1] - 1
    target, result = exponents(k, order), 0.0
    for q in range(1, order + 1):
        source = exponents(k, q)
        change = 1.0
        for i in range(k):
            change = change * powers[..., i, :, :][..., source[:, i][:, None], target[:, i][None]]
        result = result + (tensors[q] * packing_weights(k, q)) @ change
    return result / packing_weights(k, order)
