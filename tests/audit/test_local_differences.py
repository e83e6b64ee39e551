"""Differences at few inputs, at single rows and in batches; inputs that take few values."""

import copy

import numpy as np
import pytest
import torch

from skident import verify_same
from skident.audit.inputs import InputBox, candidate_inputs
from skident.network import FeedforwardNetwork
from skident.oracle import BlackBoxError

SEEDS = range(6)


def random_network(seed, sizes=(4, 6, 1)):
    rng = np.random.RandomState(seed)
    weights = [1.2 * rng.standard_normal((n, m)) / np.sqrt(n) for n, m in zip(sizes, sizes[1:])]
    network = FeedforwardNetwork(weights, [0.5 * rng.standard_normal(m) for m in sizes[1:]], ("relu", "tanh")[seed % 2])
    return network, rng.standard_normal((200, sizes[0])), rng


def test_a_slab_that_few_rows_of_X_meet():
    for seed in SEEDS:
        network, X, rng = random_network(seed)
        u = rng.standard_normal(4)
        middle = np.sort(X @ u)[-6]  # five rows are beyond it
        report = verify_same(lambda X: network(X) + 0.3 * (X @ u > middle)[:, None], network, X, random_state=seed)  # noqa: B023
        assert report.same is False and report.data_rows == (200, 200, 5)
        assert "200 of 200 rows of X, of which 5 differ" in str(report)


def test_one_row_of_X():
    for seed in SEEDS:
        network, X, rng = random_network(seed)
        row = X[rng.randint(len(X))]
        box = lambda X: network(X) + 0.3 * np.all(X == row, axis=1)[:, None]  # noqa: B023, E731
        assert verify_same(box, network, X, random_state=seed).same is False


def test_large_tables_are_sampled(monkeypatch):
    monkeypatch.setattr("skident.audit.queries._MOST_ROWS", 500)
    for seed in SEEDS:
        network, X, rng = random_network(seed)
        X = np.vstack([X, rng.standard_normal((1800, 4))])
        u = rng.standard_normal(4)
        limit = np.sort(X @ u)[-60]  # 3 % of the rows: 500 of them miss all once in 5e6
        report = verify_same(lambda X: network(X) + 0.3 * (X @ u > limit)[:, None], network, X, random_state=seed)  # noqa: B023
        assert report.same is False and report.data_rows[:2] == (500, 2000)


@pytest.mark.parametrize("most", [16, 20, 40, 100, 1000])
def test_few_queries(most):
    network, X, _ = random_network(0)
    report = verify_same(network, network, X, max_queries=most, random_state=0)
    assert report.same is True and report.n_queries <= most and report.data_rows[0] <= 200


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_few_rows(n_rows):
    network, X, _ = random_network(0)
    report = verify_same(network, network, X[:n_rows], random_state=0)
    assert report.same is not False and report.data_rows == (n_rows, n_rows, 0)


def test_calls_with_one_row():
    for seed in SEEDS:
        network, X, _ = random_network(seed)
        report = verify_same(lambda X: network(X) + 0.3 * (len(X) == 1), network, X, random_state=seed)  # noqa: B023
        assert report.same is False and report.batch_dependent


@pytest.mark.parametrize("m_L", [1, 3])
def test_a_model_that_squeezes_the_output_of_one_row(m_L):
    network, X, _ = random_network(0, (4, 6, m_L))
    assert verify_same(lambda X: np.squeeze(network(X)), network, X, random_state=0).same is True


def test_outputs_that_are_wrong_late_in_a_batch():
    network, X, _ = random_network(0)
    with pytest.raises(BlackBoxError, match="wrong beyond some row of a large batch"):
        verify_same(lambda X: network(X) + 0.3 * (np.arange(len(X)) >= 32)[:, None], network, X, random_state=0)


class TestTrainingMode:
    """A torch module whose training was not switched off, inside a callable."""

    X = np.random.RandomState(0).standard_normal((200, 4))

    @staticmethod
    def audited(layer, X):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(4, 16), layer, torch.nn.ReLU(), torch.nn.Linear(16, 2))
        reference = copy.deepcopy(module).eval()
        box = lambda X: module(torch.tensor(X).float())  # noqa: E731
        return verify_same(box, reference, X, random_state=0)

    def test_dropout(self):
        report = self.audited(torch.nn.Dropout(0.3), self.X)
        assert report.same is None and "dropout in training mode (call .eval() on the model)" in str(report)
        assert "tol=" not in str(report)

    def test_batch_normalization(self):
        with pytest.raises(
            BlackBoxError, match=r"batch normalization is in training mode: call \.eval\(\) on the model"
        ):
            self.audited(torch.nn.BatchNorm1d(16), self.X)


class TestFewValues:
    def test_integers_and_levels(self):
        """Models that round their inputs are the same where these are rounded already."""
        for seed in SEEDS:
            network, X, _ = random_network(seed)
            integers = np.round(3.0 * X)
            assert verify_same(lambda X: network(np.round(X)), network, integers, random_state=seed).same is True  # noqa: B023
            tenths = np.column_stack([X[:, :2], np.round(X[:, 2:]) / 10.0])
            box = lambda X: network(np.column_stack([X[:, :2], np.round(10 * X[:, 2:]) / 10.0]))  # noqa: B023, E731
            assert verify_same(box, network, tenths, random_state=seed).same is True

    def test_candidates(self):
        rng = np.random.RandomState(0)
        X = np.column_stack([rng.choice([1.0, 5.0, 5.5], 100), rng.randint(-500, 500, 100), rng.standard_normal(100)])
        box = InputBox.of(X)
        drawn = candidate_inputs(X, box, 400, rng)
        assert set(drawn[:, 0]) == {1.0, 5.0, 5.5} and np.array_equal(drawn[:, 1], np.rint(drawn[:, 1]))
        assert len(set(drawn[:, 2])) > 150 and not box.integer[[0, 2]].any() and list(box.levels) == [0]

    def test_a_model_that_rounds_other_inputs_does_not_round_them_to_float32(self):
        for seed in SEEDS[:4]:
            network, X, _ = random_network(seed)
            report = verify_same(lambda X: network(np.round(X, 2)), network, X, random_state=seed)  # noqa: B023
            assert report.same is False and not report.casts_inputs and "float32" not in str(report)
