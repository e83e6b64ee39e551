import numpy as np
import pytest

from skident.identification.second_layer.by_patch_and_extension.known_units import KnownUnits
from skident.identification.second_layer.by_patch_and_extension.saturation_region import Cell, Wall, spread_points
from skident.network import get_activation


@pytest.fixture
def rng():
    return np.random.RandomState(0)


@pytest.fixture
def cell(rng):
    """Nine units of four inputs, the first three of them known; a ray along the hyperplanes of these."""
    W, b = rng.standard_normal((4, 9)), rng.standard_normal(9)
    ray = np.linalg.qr(W[:, :3], mode="complete")[0][:, 3]
    return Cell(W, b, np.sign(ray @ W), "tanh", 3e4), 200.0 * ray


@pytest.fixture
def known(rng):
    nothing = np.zeros((3, 2)), np.zeros(2), np.zeros((2, 1)), np.zeros(1)
    return KnownUnits(get_activation("tanh"), np.arange(3), rng.standard_normal(3), *nothing)


def test_points_lie_in_the_cell_wherever_known_units_are(cell, known, rng):
    cell, base = cell
    X = spread_points(cell, known, np.arange(3, 9), base[None], 100, rng)
    levels = X @ cell.weights + cell.biases
    assert len(X) > 30
    assert (cell.signs[3:] * levels[:, 3:]).min() > 21.0
    moving = np.abs(levels[:, :3] + known.shifts) < 3.0
    assert set(moving.sum(axis=1)) == {0, 1, 2, 3}


def wall_of(cell, known, base, rng):
    """The first unit whose hyperplane bounds the cell, with points there."""
    for unit in range(3, 9):
        others = np.setdiff1d(np.arange(3, 9), [unit])
        wall = Wall(unit, 2.0, 2.0, 8.0)
        X = spread_points(cell, known, others, base[None], 200, rng, wall)
        if len(X) > 20:
            return wall, others, X
    raise AssertionError


def test_a_wall_is_crossed_with_nothing_else_moving(cell, known, rng):
    cell, base = cell
    wall, others, X = wall_of(cell, known, base, rng)
    np.testing.assert_allclose((X @ cell.weights + cell.biases)[:, wall.unit], 2.0, atol=1e-8)
    X, moves = cell.crossings(X, wall, known.units, others)
    assert len(X) > 5
    H = np.array([np.tanh((X + t * moves) @ cell.weights + cell.biases) for t in (-8.0, 0.0, 8.0)])
    rest = np.setdiff1d(np.arange(9), [wall.unit])
    assert np.ptp(H[:, :, rest], axis=0).max() < 1e-12
    np.testing.assert_allclose((moves @ cell.weights)[:, wall.unit], 1.0)
