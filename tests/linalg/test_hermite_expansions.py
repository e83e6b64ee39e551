"""Hermite polynomials, packed Hermite tensors, and coefficient tensors from samples."""

import numpy as np
import pytest
import torch
from numpy.polynomial import hermite_e

from skident.linalg import (
    hermite_features,
    hermite_polynomials,
    hermite_tensors,
    moment_sums,
    symmetric_power,
)
from tests.references import reference_hermite_tensor, reference_packed

BACKENDS = [np.asarray, torch.asarray]


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("k", range(8))
def test_polynomials(to, k, rng):
    x = rng.normal(size=(3, 4))
    expected = hermite_e.hermeval(x, np.eye(k + 1)[k])
    np.testing.assert_allclose(np.asarray(hermite_polynomials(7, to(x)))[k], expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize(("D", "order"), [(1, 6), (2, 6), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 5), (4, 4)])
def test_features_against_the_definition(to, D, order, rng):
    X = rng.normal(size=(2, D))
    expected = [reference_packed(reference_hermite_tensor(x, order)) if order else [1.0] for x in X]
    features = hermite_features(to(X), order)
    assert type(features) is type(to(X))
    np.testing.assert_allclose(np.asarray(features), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", range(7))
def test_features_along_a_direction_are_the_polynomial(order, rng):
    X, w = rng.normal(size=(20, 5)), np.array([0.5, -0.5, 0.1, 0.7, 0.0])
    w[4] = np.sqrt(1 - w @ w)
    along = hermite_features(X, order) @ symmetric_power(w, order)
    np.testing.assert_allclose(along, hermite_polynomials(order, X @ w)[-1], atol=1e-10)


X = np.ones((5, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hermite_polynomials(-1, X), "degree must be an integer >= 0, got -1"),
        (lambda: hermite_features(X, 1.5), "order must be an integer >= 0, got 1.5"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_tensors_are_those_of_the_definition(p, rng):
    Z, r = rng.standard_normal((7, p)), rng.standard_normal(7)
    tensors = hermite_tensors(moment_sums(Z, r), 7)
    for k in (2, 3, 4):
        full = sum(w * reference_hermite_tensor(z, k) for z, w in zip(Z, r)) / 7
        np.testing.assert_allclose(tensors[k], reference_packed(full), atol=1e-12)


def test_same_as_means_of_features(rng):
    Z, r = rng.standard_normal((200, 6)), rng.standard_normal(200)
    tensors = hermite_tensors(moment_sums(Z, r), 200)
    for k in (2, 3, 4):
        np.testing.assert_allclose(tensors[k], r @ hermite_features(Z, k) / 200, atol=1e-12)


def test_sums_of_blocks_add_up(rng):
    Z, r = rng.standard_normal((30, 3)), rng.standard_normal(30)
    whole, parts = moment_sums(Z, r), [moment_sums(Z[s], r[s]) for s in (slice(0, 11), slice(11, 30))]
    for total, a, b in zip(whole, *parts):
        np.testing.assert_allclose(total, a + b, atol=1e-12)
