"""Polish on outputs of unequal accuracy, rows by leverage, and the rounding errors of single precision."""

import numpy as np
import pytest

from skident.fitting.design import rows_by_leverage, rows_near_and_far
from skident.fitting.robust_polish import robust_polish
from skident.fitting.rounding import rounding_std
from skident.fitting.standard_errors import parameter_jacobian
from skident.network import FeedforwardNetwork


def network_of(widths, rng, activation="relu"):
    shapes = list(zip(widths[:-1], widths[1:], strict=True))
    weights = [rng.standard_normal(s).astype(np.float32).astype(float) / np.float32(np.sqrt(s[0])) for s in shapes]
    biases = [0.3 * rng.standard_normal(s[1]) for s in shapes]
    single = [[np.float32(a).astype(float) for a in part] for part in (weights, biases)]
    return FeedforwardNetwork(*single, activation)


def single_precision(network, X):
    H = X.astype(np.float32)
    for W, b, g in zip(network.weights, network.biases, network.activations, strict=True):
        H = np.asarray(g(H @ W.astype(np.float32) + b.astype(np.float32)), dtype=np.float32)
    return H.astype(float)


def perturbed(network, size, rng):
    parts = [[a * (1.0 + size * rng.standard_normal(a.shape)) for a in p] for p in (network.weights, network.biases)]
    return network.with_parameters(*parts)


def representable(U):
    return U.astype(np.float32).astype(float)


@pytest.mark.parametrize("widths", [(6, 8, 1), (6, 8, 2), (6, 8, 6, 1)])
@pytest.mark.parametrize("seed", range(2))
def test_single_precision_outputs_are_explained_to_their_rounding(widths, seed):
    rng = np.random.RandomState(seed)
    network = network_of(widths, rng)
    start = perturbed(network, 1e-3, rng)
    U = representable(rows_near_and_far(start, 8 * network.n_parameters, rng))
    fit = robust_polish(start, U, single_precision(network, U), rounding_std(start, U) + 1e-12)
    assert 0.3 < fit.scale < 3.0
    fresh = rng.standard_normal((500, widths[0]))
    assert np.abs(fit.network(fresh) - network(fresh)).max() < 1e-6 * network(fresh).std()


def test_outliers_are_named_and_do_not_move_the_fit():
    rng = np.random.RandomState(0)
    network = network_of((4, 6, 1), rng)
    start = perturbed(network, 1e-3, rng)
    U = rows_near_and_far(start, 600, rng)
    Y = network(U) + 1e-4 * rng.standard_normal((600, 1))
    wrong = rng.permutation(600)[:30]
    Y[wrong] += 0.5
    fit = robust_polish(start, U, Y, np.full((600, 1), 1e-4))
    np.testing.assert_array_equal(np.flatnonzero(fit.outliers), np.sort(wrong))
    assert 0.8 < fit.scale < 1.2


def test_rounding_std_is_that_of_single_precision():
    rng = np.random.RandomState(1)
    network = network_of((10, 32, 16, 2), rng)
    U = representable(2.0 ** rng.uniform(-2, 6, (3000, 1)) * rng.standard_normal((3000, 10)))
    z = (single_precision(network, U) - network(U)) / rounding_std(network, U)
    assert 0.5 < z.std() < 2.0
    near, far = (z[mask].std() for mask in (np.linalg.norm(U, axis=1) < 10, np.linalg.norm(U, axis=1) > 50))
    assert 0.6 < far / near < 1.7


@pytest.mark.parametrize("widths", [(5, 8, 1), (5, 6, 4, 2)])
def test_rows_by_leverage_determine_the_least_known_parameters_better(widths):
    rng = np.random.RandomState(2)
    network = network_of(widths, rng, "tanh")
    std, n = lambda U: np.ones((len(U), 1)), 4 * network.n_parameters
    rows = rows_by_leverage(network, n, std, lambda k: rng.standard_normal((k, 5)), rng)
    assert len(rows) == n
    worst = [np.linalg.svd(parameter_jacobian(network, U))[1][-1] for U in (rows, rng.standard_normal((n, 5)))]
    assert worst[0] > 1.5 * worst[1]
