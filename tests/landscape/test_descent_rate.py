"""The rate of Theorem 2.5, from the Jacobian of the outputs."""

import numpy as np
import pytest

from skident.datasets import make_planted_shallow
from skident.landscape import descent_rate
from skident.network import get_activation


@pytest.mark.parametrize("activation", ["softplus", "tanh", "quadratic"])
def test_the_rate_is_that_of_the_jacobian(activation):
    X, _, W, v = make_planted_shallow(15, 6, 5, activation=activation, coef=True, random_state=0)
    g, step = get_activation(activation), 1e-6

    def outputs(p):
        return g(X @ p[:-5].reshape(W.shape).T) @ p[-5:]

    p = np.concatenate([W.ravel(), v])
    J = np.array([(outputs(p + step * e) - outputs(p - step * e)) / (2 * step) for e in np.eye(len(p))]).T
    s = np.linalg.svd(J, compute_uv=False)
    expected = len(X) / s[0] ** 2, (1.0 - (s[-1] / s[0]) ** 2) ** 2
    np.testing.assert_allclose(descent_rate(W, v, X, activation=activation), expected, rtol=1e-6)


def test_more_samples_than_weights_have_no_rate():
    X, _, W, v = make_planted_shallow(30, 4, 5, activation="tanh", coef=True, random_state=0)
    assert descent_rate(W, v, X, activation="tanh")[1] == 1.0
    with pytest.raises(ValueError, match="shapes must be W"):
        descent_rate(W.T, v, X, activation="tanh")
