import os
import threading
import time

import joblib
import numpy as np
import pytest

from skident.datasets import make_network
from skident.oracle import BlackBoxError, Budget, Oracle, OutOfBudgetError

BACKENDS = ["sequential", "threading", "loky"]
NETWORK = make_network((4, 3, 2), random_state=0)
PIECES = [np.full((2, 4), float(i)) for i in range(6)]


def hessians(oracle, points):
    return oracle.hessian(points), os.getpid()


def asked(oracle, backend, question=hessians, queries_per_row=33):
    with joblib.parallel_config(backend=backend, n_jobs=2):
        return list(oracle.query_in_parallel(question, PIECES, queries_per_row=queries_per_row))


@pytest.mark.parametrize("backend", BACKENDS)
def test_outputs_and_counts_are_those_of_one_process(backend):
    own, oracle = Oracle(lambda X: NETWORK(X), 4), Oracle(lambda X: NETWORK(X), 4)
    through = Oracle(oracle.as_black_box(), 4)
    answers = asked(through, backend)
    for (found, pid), points in zip(answers, PIECES, strict=True):
        np.testing.assert_array_equal(found, own.hessian(points))
        assert (pid == os.getpid()) == (backend != "loky")
    assert through.n_queries == oracle.n_queries == own.n_queries == 12 * 33


@pytest.mark.parametrize("backend", BACKENDS)
def test_exact_derivatives_are_counted(backend):
    oracle = Oracle(NETWORK, 4)
    asked(oracle, backend, queries_per_row=0)
    assert (oracle.n_queries, oracle.n_derivatives) == (0, 12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_queries_end_at_the_same_piece(backend):
    oracle = Oracle(lambda X: NETWORK(X), 4, budget=Budget(max_queries=200))
    with pytest.raises(OutOfBudgetError, match="max_queries=200 does not allow 66 more queries after 198"):
        asked(oracle, backend)
    assert oracle.n_queries == 3 * 66 and "max_queries=200" in oracle.exhausted


@pytest.mark.parametrize("backend", BACKENDS)
def test_time_ends_elsewhere_too(backend):
    def box(X):
        time.sleep(0.3)
        return NETWORK(X)

    asked(Oracle(lambda X: NETWORK(X), 4), backend)  # workers are there
    source = Oracle(box, 4, budget=Budget(max_seconds=0.8))  # that other processes have, with clocks of their own
    oracle = Oracle(source.as_black_box(), 4)
    with pytest.raises(OutOfBudgetError, match="max_seconds=0.8 are over"):
        asked(oracle, backend, lambda oracle, points: [oracle(points) for _ in range(20)], 20)
    assert oracle.n_queries == source.n_queries < 60 and source.exhausted == "max_seconds=0.8 are over"


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_failure_is_raised(backend):
    def box(X):
        if X[0, 0] > 2.5:
            raise RuntimeError(f"no {X[0, 0]:.0f}")
        return NETWORK(X)

    oracle = Oracle(box, 4)
    with pytest.raises(
        BlackBoxError, match="raised RuntimeError on a batch of 2 rows, after 6 rows without an error: no 3"
    ):
        asked(oracle, backend, lambda oracle, points: oracle(points), 1)
    assert oracle.n_queries == 8 if backend == "sequential" else 8 <= oracle.n_queries <= 12  # others had begun


def test_a_box_that_cannot_be_pickled_is_queried_by_threads():
    lock = threading.Lock()

    def box(X):
        with lock:
            return NETWORK(X)

    oracle = Oracle(box, 4)
    assert {pid for _, pid in asked(oracle, "loky")} == {os.getpid()} and oracle.n_queries == 12 * 33
