"""Few rows: what hidden layers must not do, and where they are still worth having."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import HierarchicalQuadraticNet
from tests.hierarchical.planted import ignored_convergence


def few_rows(seed, n_targets):
    """Six to twenty rows of a linear model, of a quadratic one, or of noise, and 500 test samples."""
    rng = np.random.RandomState(seed)
    n, d = rng.choice([6, 10, 13, 20]), rng.randint(2, 8)
    X = rng.standard_normal((n + 500, d))
    X = np.exp(X) if seed % 2 else X
    y = (seed % 3 > 0) * X @ rng.standard_normal((d, n_targets))
    y = y**2 if seed % 3 == 2 else y
    y = (y + rng.standard_normal(y.shape) * max(1.0, y.std())) * 10.0 ** rng.uniform(-1, 1, n_targets)
    y = y[:, 0] if n_targets == 1 else y
    return X[:n], y[:n], X[n:], y[n:]


def test_fresh_rows_are_never_far_off():
    """Of 120 tables like these, R^2 was below -1 for three; of these ten, for none."""
    scores = []
    for seed in range(400, 410):
        X, y, X_test, y_test = few_rows(seed, n_targets=3 if seed % 4 == 0 else 1)
        with ignored_convergence():
            scores.append(HierarchicalQuadraticNet(random_state=0).fit(X, y).score(X_test, y_test))
    assert min(scores) > -1.0


def test_rows_that_support_no_hidden_layer():
    X, y, X_test, _ = few_rows(421, 3)
    net = HierarchicalQuadraticNet(random_state=0)
    with (
        ignored_convergence(),
        pytest.warns(ConvergenceWarning, match=r"samples do not support the P = \d+ weights of hidden layers\. R\^2"),
    ):
        net.fit(X, y)
    assert net.l2_ == np.inf and net.readout_ == "linear" and not net.exact_
    assert not any(W.any() for blocks in net.layer_weights_.values() for W in blocks.values())
    # Inputs are held in the range of the rows: nothing is extrapolated.
    np.testing.assert_array_equal(net.predict(1e3 * np.abs(X_test[:1])), net.predict(1e6 * np.abs(X_test[:1])))


def test_hidden_layers_that_convince():
    """A saddle in two of six inputs: no linear model sees it."""
    rng = np.random.RandomState(0)
    X = rng.standard_normal((560, 6))
    y = X[:, 0] * X[:, 1]
    with ignored_convergence():
        net = HierarchicalQuadraticNet(random_state=0).fit(X[:60], y[:60])
    assert np.isfinite(net.l2_) and net.score(X[60:], y[60:]) > 0.5


def test_what_explains_any_target_is_not_exact():
    X = np.random.RandomState(1).standard_normal((20, 4))
    y = np.random.RandomState(2).standard_normal(20)
    net = HierarchicalQuadraticNet(readout="sum", random_state=0)
    with pytest.warns(ConvergenceWarning, match="N = 20 targets for P = 64 weights"):
        net.fit(X, y)
    assert not net.exact_ and min(net.restart_losses_) < 1e-10
