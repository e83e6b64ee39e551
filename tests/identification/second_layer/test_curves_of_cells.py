import numpy as np
import pytest

from skident.identification.second_layer.by_patch_and_extension.powers_at_centers import CenterPowers
from skident.identification.second_layer.kernel.curves import taylor_term
from skident.identification.second_layer.kernel.curves_of_regions import fit_curves_of_regions


@pytest.mark.parametrize("order", [3, 4])
def test_short_units_with_small_shifts(order, rng):
    k, n, units = 5, 30, 12
    H = np.tanh(np.concatenate([np.arctanh(rng.uniform(-0.45, 0.45, (n, k)))] * 2))
    rows, lengths = rng.standard_normal((k, units)), np.geomspace(0.2, 1.0, units)
    rows /= np.linalg.norm(rows, axis=0)
    shifts, readout = rng.uniform(-0.6, 0.6, (2, units)), rng.standard_normal(units)
    terms = taylor_term("tanh", order)(H @ rows * lengths + np.repeat(shifts, n, axis=0))[0]
    coefficients = terms * lengths**order * readout
    coefficients *= 1.0 + 1e-5 * rng.standard_normal(coefficients.shape)
    found = CenterPowers(rows, np.zeros((2, k)), np.ones(k), H, coefficients, order, 0.0)
    told, told_shifts, misfits = fit_curves_of_regions(found)
    assert misfits.max() < 1e-4
    np.testing.assert_allclose(np.linalg.norm(told, axis=0), lengths, rtol=1e-2)
    np.testing.assert_allclose(told_shifts, shifts, atol=1e-2)
