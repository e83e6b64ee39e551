"""Factorizations that are not begun if they would end after the deadline."""

import time

import numpy as np
import pytest

from skident.budget import OutOfBudgetError, time_limit
from skident.linalg import lapack

MATRIX = np.cov(np.random.default_rng(0).standard_normal((6, 50)))  # symmetric and positive definite
ARGUMENTS = {"lstsq": (np.arange(6.0),), "solve": (np.arange(6.0),)}


@pytest.mark.parametrize("name", lapack.__all__)
def test_results_are_those_of_numpy(name):
    found, expected = (getattr(module, name)(MATRIX, *ARGUMENTS.get(name, ())) for module in (lapack, np.linalg))
    parts = (found, expected) if isinstance(expected, tuple) else ((found,), (expected,))
    for one, other in zip(*parts, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", lapack.__all__)
def test_none_begins_that_would_end_too_late(name):
    large = np.broadcast_to(MATRIX, (10**12, 6, 6))  # a view: nothing is allocated
    with time_limit(time.perf_counter() + 100.0, "3 s are over"):
        getattr(lapack, name)(MATRIX, *ARGUMENTS.get(name, ()))
        with pytest.raises(OutOfBudgetError, match="3 s are over, or would be before"):
            getattr(lapack, name)(large, *ARGUMENTS.get(name, ()))
