import numpy as np
import pytest

from skident.datasets import make_network
from skident.oracle import BlackBoxError, Oracle
from skident.oracle.clipping import detect_clipped_inputs, detect_clipped_outputs

D = 4
LOW, HIGH = np.array([-3.0, -5.0, -0.5, -40.0]), np.array([2.0, 5.0, 0.7, 60.0])
NET = make_network((D, 6, 2), shift_scale=0.3, random_state=0)


def test_borders_are_found():
    """To the last bit of what the answers show: bisection of 1e4 in 40 steps leaves 1e-8."""
    center, scale = np.array([0.0, 1.0, 0.0, -2.0]), np.array([0.5, 2.0, 1.0, 10.0])
    oracle = Oracle(lambda X: NET(np.clip(X, LOW, HIGH) / 10.0), D, center=center, scale=scale)
    low, high = detect_clipped_inputs(oracle)
    np.testing.assert_allclose(low, LOW, atol=1e-6)
    np.testing.assert_allclose(high, HIGH, atol=1e-6)
    assert oracle.n_queries < 46 * 3 * 2 * D


def test_clipping_of_one_side_or_one_input():
    low, high = detect_clipped_inputs(Oracle(lambda X: NET(np.minimum(X, [1.0, np.inf, np.inf, np.inf])), D))
    assert np.isinf(low).all() and high[0] == pytest.approx(1.0) and np.isinf(high[1:]).all()


SMOOTH = {
    "tanh": NET,
    "steep tanh": lambda X: NET(100.0 * X),
    "sparse": lambda X: np.tanh(X) + np.tanh(X[:, ::-1]),
    "linear": lambda X: X,
    "softplus": lambda X: np.logaddexp(0.0, X).sum(axis=1),
    "steps": lambda X: np.floor(np.clip(X, -3, 3)).sum(axis=1),
    "an input that is not read": lambda X: np.tanh(X[:, :2]),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_units_at_rest_are_no_clipping(name):
    assert np.isinf(detect_clipped_inputs(Oracle(SMOOTH[name], D))).all()


def test_a_box_that_refuses():
    def box(X):
        if np.abs(X).max() > 100:
            raise OverflowError("too far")
        return X

    with pytest.raises(BlackBoxError, match="too far"):
        detect_clipped_inputs(Oracle(box, D))


@pytest.mark.parametrize("sizes", [(D, 6, 2), (D, 5, 3, 2), (D, 8, 1)])
@pytest.mark.parametrize("output", ["identity", "tanh"])
def test_clipped_answers_are_not_clipped_inputs(sizes, output):
    network = make_network(sizes, shift_scale=0.5, output_activation=output, random_state=0)
    spread = network(np.random.RandomState(0).standard_normal((200, D))).std(axis=0)
    clipped = Oracle(lambda X: np.clip(network(X), -0.7 * spread, 0.6 * spread), D)
    assert detect_clipped_outputs(clipped).all() and np.isinf(detect_clipped_inputs(clipped)).all()
    for box in (network, lambda X: network(np.clip(X, LOW, HIGH))):
        assert not detect_clipped_outputs(Oracle(box, D)).any()


@pytest.mark.parametrize("name", SMOOTH)
def test_answers_at_rest_are_no_clipping(name):
    assert not detect_clipped_outputs(Oracle(SMOOTH[name], D)).any()
