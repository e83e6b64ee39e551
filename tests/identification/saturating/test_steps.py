import numpy as np
import pytest
from numpy.polynomial import chebyshev

from skident.identification.saturating.circles import Circle, Step, grid_without, known_steps, scan
from skident.identification.saturating.step_fraction import StepFraction, as_of_tanh, solve_series
from skident.network import get_activation


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


def test_progress_goes_from_0_to_1(rng):
    ends = rng.standard_normal((3, 2, 4))  # steps, before and after, outputs
    steps = [Step(0.0, 1.0, before, after, 0.5, 1.0) for before, after in ends]
    index = np.array([2, 0])
    share = rng.uniform(0, 1, (2, 5))

    def query(U):
        """Outputs at (step, share, sideways): on the way between the ends, or beside it."""
        before, after = ends[U[:, 0].astype(int)].transpose(1, 0, 2)
        beside = np.column_stack([np.cross(before[:, :3], (after - before)[:, :3]), np.zeros(len(U))])
        return before + U[:, 1:2] * (after - before) + U[:, 2:] * beside

    progress = StepFraction(query, steps)
    np.testing.assert_allclose(progress.heights, np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1))
    U = np.stack([np.broadcast_to(index[:, None], share.shape), share, rng.standard_normal(share.shape)], axis=2)
    np.testing.assert_allclose(progress(index, U), share, atol=1e-12)
    U[:, :, 2] = 0.0
    np.testing.assert_allclose(progress.change(index, U), np.abs(share[:, 1:] - share[:, :1]), atol=1e-12)


def test_progress_of_series(rng):
    steps = [Step(0.0, 1.0, *rng.standard_normal((2, 3)), 0.5, 1.0) for _ in range(2)]
    curves, x = rng.standard_normal((2, 5, 3)), np.linspace(-1, 1, 7)
    outputs = np.einsum("kd,tdp->tkp", chebyshev.chebvander(x, 4), curves)
    values = iter(outputs.reshape(1, -1, 3))
    direct = StepFraction(lambda U: next(values), steps)(np.arange(2), np.zeros((2, 7, 1)))
    series = StepFraction(None, steps).of_series(curves)
    np.testing.assert_allclose(chebyshev.chebval(x, series), direct, atol=1e-12)


def test_series_are_solved(rng):
    coefficients = np.array([[0.5, 0.1], [0.4, -0.8], [0.02, 0.05]])
    x = rng.uniform(-0.9, 0.9, (2, 4))
    values = np.stack([chebyshev.chebval(x[k], coefficients[:, k]) for k in range(2)])
    np.testing.assert_allclose(solve_series(coefficients, values, 1.0), x, atol=1e-12)
    assert np.all(np.abs(solve_series(coefficients, values + 100.0, 1.0)) == 1.0)


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "erf"])
def test_other_sigmoids_rise_as_tanh_does(name):
    g, z = get_activation(name), 1e-4
    low, high = g.limits
    assert (g(as_of_tanh(z, g)) - low) / (high - low) == pytest.approx(0.5 * (1 + np.tanh(z)), abs=1e-9)
