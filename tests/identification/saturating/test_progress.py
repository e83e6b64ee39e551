import numpy as np
import pytest
from numpy.polynomial import chebyshev

from skident.identification.saturating.circles import Step
from skident.identification.saturating.step_fraction import StepFraction, as_of_tanh, solve_series
from skident.network import get_activation


def test_progress_goes_from_0_to_1(rng):
    ends = rng.standard_normal((3, 2, 4))  # steps, before and after, outputs
    steps = [Step(0.0, 1.0, before, after, 0.5, 1.0) for before, after in ends]
    index = np.array([2, 0])
    share = rng.uniform(0, 1, (2, 5))

    def ask(U):
        """Answers at (step, share, sideways): on the way between the ends, or beside it."""
        before, after = ends[U[:, 0].astype(int)].transpose(1, 0, 2)
        beside = np.column_stack([np.cross(before[:, :3], (after - before)[:, :3]), np.zeros(len(U))])
        return before + U[:, 1:2] * (after - before) + U[:, 2:] * beside

    progress = StepFraction(ask, steps)
    np.testing.assert_allclose(progress.heights, np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1))
    U = np.stack([np.broadcast_to(index[:, None], share.shape), share, rng.standard_normal(share.shape)], axis=2)
    np.testing.assert_allclose(progress(index, U), share, atol=1e-12)
    U[:, :, 2] = 0.0
    np.testing.assert_allclose(progress.change(index, U), np.abs(share[:, 1:] - share[:, :1]), atol=1e-12)


def test_progress_of_series(rng):
    steps = [Step(0.0, 1.0, *rng.standard_normal((2, 3)), 0.5, 1.0) for _ in range(2)]
    curves, x = rng.standard_normal((2, 5, 3)), np.linspace(-1, 1, 7)
    answers = np.einsum("kd,tdp->tkp", chebyshev.chebvander(x, 4), curves)
    values = iter(answers.reshape(1, -1, 3))
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
