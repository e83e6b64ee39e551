"""Streamed Hermite moments against the tensors entry by entry."""

import numpy as np
import pytest

from skident.linalg import hermite_features, hermite_tensors, moment_sums, pack_symmetric
from tests.references import reference_hermite_tensor


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
