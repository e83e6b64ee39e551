"""Budgets of work, threads of the linear algebra, and work in parallel."""

import os
import pickle
import threading
import time

import joblib
import numpy as np
import pytest
import threadpoolctl
from threadpoolctl import threadpool_info

from skident.budget import Moment
from skident.optim import WorkBudget, all_threads, gram_work, in_order, one_blas_thread, one_thread
from skident.optim.threads import LARGE_PRODUCT


def test_work_ends_it_and_it_can_be_extended():
    budget = WorkBudget(3e6, n_values=10)
    assert not budget.spent and budget.stopped_by is None
    budget.spend(2, 300)
    assert budget.work == 2 * 10 * 300**2 + 1e6 and not budget.spent
    budget.spend(2, 300)
    assert budget.spent and budget.stopped_by == "max_work" and not budget.late
    budget.extend()
    assert not budget.spent


def test_the_clock_is_told():
    budget = WorkBudget(deadline=time.perf_counter() - 1.0)
    assert budget.spent and budget.late and budget.stopped_by == "max_seconds"
    assert not WorkBudget(np.inf).spent


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


BACKENDS = ["threading", "loky", "multiprocessing"]


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("n_jobs", [None, 1, 2])
@pytest.mark.parametrize("backend", BACKENDS)
def test_results_in_order(backend, n_jobs):
    """A closure, which plain pickle refuses; the first pieces take longest."""
    power = 2

    def work(i, j):
        time.sleep(0.02 * (4 - i))
        return i**power + j

    with joblib.parallel_config(backend=backend):
        assert list(in_order(work, [(i, 10) for i in range(4)], n_jobs)) == [10, 11, 14, 19]


def test_processes_are_used_where_they_are_asked_for():
    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert os.getpid() not in set(in_order(lambda _: os.getpid(), [(i,) for i in range(4)]))
    assert set(in_order(lambda _: os.getpid(), [(i,) for i in range(4)], 2, prefer="threads")) == {os.getpid()}


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_cannot_be_pickled_is_done_by_threads(backend):
    lock, seen = threading.Lock(), []

    def work(i):
        with lock:
            seen.append(i)
        return os.getpid()

    with joblib.parallel_config(backend=backend, n_jobs=2):
        assert set(in_order(work, [(i,) for i in range(4)])) == {os.getpid()}
    assert sorted(seen) == [0, 1, 2, 3]


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_one_blas_thread_a_piece_and_none_of_it_stays(backend, n_jobs):
    before = blas_threads()
    with joblib.parallel_config(backend=backend):
        for _ in range(2):
            assert all(
                set(found) == {1} for found in in_order(lambda _: blas_threads(), [(i,) for i in range(3)], n_jobs)
            )
            assert blas_threads() == before
    with one_blas_thread():
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


@pytest.mark.parametrize("backend", ["threading", "loky"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_errors_and_interrupts_end_it(backend, error):
    def work(i):
        if i == 1:
            raise error("piece 1")
        return i

    with joblib.parallel_config(backend=backend, n_jobs=2), pytest.raises(error, match="piece 1"):
        list(in_order(work, [(i,) for i in range(20)]))


def test_pieces_are_read_as_they_are_needed():
    read = []

    def pieces():
        for i in range(100):
            read.append(i)
            yield (i,)

    results = in_order(abs, pieces())
    assert next(results) == 0 and read == [0]
    results.close()


def test_a_moment_stays_where_it_is_in_another_process():
    moment = Moment(time.perf_counter() + 100.0)
    assert abs(pickle.loads(pickle.dumps(moment)) - moment) < 5.0
    (left,) = in_order(lambda: moment - time.perf_counter(), [()])
    with joblib.parallel_config(backend="loky", n_jobs=2):
        elsewhere = list(in_order(lambda _: moment - time.perf_counter(), [(0,), (1,)]))
    assert np.all(np.abs(np.array(elsewhere) - left) < 50.0)  # a process takes seconds to begin
    assert pickle.loads(pickle.dumps(Moment(np.inf))) == np.inf
