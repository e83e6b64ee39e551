"""Threads of the linear algebra: limited once, given back, lent to large products."""

import threading

import numpy as np
import pytest
import threadpoolctl

from skident.optim import all_threads, gram_work, in_order, one_thread
from skident.optim.threads import LARGE_PRODUCT


def counts():
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]


@pytest.fixture
def two_threads():
    with threadpoolctl.threadpool_limits(limits=2):
        yield counts()


def test_threads_are_limited_once_and_given_back(two_threads):
    with one_thread():
        assert set(counts()) == {1}
        with one_thread():
            assert set(counts()) == {1}
        assert set(counts()) == {1}
    assert counts() == two_threads


def test_large_work_keeps_its_threads(two_threads):
    with one_thread(LARGE_PRODUCT):
        assert counts() == two_threads


def test_large_products_get_the_threads_there_were(two_threads):
    with all_threads(LARGE_PRODUCT):
        assert counts() == two_threads
    with one_thread():
        with all_threads(0.5 * LARGE_PRODUCT):
            assert set(counts()) == {1}
        with all_threads(LARGE_PRODUCT):
            assert counts() == two_threads
        assert set(counts()) == {1}
    assert counts() == two_threads


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_pieces_take_one_thread_however_large(n_jobs, two_threads):
    def piece(_):
        with all_threads(LARGE_PRODUCT):
            return counts()

    with one_thread():
        found = list(in_order(piece, [(0,), (1,)], n_jobs, prefer="threads"))
        blas = [pool["user_api"] == "blas" for pool in threadpoolctl.threadpool_info()]
        assert all(n == 1 for one in found for n, is_blas in zip(one, blas, strict=True) if is_blas)
    assert counts() == two_threads


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_gives_them_back(error, two_threads):
    with pytest.raises(error, match="ended"):
        with one_thread(), all_threads(LARGE_PRODUCT):
            raise error("ended")
    assert counts() == two_threads
    with one_thread():
        assert set(counts()) == {1}


def test_other_threads_neither_limit_nor_give_back(two_threads):
    """OpenBLAS raises its count in the main thread only: a thread that lowered it could not undo that."""
    seen = []

    def other():
        with one_thread(), all_threads(LARGE_PRODUCT):
            seen.append(counts())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(seen) == 1 and counts() == two_threads


def test_work_of_a_gram_matrix():
    X = np.zeros((100, 4))
    assert gram_work(X) == 2 * 100 * 4**2 and gram_work(X, degree=2) == 2 * 100 * 10**2
    assert gram_work([[1.0]]) == gram_work("rows.csv") == gram_work(np.zeros(3)) == gram_work(None) == 0.0
