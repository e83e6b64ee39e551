import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.hessians.subspace import (
    check_visible,
    entangled_subspace,
    independence,
    n_visible,
    sample_hessians,
    subspace_in_units,
)
from skident.identification.query_points import random_sphere
from skident.linalg import svec, svec_outer
from skident.metrics import subspace_distance
from skident.network import Architecture
from skident.oracle import Oracle
from tests.rates import fewest_successes


@pytest.fixture
def network():
    return make_network((6, 5, 3, 2), random_state=0)


@pytest.mark.parametrize("n", [1, 2, 30])
@pytest.mark.parametrize("n_jobs", [None, 1, 2])
def test_hessians_at_points_of_the_sphere(network, n, n_jobs):
    points = random_sphere(n, 6, 0.5, np.random.RandomState(3))
    H = sample_hessians(Oracle(network, 6), n, 0.5, rng=np.random.RandomState(3), n_jobs=n_jobs)
    np.testing.assert_allclose(H, svec(network.hessian(points)), atol=1e-14)


def test_cut_into_chunks(network, monkeypatch):
    whole = sample_hessians(Oracle(network, 6), 9, 0.5, rng=np.random.RandomState(0))
    monkeypatch.setattr("skident.identification.hessians.subspace.rows_at_once", lambda row_bytes: 4)
    done = []
    parts = sample_hessians(Oracle(network, 6), 9, 0.5, rng=np.random.RandomState(0), n_jobs=2, callback=done.append)
    np.testing.assert_array_equal(parts, whole)
    assert done == [5, 9]


def test_number_of_queries(network):
    oracle = Oracle(lambda X: network(X), 6)
    sample_hessians(oracle, 7, 0.1, rng=np.random.RandomState(0))
    assert oracle.n_queries == 7 * (2 * 6**2 + 1)


def test_subspace_of_the_entangled_weights():
    """The smaller the sphere, the closer the span of its Hessians, down to what the shifts leave."""
    distances = np.empty((10, 2))
    for seed in range(10):
        network = make_network((6, 5, 3, 2), bias_scale=0.002, random_state=seed)
        truth = svec_outer(np.hstack(network.entangled_weights(np.zeros(6))).T).T
        for k, radius in enumerate((1e-1, 1e-2)):
            H = sample_hessians(Oracle(network, 6), 60, radius, rng=np.random.RandomState(seed))
            basis, values = entangled_subspace(H, 10)
            np.testing.assert_allclose(basis.T @ basis, np.eye(10), atol=1e-12)
            assert len(values) == 21 and np.all(np.diff(values) <= 0)
            distances[seed, k] = subspace_distance(np.linalg.qr(truth)[0], basis)
    # Some networks have two weights nearly in line: 19 of 20 came closer, and half of them to 7e-4.
    assert np.sum(distances[:, 1] < 0.5 * distances[:, 0]) >= fewest_successes(10, 19, 20)
    assert np.median(distances[:, 1]) < 5e-3


@pytest.mark.parametrize("n_known", [1, 8, 10])
def test_known_weights_are_in_the_subspace(network, n_known):
    V = np.hstack(network.entangled_weights(np.zeros(6))).T
    known = V[:n_known] / np.linalg.norm(V[:n_known], axis=1, keepdims=True)
    H = sample_hessians(Oracle(network, 6), 60, 1e-2, rng=np.random.RandomState(0))
    basis, values = entangled_subspace(H, 10, known)
    assert basis.shape == (21, 10)
    np.testing.assert_allclose(basis.T @ basis, np.eye(10), atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(svec_outer(known) @ basis, axis=1), 1, atol=1e-12)
    # By the Gram matrix: good to the square root of the rounding.
    np.testing.assert_allclose(values, entangled_subspace(H, 10)[1], atol=1e-7 * values[0])


def test_dimension_above_the_free_entries():
    with pytest.raises(ValueError, match=r"7 units .* only 6 free entries .* first_layer='saturation'"):
        entangled_subspace(np.ones((20, 1, 6)), 7)


def test_dimension_above_the_number_of_vectors():
    with pytest.raises(ValueError, match=r"4 Hessians .* cannot span 5 dimensions; raise n_hessians"):
        entangled_subspace(np.ones((2, 2, 6)), 5)


def test_dimension_above_the_rank(rng):
    H = rng.standard_normal((20, 3)) @ rng.standard_normal((3, 6))
    with pytest.raises(ValueError, match=r"layer_widths request 4 units .* span 3 dimensions"):
        entangled_subspace(H, 4)


@pytest.mark.parametrize(("output", "expected"), [("tanh", 10), ("identity", 8)])
def test_a_linear_last_layer_shows_in_no_hessian(output, expected):
    architecture = Architecture((5, 3, 2), "tanh", output)
    assert n_visible(architecture) == expected
    network = make_network((6, 5, 3, 2), output_activation=output, random_state=0)
    H = network.hessian(np.random.RandomState(0).standard_normal((40, 6)) / 10)
    values = entangled_subspace(svec(H), n_visible(architecture))[1]
    assert values[expected - 1] > 1e-6


def test_weights_that_no_hessian_shows():
    with pytest.raises(ValueError, match="activation='relu' has no second derivative"):
        check_visible(Architecture((3, 2), "relu", "identity"), 4)
    with pytest.raises(ValueError, match=r"request m = 11 weights .* at most D \(D \+ 1\) / 2 = 10"):
        check_visible(Architecture((11, 2), "tanh", "identity"), 4)
    check_visible(Architecture((10, 2), "tanh", "identity"), 4)


def test_independence_of_the_weights_that_span_the_subspace(network):
    V = np.hstack(network.entangled_weights(np.zeros(6))).T
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    outer = svec_outer(V)
    basis = np.linalg.qr(outer.T)[0]
    smallest = np.linalg.svd(outer, compute_uv=False).min()
    assert independence(basis, V) == pytest.approx(smallest, rel=1e-9)
    assert independence(basis, V[[0, 0, *range(2, len(V))]]) < 1e-12
    assert independence(basis, V[:0]) == np.inf


def test_subspace_in_the_units_of_the_inputs(rng):
    """Hessians by x are those by u over the product of the units."""
    H, scale = rng.standard_normal((3, 4, 4)), np.array([0.5, 1.0, 2.0, 10.0])
    H += np.swapaxes(H, 1, 2)
    basis = np.linalg.qr(svec(H).T)[0]
    expected = np.linalg.qr(svec(H / np.outer(scale, scale)).T)[0]
    found = subspace_in_units(basis, scale)
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-12)
