"""Factorizations that are not begun if they would end after the deadline."""

import time

import numpy as np
import pytest
import scipy.linalg

from skident.budget import OutOfBudgetError, time_limit
from skident.linalg import lapack

MATRIX = np.cov(np.random.default_rng(0).standard_normal((6, 50)))  # symmetric and positive definite
ARGUMENTS = {"lstsq": (np.arange(6.0),), "solve": (np.arange(6.0),)}


@pytest.mark.parametrize("name", lapack.__all__)
def test_results_are_those_of_numpy_or_scipy(name):
    plain = name.removeprefix("scipy_")
    module = np.linalg if name == plain and hasattr(np.linalg, name) else scipy.linalg
    found = getattr(lapack, name)(MATRIX, *ARGUMENTS.get(plain, ()))
    expected = getattr(module, plain)(MATRIX, *ARGUMENTS.get(plain, ()))
    parts = (found, expected) if isinstance(expected, tuple) else ((found,), (expected,))
    for one, other in zip(*parts, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", lapack.__all__)
def test_none_begins_that_would_end_too_late(name):
    large = np.broadcast_to(MATRIX, (10**12, 6, 6))  # a view: nothing is allocated
    with time_limit(time.perf_counter() + 100.0, "100 s are over"):
        getattr(lapack, name)(MATRIX, *ARGUMENTS.get(name.removeprefix("scipy_"), ()))
        with pytest.raises(OutOfBudgetError, match="100 s are over, or would be before"):
            getattr(lapack, name)(large, *ARGUMENTS.get(name.removeprefix("scipy_"), ()))
