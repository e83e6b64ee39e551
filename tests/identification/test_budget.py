"""Memory and time of a fit, where both are scarce."""

import time
import tracemalloc

import numpy as np
import pytest

import skident
from skident import NetworkIdentifier
from skident.budget import check_deadline, time_limit
from skident.datasets import make_network
from skident.fitting.least_squares import NetworkLeastSquares
from skident.identification.piecewise.kernel.gradient import normals_at
from skident.identification.piecewise.kernel.output_error import DeepProbe
from skident.network import get_activation
from skident.network.calculus import flatten_parameters
from skident.oracle import Oracle

SCARCE = {"max_memory": "1.1MB"}


def relu_network(widths, seed):
    return make_network(widths, activation="relu", output_activation="identity", bias_scale=0.5, random_state=seed)


def test_a_small_network_is_identified_in_little_memory(rng):
    network, X = relu_network((4, 5, 2), 0), rng.standard_normal((100, 4))
    with skident.config_context(**SCARCE):
        scarce = NetworkIdentifier(lambda X: network(X), activation="relu", random_state=0).fit(X)
    plenty = NetworkIdentifier(lambda X: network(X), activation="relu", random_state=0).fit(X)
    assert scarce.report_.exact and plenty.report_.exact
    assert scarce.network_.layer_widths == (5, 2)


def test_what_does_not_fit_is_refused_with_the_bytes_it_needs(rng):
    network = make_network((30, 20, 1), activation="tanh", output_activation="identity", random_state=0)
    X = rng.standard_normal((100, 30))
    identifier = NetworkIdentifier(lambda X: network(X), layer_widths=(20, 1), activation="tanh", random_state=0)
    refused = pytest.raises(ValueError, match=r"max_memory=1.1MB does not allow .* bytes are needed")
    with skident.config_context(**SCARCE), refused:
        identifier.fit(X)
    assert not hasattr(identifier, "network_")


def test_normals_in_chunks_are_those_at_once(rng):
    """Of kinks on the first layer's hyperplanes; each gradient takes D + 2 rows."""
    D, n = 40, 30
    network = relu_network((D, 8, 3), 0)
    W, b = network.weights[0], network.biases[0]
    units = np.arange(n) % 8
    points = rng.standard_normal((n, D))
    normals = (W / np.linalg.norm(W, axis=0)).T[units]
    points -= ((np.sum(points * W.T[units], axis=1) + b[units]) / np.linalg.norm(W, axis=0)[units])[:, None] * normals
    found = []
    for limit in ("1.1MB", "1GB"):
        answers = DeepProbe(Oracle(lambda X: network(X), D), np.full(3, 1e-15), np.ones(3))
        with skident.config_context(max_memory=limit):
            tracemalloc.start()
            kinks, kept = normals_at(answers, points, normals, np.full(n, 1e-2), np.random.RandomState(0))
            found.append((kinks, kept, answers.oracle.n_queries, tracemalloc.get_traced_memory()[1]))
            tracemalloc.stop()
    (few, kept, n_queries, little), (many, kept_at_once, n_queries_at_once, much) = found
    assert np.array_equal(kept, kept_at_once) and n_queries == n_queries_at_once and len(kept) > n / 2
    np.testing.assert_allclose(np.abs(np.sum(few.normals * many.normals, axis=1)), 1.0, atol=1e-12)
    assert little < 0.2 * much


def test_normal_equations_in_tiles(rng):
    network = make_network((12, 30, 2), activation="tanh", output_activation="identity", random_state=0)
    U = rng.standard_normal((60, 12))
    args = [W.shape for W in network.weights], [get_activation("tanh"), get_activation("identity")], U, network(U)
    whole, tiled = (NetworkLeastSquares(*args, chunk_bytes=size) for size in (2**27, 2**16))
    theta = flatten_parameters(network.weights, network.biases) + 0.1
    for one, other in zip(whole.normal_equations(theta), tiled.normal_equations(theta), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_a_matrix_that_does_not_fit_is_not_formed(rng):
    network = make_network((12, 30, 2), activation="tanh", output_activation="identity", random_state=0)
    U = rng.standard_normal((60, 12))
    problem = NetworkLeastSquares([W.shape for W in network.weights], [get_activation("tanh")] * 2, U, network(U))
    theta = flatten_parameters(network.weights, network.biases)
    assert type(problem.linearize(theta)).__name__ == "DenseNormalEquations"
    with skident.config_context(max_memory="2MB"):
        assert type(problem.linearize(theta)).__name__ == "KrylovNormalEquations"


def test_a_slow_black_box_is_given_fewer_rows(own_seconds):
    rows = []

    def slow(X):
        rows.append(len(X))
        time.sleep(1e-3 * len(X))
        return X[:, :1]

    oracle = Oracle(slow, 2, budget=skident.oracle.Budget(max_seconds=100.0))
    oracle(np.zeros((100, 2)))
    oracle(np.zeros((20_000, 2)))
    assert max(rows) <= 5_100 and sum(rows) == 20_100
    assert skident.oracle.Oracle(lambda X: X, 2)(np.zeros((70_000, 2))).shape == (70_000, 2)


@pytest.mark.parametrize("seed", range(3))
def test_a_fit_ends_in_time(seed, own_seconds):
    """Two hidden ReLU layers that take far longer."""
    network = relu_network((20, 40, 40, 2), seed)
    began = time.perf_counter()
    with pytest.raises(ValueError, match="max_seconds=1 are over"):
        NetworkIdentifier(lambda X: network(X), activation="relu", max_seconds=1.0, random_state=0).fit(
            np.random.default_rng(seed).standard_normal((100, 20))
        )
    assert time.perf_counter() - began < 1.6


def test_an_outer_limit_returns(rng, own_seconds):
    """That of `max_seconds` ends with the fit."""
    network, X = relu_network((4, 5, 2), 0), rng.standard_normal((100, 4))
    with time_limit(time.perf_counter() + 1e6, "none"):
        identifier = NetworkIdentifier(lambda X: network(X), activation="relu", max_seconds=100.0, random_state=0)
        assert identifier.fit(X).report_.exact
        check_deadline(1e14)
