import copy
import pickle

import numpy as np
import pytest

from skident.datasets import make_network
from skident.oracle import BlackBoxError, Extremes, Oracle
from skident.oracle.clipping import detect_clipped_inputs

# -- clipping ----------------------------------------------------------------------------------------------------------


D = 4
LOW, HIGH = np.array([-3.0, -5.0, -0.5, -40.0]), np.array([2.0, 5.0, 0.7, 60.0])
NET = make_network((D, 6, 2), bias_scale=0.3, random_state=0)


def test_borders_are_found():
    """To the last bit of what the outputs show: bisection of 1e4 in 40 steps leaves 1e-8."""
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
def test_clipped_outputs_are_not_clipped_inputs(sizes, output):
    network = make_network(sizes, bias_scale=0.5, output_activation=output, random_state=0)
    spread = network(np.random.RandomState(0).standard_normal((200, D))).std(axis=0)
    clipped = Oracle(lambda X: np.clip(network(X), -0.7 * spread, 0.6 * spread), D)
    assert np.isinf(detect_clipped_inputs(clipped)).all()


# -- extremes ----------------------------------------------------------------------------------------------------------


def _seen(oracle):
    return [(plateau.output, plateau.side, plateau.value) for plateau in oracle.extremes.plateaus()]


def test_extremes_of_all_outputs_over_many_batches():
    oracle, rng = Oracle(lambda X: np.column_stack([np.clip(X[:, 0], -1.0, 2.0), X[:, 1]]), 2), np.random.RandomState(0)
    for spread in (0.1, 1.0, 10.0, 1.0):
        oracle(spread * rng.standard_normal((50, 2)))
    assert _seen(oracle) == [(0, -1, -1.0), (0, 1, 2.0)]
    assert all(len(np.unique(p.inputs, axis=0)) == len(p.inputs) for p in oracle.extremes.plateaus())
    assert [p.value for p in pickle.loads(pickle.dumps(oracle.extremes)).plateaus()] == [-1.0, 2.0]


def test_inputs_that_repeat_are_one():
    """An output may repeat since its input does."""
    oracle = Oracle(lambda X: X.sum(axis=1), 3)
    for _ in range(5):
        oracle(np.tile(np.eye(3)[:2] * [[1.0], [2.0]], (20, 1)))
    assert _seen(oracle) == []


def test_a_larger_value_takes_the_place_of_a_plateau():
    extremes, X = Extremes(), np.arange(10.0)[:, None]
    extremes.update(X, np.minimum(X, 3.0))
    assert len(extremes.plateaus()) == 1
    extremes.update(X, X)
    assert extremes.plateaus() == []


def test_many_outputs_and_inputs_keep_few_rows():
    extremes = Extremes()
    extremes.update(np.random.RandomState(0).standard_normal((100, 1000)), np.zeros((100, 600)))
    assert len(extremes.plateaus()) == 1200 and {len(p.inputs) for p in extremes.plateaus()} == {3}


def test_outputs_on_bounds_are_lost():
    oracle = Oracle(lambda X: np.clip(X, -1.0, 1.0), 2)
    oracle.output_bounds = np.array([-1.0, -np.inf]), np.array([1.0, 1.0])
    assert oracle.restricted
    Y, error = oracle.query([[0.0, 0.0], [2.0, 0.0], [0.0, -3.0], [0.5, 3.0], [-1.0, 0.0]])
    np.testing.assert_array_equal(error, [0.0, np.inf, 0.0, np.inf, np.inf])
    U, _ = oracle.query_precise(lambda n, factor: np.random.RandomState(0).standard_normal((n, 2)), 100)
    assert np.abs(U[:, 0]).max() < 1.0 and U[:, 1].max() < 1.0


def test_copies_that_query_elsewhere_keep_their_own():
    oracle = Oracle(lambda X: np.minimum(X[:, 0], 0.0), 1)
    pieces = [np.full((4, 1), 1.0) + np.arange(4.0)[:, None]] * 2
    assert list(oracle.query_in_parallel(lambda other, U: float(other(U).max()), pieces, 1)) == [0.0, 0.0]
    assert _seen(oracle) == [] and oracle.n_queries == 8
    assert copy.copy(oracle).extremes is oracle.extremes


@pytest.mark.parametrize("response", ["predict_proba"])
def test_probabilities_have_no_plateaus(response):
    oracle = Oracle(lambda X: np.tile([0.0, 1.0], (len(X), 1)), 2, response=response)
    oracle(np.eye(2))
    assert _seen(oracle) == []
