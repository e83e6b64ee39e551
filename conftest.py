"""For all tests, the examples of docstrings among them: what they draw is the same in every run, and one thread."""

import gc
import random

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (loads scipy's own BLAS, so that the limit below reaches it)
import torch
from threadpoolctl import threadpool_limits


def pytest_collection():
    """No garbage is looked for among the thousands of tests, neither while they are collected nor later."""
    gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Start the global generators at the same place before every test, and before the fixtures made for it."""
    np.random.seed(0)
    torch.default_generator.manual_seed(0)
    random.seed(0)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """One BLAS, OpenMP and torch thread per test process: the processes of pytest-xdist are the parallelism."""
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(limits=1):
        yield
    torch.set_num_threads(torch_threads)
