import numpy as np

from skident.identification.piecewise.kernel.locate import locate
from skident.identification.piecewise.kernel.output_error import DeepProbe
from skident.oracle import Oracle


def answers_of(f, D, input_range=None):
    return DeepProbe(Oracle(f, D, input_range=input_range), np.array([1e-15]), np.array([1.0]))


def test_a_kink_is_located_where_it_is_alone():
    answers = answers_of(lambda X: np.abs(X[:, 0]) + np.abs(X[:, 1] - 5.0), 2)
    points = np.array([[2e-4, 0.0], [1.0, 1.0], [2e-4, 5.0 - 2e-4], [9e-4, 0.0]])
    directions = np.array([[1.0, 0.0], [1.0, 0.0], [0.6, 0.8], [1.0, 0.0]])
    there = locate(answers, points, directions, 1e-3)
    np.testing.assert_array_equal(there.found, [True, False, False, False])
    assert abs(there.offset[0] + 2e-4) < 1e-12 and np.isnan(there.offset[1:]).all()
    assert len(locate(answers, points[:0], directions[:0], 1e-3).found) == 0
