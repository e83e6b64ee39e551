"""Damped steps against least squares with rows for the damping."""

import numpy as np
import pytest

from skident.identification.second_layer.damped_step import damped_step


@pytest.mark.parametrize("damping", [1e-12, 1.0])
def test_against_least_squares(damping, rng):
    A, y = rng.standard_normal((9, 4)), rng.standard_normal(9)
    rows = np.vstack([A, np.sqrt(damping) * np.eye(4)]), np.append(y, np.zeros(4))
    expected = np.linalg.lstsq(*rows, rcond=None)[0]
    R = np.linalg.qr(np.column_stack([A, y]), mode="r")
    for factor in (R, R[:4]):
        np.testing.assert_allclose(damped_step(factor, damping), expected, atol=1e-12)


def test_columns_of_zeros():
    R = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(damped_step(R, 1.0), [1.0, 0.0], atol=1e-15)
    assert damped_step(R, 0.0) is None
