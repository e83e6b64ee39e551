import numpy as np
import pytest
import torch

from skident.linalg import (
    contract_symmetric,
    flatten_symmetric,
    n_symmetric_entries,
    svec,
    svec_outer,
    symmetric_power,
)
from tests.references import reference_outer_power, reference_packed

BACKENDS = [np.asarray, torch.asarray]
SIZES = [(1, 4), (2, 6), (3, 1), (3, 3), (4, 5), (5, 4)]


def symmetric_tensor(rng, D, order):
    return sum(rng.normal() * reference_outer_power(w, order) for w in rng.normal(size=(7, D)))


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize(("D", "order"), SIZES)
def test_powers_are_packed_outer_powers(to, D, order, rng):
    X = rng.normal(size=(2, 3, D))
    expected = [[reference_packed(reference_outer_power(x, order)) for x in row] for row in X]
    powers = symmetric_power(to(X), order)
    assert type(powers) is type(to(X))
    np.testing.assert_allclose(np.asarray(powers), expected, rtol=1e-13)


def test_products_of_powers(rng):
    U, V = rng.normal(size=(2, 5, 4))
    for order in range(7):
        G = symmetric_power(U, order) @ symmetric_power(V, order).T
        # Sums of 84 terms of one size cancel, so rounding counts from the norms' product.
        scale = np.linalg.norm(U, axis=1)[:, None] ** order * np.linalg.norm(V, axis=1) ** order
        np.testing.assert_array_less(np.abs(G - (U @ V.T) ** order), 1e-13 * scale)


def test_order_two_is_svec(rng):
    A = rng.normal(size=(5, 5))
    np.testing.assert_array_equal(reference_packed(A + A.T), svec(A + A.T))
    np.testing.assert_array_equal(symmetric_power(A, 2), svec_outer(A))


@pytest.mark.parametrize("to", BACKENDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("orders", [(1, 1), (2, 2), (1, 3), (0, 3), (3, 0), (2, 2, 1), (2, 2, 2), (1, 2, 0), (1, 1, 1)])
def test_flattenings_are_outer_products_of_powers(to, orders, rng):
    D, W, c = 3, rng.normal(size=(4, 3)), rng.normal(size=4)
    packed = c @ symmetric_power(W, sum(orders))
    powers = [symmetric_power(W, k) for k in orders]
    expected = np.einsum("n,na,nb,nc->abc", c, *powers, *[np.ones((4, 1))] * (3 - len(orders)))
    flat = flatten_symmetric(to(packed), D, orders)
    assert type(flat) is type(to(packed)) and flat.shape == tuple(n_symmetric_entries(D, k) for k in orders)
    np.testing.assert_allclose(np.asarray(flat), expected.reshape(flat.shape), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("order", "by_order"), [(3, 1), (4, 2), (6, 2), (3, 3), (4, 0)])
def test_contractions_against_full_tensors(order, by_order, rng):
    D, T, S = 3, symmetric_tensor(rng, 3, order), symmetric_tensor(rng, 3, by_order) if by_order else np.array(2.0)
    expected = np.tensordot(T, S, by_order)
    by = reference_packed(S)
    found = contract_symmetric(reference_packed(T), D, order, np.stack([by, 2 * by]), by_order)
    np.testing.assert_allclose(found[0], reference_packed(expected), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found[1], 2 * found[0], rtol=1e-14)


def test_whole_numbers_become_floats_and_single_precision_stays(rng):
    np.testing.assert_allclose(symmetric_power(np.array([[1, 2]]), 2), [[1.0, 8.0**0.5, 4.0]])
    assert symmetric_power(np.ones((2, 3), dtype=np.float32), 3).dtype == np.float32
    assert flatten_symmetric(np.ones(10, dtype=np.float32), 3, (2, 1)).dtype == np.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: symmetric_power(np.ones((2, 3)), -1), "order must be an integer >= 0, got -1"),
        (lambda: symmetric_power(np.ones((2, 3)), 2.0), "order must be an integer"),
        (lambda: flatten_symmetric(np.ones(3), 2, (2,)), "two or three"),
        (lambda: flatten_symmetric(np.ones(3), 2, (2, 1)), "has 4 entries"),
        (lambda: flatten_symmetric(np.ones(3), 2, (3, -1)), "every part's order must be an integer >= 0"),
        (lambda: contract_symmetric(np.ones(3), 2, 2, np.ones(4), 3), "order 2 cannot be contracted with one of order"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
