import numpy as np
import pytest

from skident.linalg import column_units


@pytest.mark.parametrize("exponent", [-1000, -500, 0, 500, 1000])
def test_units_of_numbers_whose_squares_overflow(exponent, rng):
    """Powers of two change no digit; a column that does not vary has the unit that is asked for."""
    A = np.column_stack([rng.standard_normal((30, 3)), np.full(30, 0.7), np.zeros(30)])
    mean, unit = column_units(np.ldexp(A, exponent), constant=-1.0)
    np.testing.assert_array_equal(mean, np.ldexp(A.mean(axis=0), exponent))
    np.testing.assert_array_equal(unit[:3], np.ldexp(A.std(axis=0)[:3], exponent))
    assert unit[3:].tolist() == [-1.0, -1.0]
