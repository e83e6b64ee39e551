"""The exact speeds of Example 1 and of other small data in the plane."""

import numpy as np
import pytest

from skident.datasets import make_alternating_circle
from skident.saddle import fastest_planar_escape

# N: the maximum over networks of depth three with one top unit; 2 sqrt(3) - 3, 1/2, and (sqrt(3) - 1) / 2 for 12.
SPEEDS = {6: 0.464102, 8: 0.5, 10: 0.301265, 12: 0.366025}


def speed_of(weights, X, G):
    W1, W2, W3 = weights
    return -float(G @ (np.maximum(np.maximum(X @ W1, 0) @ W2, 0) @ W3)[:, 0])


@pytest.mark.parametrize("n", SPEEDS)
def test_speeds_on_the_circle(n):
    X, G = make_alternating_circle(n)
    found = fastest_planar_escape(X, G)
    assert found.speed == pytest.approx(SPEEDS[n], abs=1e-6)
    assert found.speed <= found.upper_bound <= found.speed + 1e-6
    assert [np.linalg.norm(W) for W in found.weights] == pytest.approx([1, 1, 1], abs=1e-12)
    assert speed_of(found.weights, X, G) == pytest.approx(found.speed, abs=1e-12)


def test_no_network_is_faster_on_random_data():
    """Random networks, and the best single unit over a fine grid, stay below the bound; the weights reach it."""
    rng = np.random.RandomState(7)
    for _ in range(3):
        X, G = rng.standard_normal((6, 2)), rng.standard_normal(6)
        found = fastest_planar_escape(X, G)
        angles = np.linspace(0, 2 * np.pi, 2000)
        single = np.abs(G @ np.maximum(X @ np.stack([np.cos(angles), np.sin(angles)]), 0)).max()
        assert single <= found.upper_bound + 1e-9
        for _ in range(200):
            weights = [rng.standard_normal(shape) for shape in ((2, 6), (6, 1), (1, 1))]
            weights = [W / np.linalg.norm(W) for W in weights]
            assert abs(speed_of(weights, X, G)) <= found.upper_bound + 1e-9
        assert speed_of(found.weights, X, G) == pytest.approx(found.upper_bound, rel=1e-6)


def test_speeds_scale_with_inputs_and_gradient():
    X, G = make_alternating_circle(4)
    known = fastest_planar_escape(X, G).speed
    assert fastest_planar_escape(1e3 * X, 1e-4 * G).speed == pytest.approx(0.1 * known, rel=1e-8)
    assert fastest_planar_escape(X, -G).speed == pytest.approx(known, rel=1e-8)


def test_without_a_gradient_there_is_no_escape():
    assert fastest_planar_escape(np.ones((3, 2)), np.zeros(3)).speed == 0.0


@pytest.mark.parametrize(
    ("X", "G", "message"),
    [
        (np.ones((3, 3)), np.ones(3), "in the plane"),
        (np.ones((3, 2)), np.ones(4), "in the plane"),
        (np.full((3, 2), np.nan), np.ones(3), "finite"),
        (np.ones((40, 2)), np.ones(40), "take fewer rows"),
    ],
)
def test_what_it_does_not_take(X, G, message):
    with pytest.raises(ValueError, match=message):
        fastest_planar_escape(X, G)
