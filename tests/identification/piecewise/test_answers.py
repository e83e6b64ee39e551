import numpy as np

from skident.identification.piecewise.kernel.output_error import DeepProbe
from skident.oracle import Oracle


def test_answers_come_in_units_of_their_rounding():
    answers = DeepProbe(Oracle(lambda X: 3.0 * X[:, 0], 2), np.array([1e-15]), np.array([1.0]))
    X = np.array([[1.0, 0.0], [0.0, 40.0]])
    F, tol = answers.query(X)
    np.testing.assert_allclose(F[:, 0], [3e15, 0.0])
    assert tol[0] < tol[1] < 40.0
    block, tols = answers.query_block(X[None])
    np.testing.assert_array_equal(block[0], F)
    np.testing.assert_array_equal(tols[0], tol)
