from dataclasses import replace

import numpy as np
import pytest

from skident.datasets import make_network
from skident.identification.hessians.layer_assignment import (
    detect_first_layer,
    detect_last_layer,
    last_layer_from_jacobian,
    match_directions,
    weight_names,
)
from skident.identification.hessians.subspace import sample_hessians
from skident.oracle import Oracle


def unit(V):
    return V / np.linalg.norm(V, axis=-1, keepdims=True)


@pytest.fixture
def network():
    """Small shifts and gentle upper layers: the first layer's far Hessians are nearly rank one."""
    return make_network((10, 8, 5, 3), bias_scale=0.05, random_state=1)


@pytest.fixture
def candidates(network, rng):
    """All entangled weights at zero as unit rows in random order with random signs, and the layer of each."""
    V = np.hstack(network.entangled_weights(np.zeros(10))).T
    order = rng.permutation(len(V))
    return unit(V)[order] * rng.choice([-1, 1], len(V))[:, None], np.repeat([0, 1, 2], [8, 5, 3])[order]


def test_match_is_one_to_one_whatever_sign_and_length(rng):
    targets = rng.standard_normal((4, 6))
    order = rng.permutation(7)
    candidates = np.concatenate([-3.0 * targets, rng.standard_normal((3, 6))])[order]
    index, cosine = match_directions(targets, candidates)
    np.testing.assert_array_equal(order[index], np.arange(4))
    np.testing.assert_allclose(cosine, 1)


def test_two_targets_do_not_share_a_candidate():
    index, cosine = match_directions(np.array([[1.0, 0.0], [1.0, 0.1]]), np.array([[1.0, 0.05], [0.0, 1.0]]))
    assert sorted(index) == [0, 1] and cosine.min() < 0.2


def test_algorithm_4(network, candidates):
    vectors, layers = candidates
    oracle = Oracle(network, 10)
    index, similarity = detect_first_layer(oracle, vectors, 8, rng=np.random.RandomState(0))
    assert sorted(index) == sorted(np.flatnonzero(layers == 0))
    assert similarity.shape == (16,) and 0 <= similarity.min() and similarity.max() <= 1 + 1e-12
    assert np.all(np.diff(similarity[index]) <= 0)


def test_algorithm_4_where_all_is_flat():
    """No Hessian, no similarity, and no division by zero."""
    _, similarity = detect_first_layer(Oracle(lambda X: np.zeros(len(X)), 3), np.eye(3), 2, n_hessians=10)
    np.testing.assert_array_equal(similarity, 0)


def test_algorithm_5(network, candidates):
    vectors, _ = candidates
    hessians = sample_hessians(Oracle(network, 10), 60, 1e-2, rng=np.random.RandomState(0))
    index, similarity = detect_last_layer(hessians, vectors, 15)
    truth = unit(network.entangled_weights(np.zeros(10))[-1].T)
    np.testing.assert_allclose(np.abs(np.sum(vectors[index] * truth, axis=1)), 1, atol=1e-12)
    assert set(np.argsort(similarity)[:3]) == set(index)


def test_algorithm_5_with_one_output():
    with pytest.raises(ValueError, match="at least 2 outputs, got 1; use last_layer='jacobian'"):
        detect_last_layer(np.ones((5, 1, 6)), np.eye(3), 2)


@pytest.mark.parametrize("exact", [True, False])
def test_last_layer_is_the_jacobian(network, exact):
    box = network if exact else lambda X: network(X)
    found = last_layer_from_jacobian(Oracle(box, 10))
    truth = network.entangled_weights(np.zeros(10))[-1].T
    np.testing.assert_allclose(unit(found), unit(truth), atol=1e-9)


def test_another_point_where_the_centre_is_flat():
    oracle = Oracle(lambda X: np.tanh(X[:, :1] + 100.0), 2)
    others = np.array([[0.0, 5.0], [-100.0, 0.0]])
    np.testing.assert_allclose(last_layer_from_jacobian(oracle, others), [[1.0, 0.0]], atol=1e-9)


def test_point_on_a_step_where_all_others_are_flat():
    oracle = Oracle(lambda X: np.tanh(1e2 * (X @ [[3.0], [4.0]] - 2.0)), 2)
    others = np.array([[-1.0, 0.0], [1.0, 1.0]])
    found = last_layer_from_jacobian(oracle, others)
    np.testing.assert_allclose(unit(found), [[0.6, 0.8]], atol=1e-5)  # (step of the differences * 500)^2 / 3


def test_jump_is_no_step():
    with pytest.raises(ValueError, match="does not change at the center"):
        last_layer_from_jacobian(Oracle(lambda X: np.sign(X[:, :1] - 0.4), 2), np.array([[-1.0, 0.0], [1.0, 0.0]]))


def test_steps_that_look_like_noise():
    oracle = Oracle(lambda X: X[:, :1], 2)
    oracle.accuracy = replace(oracle.accuracy, std=np.array([1e4]), kind="noise")
    np.testing.assert_allclose(last_layer_from_jacobian(oracle), [[1.0, 0.0]], atol=1e-9)


def test_output_that_never_moves():
    box = lambda X: np.column_stack([X[:, 0], np.ones(len(X))])  # noqa: E731
    with pytest.raises(ValueError, match="output 1 does not change at the center .* Move center"):
        last_layer_from_jacobian(Oracle(box, 2), np.ones((3, 2)))


def test_output_that_is_known_to_be_constant():
    box = lambda X: np.column_stack([X[:, 0], np.ones(len(X))])  # noqa: E731
    oracle = Oracle(box, 2)
    oracle.standardize_outputs(oracle(np.eye(2)))
    np.testing.assert_allclose(last_layer_from_jacobian(oracle), [[2.0, 0.0], [0.0, 0.0]], atol=1e-9)


def test_names_tell_the_layer():
    names = weight_names(np.array([0, 0, -1, -1, 3]))
    assert list(names) == ["layer1_0", "layer1_1", "inner_0", "inner_1", "layer4_0"]
