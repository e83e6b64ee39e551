"""Statements on Hermite expansions that no algorithm uses by itself."""

import math

import numpy as np

from skident.linalg import hermite_polynomials
from skident.samples import population_tensors


def test_the_risk_is_the_distance_of_the_tensors():
    """Proposition B.1: the mean squared error of two networks is ``sum_k ||T_k - T'_k||^2 / k!``."""
    order, z = 80, np.linspace(-12.0, 12.0, 100_001)
    networks = [([[1.0, -1.0]], [0.3, -0.5], [1.0, 2.0]), ([[1.0]], [0.8], [1.5])]
    one, other = (population_tensors(*network, order) for network in networks)
    risk = sum(np.sum((one[k] - other[k]) ** 2) / math.factorial(k) for k in range(order + 1))
    f, g = (np.maximum(np.outer(z, W[0]) + b, 0.0) @ a for W, b, a in networks)
    exact = np.trapezoid((f - g) ** 2 * np.exp(-z * z / 2), z) / math.sqrt(2.0 * math.pi)
    # Coefficients at a kink decrease like k^(-5/4): the squares beyond an order leave order^(-3/2).
    assert 0.0 <= exact - risk < 2.0 * order**-1.5


def test_neighboring_hermite_polynomials_are_not_both_small():
    """Lemma 4.3, with its proof's orders k + 1 and k + 2; as printed, with k and k + 1, it is wrong for k = 8."""
    values = np.abs(hermite_polynomials(14, np.linspace(-8.0, 8.0, 20_001)))
    least = [np.maximum(values[k], values[k + 1]).min() for k in range(14)]
    bounds = np.sqrt([float(math.factorial(k)) for k in range(13)]) / 2.0
    assert np.all(least[1:] > bounds) and least[8] < bounds[8]
