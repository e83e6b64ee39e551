"""Fixtures for all tests."""

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (loads scipy's own BLAS, so that the limit below reaches it)
import torch
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """One BLAS, OpenMP and torch thread per test process: the processes of pytest-xdist are the parallelism."""
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(limits=1):
        yield
    torch.set_num_threads(torch_threads)


@pytest.fixture
def rng():
    """A generator that starts at the same place in every test."""
    return np.random.default_rng(0)
