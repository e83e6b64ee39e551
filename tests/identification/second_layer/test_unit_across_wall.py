import numpy as np
import pytest

from skident.identification.second_layer.by_patch_and_extension.known_units import KnownUnits
from skident.identification.second_layer.by_patch_and_extension.new_units import TAILS, fit_new_unit, weights_from_tail
from skident.network import get_activation


@pytest.fixture(params=[("tanh", 0.3), ("tanh", 3.0), ("erf", 0.5)])
def case(request, rng):
    """Three known units, a fourth whose row and shift are looked for, and the size of its row."""
    name, size = request.param
    shapes = (3,), (3, 5), (5,), (5, 2), (2,)
    known = KnownUnits(get_activation(name), np.arange(3), *(rng.standard_normal(shape) for shape in shapes))
    return known, size * rng.standard_normal(5), 0.6


def answers(known, row, shift, Z):
    """Those with the unit, saturated at -1 where it is nothing new."""
    moved = known.activation(Z[:, 3] + shift) + 1.0
    return known.activation(known.read(Z) + np.outer(moved, row)) @ known.readout + known.offset


def test_a_row_and_a_shift_from_a_tail_and_answers_across(case, rng):
    known, row, shift = case
    erf = known.activation.name == "erf"
    levels = -TAILS[known.activation.name] - (shift if erf else 1.0)
    Z = np.column_stack([2.0 * rng.standard_normal((12, 3)), np.full(12, levels[0])])
    Y = np.array([answers(known, row, shift, np.column_stack([Z[:, :3], np.full(12, level)])) for level in levels])
    start = weights_from_tail(known, Z, np.swapaxes(Y, 0, 1), levels + shift * erf, -1.0)
    factor = 1.0 if erf else np.exp(2.0 * shift)
    np.testing.assert_allclose(start, factor * row, rtol=1e-3, atol=1e-3 * np.abs(row).max())
    Z = np.column_stack([2.0 * rng.standard_normal((15, 3)), rng.uniform(-3.5, 3.5, 15)])
    found = fit_new_unit(known, 3, Z, answers(known, row, shift, Z), start, -1.0, shift if erf else None)
    assert found.misfit < 1e-7
    np.testing.assert_allclose(found.row, row, atol=1e-6)
    np.testing.assert_allclose(found.shift, shift, atol=1e-6)
