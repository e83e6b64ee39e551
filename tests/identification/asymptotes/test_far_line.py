import numpy as np
import pytest

from skident.identification.asymptotes.corners import FarLine, far_gradients, rounding_far_out
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, Oracle

D, RADIUS = 6, 1e6


def oracle_of(box):
    return Oracle(box, D)


@pytest.fixture
def network(rng):
    weights = [rng.standard_normal((D, 7)), rng.standard_normal((7, 2))]
    return FeedforwardNetwork(weights, [rng.standard_normal(7), np.zeros(2)], "silu")


def test_rounding_covers_what_double_precision_leaves(network, rng):
    rounding = rounding_far_out(oracle_of(lambda X: network(X)), RADIUS, rng)
    assert rounding.shape == (2,) and np.all((rounding > 1e-17) & (rounding < 1e-13))


@pytest.mark.parametrize(
    "box",
    [
        lambda X: np.tanh(X[:, :2]) + 1e-3 * X[:, :2] ** 2,
        lambda X: (X[:, :2] + np.maximum(X[:, 2:4], 0.0)).astype(np.float32),
    ],
    ids=["square", "single precision"],
)
def test_outputs_that_are_not_linear_to_rounding(box, rng):
    with pytest.raises(NotIdentified, match="the outputs deviate from a line by .* do not grow linearly, or are"):
        rounding_far_out(oracle_of(box), RADIUS, rng)


def test_gradients_between_units(network, rng):
    origin, direction = np.linalg.qr(rng.standard_normal((D, 2)))[0].T
    oracle = oracle_of(lambda X: network(X))
    line = FarLine(oracle, RADIUS * origin, direction, rounding_far_out(oracle, RADIUS, rng))
    t = RADIUS * rng.uniform(-3.0, 3.0, 20)
    found = far_gradients(line, t, np.full(20, 0.3 * RADIUS), rng)
    np.testing.assert_allclose(found, network.jacobian(line.at(t)), atol=1e-9)


def test_no_gradient_within_a_bend(rng):
    oracle = oracle_of(lambda X: np.abs(X[:, :1]))
    line = FarLine(oracle, np.zeros(D), np.eye(D)[1], np.full(1, 1e-16))
    with pytest.raises(NotIdentified, match="they cross units"):
        far_gradients(line, np.array([RADIUS]), np.array([1.0]), rng)
