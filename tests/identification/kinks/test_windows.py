import numpy as np

from skident.identification.kinks.answers import Answers
from skident.identification.kinks.windows import locate
from skident.oracle import Oracle


def answers_of(f, D, input_range=None):
    return Answers(Oracle(f, D, input_range=input_range), np.array([1e-15]), np.array([1.0]))


def test_answers_come_in_units_of_their_rounding():
    answers = answers_of(lambda X: 3.0 * X[:, 0], 2)
    X = np.array([[1.0, 0.0], [0.0, 40.0]])
    F, tol = answers.ask(X)
    np.testing.assert_allclose(F[:, 0], [3e15, 0.0])
    assert tol[0] < tol[1] < 40.0
    block, tols = answers.ask_block(X[None])
    np.testing.assert_array_equal(block[0], F)
    np.testing.assert_array_equal(tols[0], tol)


def test_a_kink_is_located_where_it_is_alone():
    answers = answers_of(lambda X: np.abs(X[:, 0]) + np.abs(X[:, 1] - 5.0), 2)
    points = np.array([[2e-4, 0.0], [1.0, 1.0], [2e-4, 5.0 - 2e-4], [9e-4, 0.0]])
    directions = np.array([[1.0, 0.0], [1.0, 0.0], [0.6, 0.8], [1.0, 0.0]])
    there = locate(answers, points, directions, 1e-3)
    np.testing.assert_array_equal(there.found, [True, False, False, False])
    assert abs(there.offset[0] + 2e-4) < 1e-12 and np.isnan(there.offset[1:]).all()
    assert len(locate(answers, points[:0], directions[:0], 1e-3).found) == 0
