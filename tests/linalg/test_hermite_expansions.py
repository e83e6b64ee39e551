"""Hermite polynomials, packed Hermite tensors, and coefficient tensors from samples."""

import numpy as np
import pytest
import torch
from numpy.polynomial import hermite_e

from skident.linalg import (
    hermite_contraction,
    hermite_features,
    hermite_polynomial,
    hermite_polynomials,
    hermite_tensors,
    moment_sums,
    pack_symmetric,
    symmetric_power,
)
from tests.references import reference_hermite_tensor

BACKENDS = [np.asarray, torch.asarray]


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("k", range(8))
def test_polynomials(to, k, rng):
    x = rng.normal(size=(3, 4))
    expected = hermite_e.hermeval(x, np.eye(k + 1)[k])
    np.testing.assert_allclose(np.asarray(hermite_polynomial(k, to(x))), expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(np.asarray(hermite_polynomials(7, to(x)))[k], expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize(("D", "order"), [(1, 6), (2, 6), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 5), (4, 4)])
def test_features_against_the_definition(to, D, order, rng):
    X = rng.normal(size=(2, D))
    expected = [pack_symmetric(reference_hermite_tensor(x, order)) if order else [1.0] for x in X]
    features = hermite_features(to(X), order)
    assert type(features) is type(to(X))
    np.testing.assert_allclose(np.asarray(features), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", range(7))
def test_features_along_a_direction_are_the_polynomial(order, rng):
    X, w = rng.normal(size=(20, 5)), np.array([0.5, -0.5, 0.1, 0.7, 0.0])
    w[4] = np.sqrt(1 - w @ w)
    along = hermite_features(X, order) @ symmetric_power(w, order)
    np.testing.assert_allclose(along, hermite_polynomial(order, X @ w), atol=1e-10)


# -- contractions ------------------------------------------------------------------------------------------------------


def contracted(X, y, order, sets, weights):
    """The same by full tensors."""
    T = sum(wn * yn * reference_hermite_tensor(x, order) for x, yn, wn in zip(X, y, weights)) / weights.sum()
    out = []
    for vectors in sets:
        M = T
        for v in vectors:
            M = M @ v
        out.append(M)
    return np.array(out)


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("order", [2, 3, 4, 5, 6])
def test_contractions_against_full_tensors(to, order, rng):
    D = 3 if order < 6 else 2
    X, y, weights, sets = rng.normal(size=(7, D)), rng.normal(size=7), rng.uniform(size=7), rng.normal(size=(3, 4, D))
    sets = sets[:, : order - 2]
    expected = contracted(X, y, order, sets, weights)
    found = hermite_contraction(to(X), to(y), order, to(sets), sample_weight=to(weights), batch_size=3)
    assert type(found) is type(to(X))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-10, atol=1e-10)
    one = hermite_contraction(to(X), to(y), order, to(sets[1]), sample_weight=to(weights))
    np.testing.assert_allclose(np.asarray(one), expected[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
def test_order_four_with_matrices(to, rng):
    X, y, V = rng.normal(size=(9, 3)), rng.normal(size=9), rng.normal(size=(2, 3, 3))
    T = sum(yn * reference_hermite_tensor(x, 4) for x, yn in zip(X, y)) / 9
    found = np.asarray(hermite_contraction(to(X), to(y), 4, matrices=to(V), batch_size=4))
    np.testing.assert_allclose(found, np.einsum("ijkl,akl->aij", T, V), rtol=1e-11, atol=1e-11)
    one = hermite_contraction(to(X), to(y), 4, matrices=to(V[0]), sample_weight=to(np.full(9, 0.2)))
    np.testing.assert_allclose(np.asarray(one), found[0], rtol=1e-11, atol=1e-11)


def test_rows_of_weight_zero_do_not_count(rng):
    X, y, v = rng.normal(size=(8, 3)), rng.normal(size=8), rng.normal(size=(1, 3))
    weights = np.repeat([2.0, 0.0], 4)
    np.testing.assert_allclose(
        hermite_contraction(X, y, 3, v, sample_weight=weights), hermite_contraction(X[:4], y[:4], 3, v), rtol=1e-12
    )


X, Y = np.ones((5, 3)), np.ones(5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hermite_polynomial(-1, X), "degree must be an integer >= 0, got -1"),
        (lambda: hermite_features(X, 1.5), "order must be an integer >= 0, got 1.5"),
        (lambda: hermite_contraction(X, Y, 1, np.ones((0, 3))), "order must be an integer >= 2, got 1"),
        (lambda: hermite_contraction(X, Y[:4], 3, np.ones((1, 3))), r"y \(n,\), got shapes \(5, 3\) and \(4,\)"),
        (lambda: hermite_contraction(X, Y, 3), "give either vectors or matrices"),
        (lambda: hermite_contraction(X, Y, 4, np.ones((1, 3))), r"shape \(2, 3\) or \(J, 2, 3\), got \(1, 3\)"),
        (lambda: hermite_contraction(X, Y, 3, matrices=np.ones((3, 3))), "only the tensor of order 4"),
        (lambda: hermite_contraction(X, Y, 2, np.ones((0, 3)), sample_weight=np.ones(4)), r"sample_weight must be \(5"),
        (lambda: hermite_contraction(X, Y, 2, np.ones((0, 3)), sample_weight=np.zeros(5)), "positive sum, got 0"),
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
        np.testing.assert_allclose(tensors[k], pack_symmetric(full), atol=1e-12)


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
