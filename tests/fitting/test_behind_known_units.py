import numpy as np
import pytest

from skident.fitting.downstream_of_known_units import BehindKnownUnits
from skident.network import FeedforwardNetwork, get_activation


@pytest.fixture
def problem(rng):
    return BehindKnownUnits(
        rng.standard_normal((9, 4)), 3.0 + rng.standard_normal((9, 2)), get_activation("tanh"), lengths_free=True
    )


@pytest.fixture
def theta(problem, rng):
    return problem.start(rng.standard_normal(4), 3, rng) + 0.1 * rng.standard_normal(4 + 4 + 5 * 3 + 4 * 2)


def test_the_jacobian_is_that_of_differences(problem, theta):
    step = 1e-6
    moved = [problem.residual(theta + d) - problem.residual(theta - d) for d in step * np.eye(len(theta))]
    expected = np.array([m.ravel() for m in moved]).T / (2.0 * step)
    np.testing.assert_allclose(problem.jacobian(theta), expected, atol=1e-8)


def test_residuals_are_those_of_the_network(problem, theta):
    shifts, stretch, W, V = problem.parts(theta)
    network = FeedforwardNetwork([np.diag(stretch), W[:-1], V[:-1]], [shifts, W[-1], V[-1]], "tanh")
    np.testing.assert_allclose(problem.residual(theta), network(problem.Z) - problem.Y, atol=1e-13)
    np.testing.assert_array_equal(problem.joined(*problem.parts(theta)), theta)


def test_what_may_not_move_stays(problem, theta):
    held = BehindKnownUnits(problem.Z, problem.Y, problem.activation)
    step, predicted = held.linearise(theta).solve(1e-3)
    assert predicted > 0.0 and np.all(step[4:8] == 0.0) and np.all(step[:4] != 0.0)


def test_places_of_units(problem, theta):
    _, _, W, V = problem.parts(theta)
    np.testing.assert_array_equal(theta[problem.unit_places(theta)], np.hstack([W.T, V[:-1]]))
