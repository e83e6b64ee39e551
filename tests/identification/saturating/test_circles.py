import numpy as np
import pytest

from skident.identification.saturating.circles import Circle, grid_without, known_steps, scan


@pytest.fixture
def circle(rng):
    return Circle(np.linalg.qr(rng.standard_normal((6, 2)))[0], 50.0)


def test_points_and_tangents(circle):
    angles = np.linspace(0.0, np.pi, 7)
    U, T = circle.at(angles), circle.tangents(angles)
    np.testing.assert_allclose(np.linalg.norm(U, axis=1), 50.0)
    np.testing.assert_allclose(T, (circle.at(angles + 1e-6) - U) / 5e-5, atol=1e-5)
    np.testing.assert_allclose(circle.larger(3.0).at(angles), 3.0 * U)


def test_crossings_lie_on_the_hyperplanes(circle, rng):
    weights, biases = rng.standard_normal((6, 9)), rng.standard_normal(9)
    angles, slopes = circle.crossings(weights, biases)
    assert np.all((angles > -0.1) & (angles < np.pi + 0.1))
    np.testing.assert_allclose(np.sum(circle.at(angles).T * weights, axis=0) + biases, 0, atol=1e-10)
    np.testing.assert_allclose(slopes, 50.0 * np.linalg.norm(circle.frame.T @ weights, axis=0))


def test_hyperplanes_out_of_reach(circle, rng):
    weights = rng.standard_normal((6, 2))
    angles, _ = circle.crossings(weights, np.array([0.0, 1e4]))
    assert np.isfinite(angles[0]) and np.isnan(angles[1])


@pytest.mark.parametrize("known", [False, True])
def test_steps_are_found_and_known_ones_left_out(circle, rng, known):
    """As many steps as hyperplanes, each at its place; none where all are known and sharp."""
    circle = circle.larger(100.0)
    weights, outgoing = rng.standard_normal((6, 4)), rng.standard_normal((4, 3))
    angles, slopes = circle.crossings(weights, np.zeros(4))
    none = np.empty(0)
    where = (angles, slopes, 0.0 * angles) if known else (none, none, none)
    steps = scan(lambda t: np.tanh(circle.at(t) @ weights) @ outgoing, *grid_without(*where), noisy=False)
    inside = (angles > 0) & (angles < np.pi)
    if known:
        assert steps == []
    else:
        np.testing.assert_allclose([s.center for s in steps], np.sort(angles[inside]), atol=1e-4)
        assert known_steps(steps, angles, 1e-4 + 0.0 * angles).all()
        assert not known_steps(steps, angles + 0.05, 0.0 * angles).any()
