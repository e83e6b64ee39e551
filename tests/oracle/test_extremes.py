import copy
import pickle

import numpy as np
import pytest

from skident.oracle import Extremes, Oracle


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


def test_copies_that_ask_elsewhere_keep_their_own():
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
