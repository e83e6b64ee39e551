import os
import pickle
import threading
import time

import joblib
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from skident.budget import Moment
from skident.optim import in_order, one_blas_thread

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
