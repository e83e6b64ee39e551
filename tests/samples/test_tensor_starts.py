"""Units from tensors that are known exactly."""

import numpy as np
import pytest

from skident.samples.paper.scalars import population_tensors
from skident.samples.tensor_stage import fit_candidates, moment_candidates, units_tensors
from tests.samples.planted import planted


def test_tensors_of_units_are_those_of_the_population():
    _, U, b, a = planted(3, 3, 4, 10)
    ours, theirs = units_tensors(U, b, a), population_tensors(U.T, b, a, 4)
    for k in (2, 3, 4):
        np.testing.assert_allclose(ours[k], theirs[k], atol=1e-14)


@pytest.mark.parametrize(("p", "m"), [(4, 4), (8, 8), (4, 6)])
def test_exact_tensors_give_the_units(p, m):
    _, U, b, a = planted(4, p, m, 10)
    tensors, rng = units_tensors(U, b, a), np.random.RandomState(0)
    W, _, _, loss = fit_candidates(tensors, *moment_candidates(tensors, p, m, 24, rng))
    assert loss[0] < 1e-14
    # A loss of 1e-14 is an error of 1e-7 in the tensors; the decomposition loses some of it.
    np.testing.assert_allclose(np.abs(U @ W[0]).max(axis=1), 1.0, atol=1e-5)
