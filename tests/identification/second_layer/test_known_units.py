import numpy as np
import pytest

from skident.identification.second_layer.by_patch_and_extension.known_units import KnownUnits
from skident.network import get_activation


@pytest.fixture
def true(rng):
    """Five known units of seven."""
    W, c, V, v = (rng.standard_normal(size) for size in ((5, 4), 4, (4, 2), 2))
    return KnownUnits(get_activation("tanh"), np.arange(5), 0.3 * rng.standard_normal(5), W, c, V, v)


@pytest.fixture
def answers(true, rng):
    Z = 2.0 * rng.standard_normal((60, 7))
    return Z, np.tanh(np.tanh(Z[:, :5] + true.shifts) @ true.rows + true.biases) @ true.readout + true.offset


def moved(known, rng, size=1e-5):
    """The same with errors."""
    names = "shifts", "rows", "biases", "readout", "offset"
    parts = [getattr(known, name) + size * rng.standard_normal(getattr(known, name).shape) for name in names]
    return KnownUnits(known.activation, known.units, *parts)


def test_all_of_it_is_fitted(true, answers, rng):
    found, stretch = moved(true, rng).refined(*answers)
    Z, Y = answers
    assert found.misfit(Z[:, :5] * stretch, Y) < 1e-8
    np.testing.assert_allclose(stretch, 1.0, atol=1e-7)
    for name in ("shifts", "rows", "biases", "readout", "offset"):
        np.testing.assert_allclose(getattr(found, name), getattr(true, name), atol=1e-7)


def test_lengths_are_fitted_with_it(true, answers, rng):
    Z, Y = answers
    factors = 1.0 + 1e-6 * rng.standard_normal(5)
    found, stretch = true.refined(Z[:, :5] / factors, Y, max_iter=4)
    np.testing.assert_allclose(stretch, factors, rtol=1e-9)
    np.testing.assert_allclose(found.rows, true.rows, atol=1e-8)


def test_lengths_do_not_mend_what_is_no_error_of_theirs(true, answers, rng):
    Z, Y = answers
    Y = Y + 1e-2 * rng.standard_normal(Y.shape)
    _, stretch = true.refined(Z[:, :5], Y, max_iter=10)
    assert np.abs(stretch - 1.0).max() < 3e-6


def test_the_newest_are_fitted_and_the_rest_is_left(true, answers, rng):
    signs = np.array([1.0, -1.0])
    wrong, base = moved(true, rng), true.biases + signs @ true.rows[3:]
    start = KnownUnits(
        true.activation,
        true.units,
        np.append(true.shifts[:3], wrong.shifts[3:]),
        np.vstack([true.rows[:3], wrong.rows[3:]]),
        base - signs @ wrong.rows[3:],
        true.readout,
        true.offset,
    )
    found = start.newest_refined(*answers, 2, signs)
    assert start.misfit(*answers) > 1e-6
    assert found.misfit(*answers) < 1e-9
    np.testing.assert_array_equal(found.rows[:3], true.rows[:3])
    np.testing.assert_allclose(found.rows, true.rows, atol=1e-8)


def test_a_unit_joins_where_the_others_read_the_same(true, answers):
    Z, _ = answers
    Z[:, 5] = 30.0
    row = np.array([0.5, -1.0, 2.0, 0.1])
    np.testing.assert_allclose(true.joined_by(5, 1.0, row, 0.2).read(Z), true.read(Z), atol=1e-12)
