"""Processes and clusters give the same bits as one thread: a `dask.distributed` cluster of two workers, and loky."""

import os
import time
import warnings

import joblib
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import EntangledWeightExtractor, IdentifierOptions, NetworkIdentifier, TensorReLURegressor
from skident.datasets import make_network, make_relu_network
from skident.landscape import TrainingTrials, phase_transition
from skident.optim import in_order


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(params=["threading", "loky", "dask"])
def backend(request):
    if request.param == "dask":
        request.getfixturevalue("client")
    return request.param


def at_once(backend, fit):
    """What `fit` gives with one job and on a backend."""
    one = fit()
    with joblib.parallel_config(backend=backend, n_jobs=2):
        return one, fit()


def test_pieces_leave_this_process(client):
    with joblib.parallel_config(backend="dask"):
        assert os.getpid() not in set(in_order(lambda _: os.getpid(), [(i,) for i in range(4)]))


def test_identification_by_random_starts(backend):
    network = make_network((6, 5, 3, 1), bias_scale=0.5, output_activation="identity", random_state=0)
    X = np.random.RandomState(0).standard_normal((100, 6))

    def fit():
        return NetworkIdentifier(lambda U: network(U), layer_widths=(5, 3, 1), activation="tanh", random_state=0).fit(X)

    one, other = at_once(backend, fit)
    assert other.network_ == one.network_ and other.n_queries_ == one.n_queries_ and one.report_.exact


def test_identification_by_hessians(backend, monkeypatch):
    monkeypatch.setattr("skident.identification.hessians.subspace._WORTH_SHARING", 0.0)
    network = make_network((6, 5, 3, 2), random_state=1)
    X, rows = np.random.RandomState(0).standard_normal((100, 6)), []

    def box(U):
        rows.append(len(U))
        return network(U)

    def fit():
        extractor = EntangledWeightExtractor(first_layer="hessian")
        options = IdentifierOptions(strategy="hessian", extractor=extractor, n_attempts=1)
        names = {"activation": "tanh", "output_activation": "tanh"}
        identifier = NetworkIdentifier(box, layer_widths=(5, 3, 2), **names, options=options, random_state=0)
        rows.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return identifier.fit(X), sum(rows)

    (one, seen), (other, seen_here) = at_once(backend, fit)
    assert other.network_ == one.network_ and other.n_queries_ == one.n_queries_ == seen
    np.testing.assert_array_equal(other.extractor_.components_, one.extractor_.components_)
    assert (seen_here < seen) == (backend != "threading")  # elsewhere, lists are copies


def test_regression(backend, monkeypatch):
    monkeypatch.setattr("skident.samples.sample._KEPT_NUMBERS", 0)
    X = np.random.RandomState(0).standard_normal((2000, 5))
    y = make_relu_network(1, 5, 2, random_state=8)[2](X)[:, 0]
    one, other = at_once(backend, lambda: TensorReLURegressor(n_units=2, batch_size=500, random_state=0).fit(X, y))
    assert other.network_ == one.network_
    np.testing.assert_array_equal(other.predict(X), one.predict(X))


def test_transition(backend):
    trials = TrainingTrials(n_trials=2, n_starts=2)
    one, other = at_once(backend, lambda: phase_transition(20, 8, [1, 2, 4], trials=trials, random_state=0))
    np.testing.assert_array_equal(other.losses, one.losses)


def test_time_is_bounded_on_a_cluster(client):
    network = make_network((17, 40, 40, 1), bias_scale=0.3, output_activation="identity", random_state=1)
    X, began = np.random.RandomState(0).standard_normal((100, 17)), time.perf_counter()
    ended = (
        "The search was ended|max_seconds=1.5 are over, and no network was recovered"  # the latter on a busy machine
    )
    with joblib.parallel_config(backend="dask"), pytest.raises((ConvergenceWarning, ValueError), match=ended):
        NetworkIdentifier(lambda U: network(U), layer_widths=(40, 40, 1), max_seconds=1.5, random_state=0).fit(X)
    assert time.perf_counter() - began < 20.0  # a step of a fit is made to its end, by a machine that may be busy
