"""Misprints that no other test shows."""

import numpy as np
import pytest
from scipy.integrate import quad


def test_erf_of_example_2_4_has_the_limit_sqrt_2():
    """Soltanolkotabi, Javanmard and Lee (2017): with exp(-t^2 / 2) the factor in front is not that of erf."""
    factor = 2 / np.sqrt(np.pi)
    assert factor * quad(lambda t: np.exp(-(t**2) / 2), 0, np.inf)[0] == pytest.approx(np.sqrt(2))
    assert factor * quad(lambda t: np.exp(-(t**2)), 0, np.inf)[0] == pytest.approx(1.0)
