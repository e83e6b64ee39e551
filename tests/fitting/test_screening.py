"""Units screened by what they explain beside all parameters of a fit."""

import numpy as np

from skident.fitting.errors_of_fit import FitSample
from skident.fitting.screening import Unexplained, screened_planes
from skident.fitting.standard_errors import parameter_jacobian
from skident.network import FeedforwardNetwork


def network_and_rows(seed, n=400, n_outputs=2):
    """A network, and outputs of it with errors of unequal size."""
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((3, 4)), rng.standard_normal((4, n_outputs))]
    network = FeedforwardNetwork(weights, [rng.standard_normal(4), rng.standard_normal(n_outputs)], "tanh")
    X, std = rng.standard_normal((n, 3)), rng.uniform(0.01, 0.1, (n, n_outputs))
    return network, FitSample(X, network(X) + std * rng.standard_normal(std.shape), std)


def test_gains_are_decreases_of_the_sum_of_squares():
    network, rows = network_and_rows(0)
    planes = np.random.RandomState(1).standard_normal((4, 5))
    J = parameter_jacobian(network, rows.inputs) / rows.std.reshape(-1, 1)
    r = ((rows.outputs - network(rows.inputs)) / rows.std).ravel()

    def cost(A):
        return np.sum((r - A @ np.linalg.lstsq(A, r, rcond=None)[0]) ** 2)

    expected = np.zeros(5)
    for k in range(5):
        h = np.tanh(rows.inputs @ planes[:3, k] + planes[3, k])
        for j in range(2):  # a unit of one output alone
            F = np.zeros(rows.std.shape)
            F[:, j] = h / rows.std[:, j]
            expected[k] += cost(J) - cost(np.column_stack([J, F.ravel()]))
    np.testing.assert_allclose(Unexplained(network, rows).gains(planes, np.tanh), expected, rtol=1e-6)


def test_screened_planes_are_those_of_a_missing_unit():
    """Of ten units left out, at least eight are found to a cosine of .9."""
    n_right = 0
    for seed in range(10):
        network, rows = network_and_rows(seed, n=1000, n_outputs=1)
        w = np.append(network.weights[0][:, 0], network.biases[0][0])
        kept = FeedforwardNetwork(
            [network.weights[0][:, 1:], network.weights[1][1:]], [network.biases[0][1:], network.biases[1]], "tanh"
        )
        rng = np.random.RandomState(seed)
        found = screened_planes(
            Unexplained(kept, rows), np.tanh, lambda n, rng=rng: 2.0 * rng.standard_normal((4, n)), rng, 8
        )
        n_right += abs(found[:, 0] @ w) > 0.9 * np.linalg.norm(found[:, 0]) * np.linalg.norm(w)
    assert n_right >= 8
