import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._testing import ignore_warnings

from skident import NetworkIdentifier
from skident.identification.piecewise.kernel.output_error import probe_of
from skident.identification.piecewise.shallow.line_search import LineSearch
from skident.identification.piecewise.shallow.network import find_relu_network
from skident.identification.piecewise.shallow.restricted import fit_unsigned, network_of_fit
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle


@ignore_warnings
def trained(load):
    X, y = load(return_X_y=True)
    return X, make_pipeline(StandardScaler(), MLPClassifier(random_state=0)).fit(X, y)


@ignore_warnings(category=ConvergenceWarning)
@pytest.mark.parametrize("load", [load_breast_cancer, load_digits, load_iris, load_wine])
def test_classifiers_as_they_come(load):
    X, classifier = trained(load)
    identifier = NetworkIdentifier(FrozenEstimator(classifier), random_state=0).fit(X)
    rng = np.random.RandomState(0)
    X = np.concatenate([X, X.mean(axis=0) + 3.0 * X.std(axis=0) * rng.standard_normal((300, X.shape[1]))])
    assert np.abs(identifier.predict_proba(X) - classifier.predict_proba(X)).max() < 1e-10
    # Eight equations for a hundred signs (iris) may be too few; then it is not called exact.
    exact = identifier.layer_widths_[0] <= 100
    assert identifier.report_.exact == exact and identifier.layer_widths_[0] <= 102


def planted(D, K, m, seed):
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((D, K)) / np.sqrt(D), rng.standard_normal((K, m)) / np.sqrt(K)]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(K), rng.standard_normal(m)], "relu")


@pytest.mark.parametrize("m", [1, 2])
def test_within_a_range(m):
    """One unit is at rest in all of the range, one active: neither has a kink there."""
    network = planted(6, 8, m, 0)
    biases = network.biases[0].copy()
    biases[:2] = [-50.0, 50.0]
    truth = FeedforwardNetwork(network.weights, [biases, network.biases[1]], "relu")
    oracle = Oracle(truth, 6, derivatives="finite_difference", input_range=(-3.0, 3.0))
    found = find_relu_network(oracle, rng=np.random.RandomState(0))
    U = np.random.RandomState(1).uniform(-3.0, 3.0, (500, 6))
    assert np.abs(found.network(U) - truth(U)).max() < 1e-11 * np.abs(truth(U)).max()
    # With two outputs the linear part of the active unit is not told from those that other signs would leave.
    assert 1 <= found.n_skips <= m and found.network.layer_widths == (6 + found.n_skips, m)


def test_a_view_tells_where_it_is_wrong():
    network = planted(5, 6, 1, 1)
    oracle = Oracle(network, 5, derivatives="finite_difference", input_range=(-4.0, 4.0))
    search = LineSearch(probe_of(oracle, np.random.RandomState(0)), 1e3, 100, np.random.RandomState(0))
    for _ in range(6):
        search.scan_next_line()
    view = fit_unsigned(search)
    assert len(view.units) == 6 and len(view.wrong) == 0 and view.residual == 0.0
    found = network_of_fit(view, search.probe.output_error, search.probe.length_scale)
    assert found.n_skips == 0 and found.network.layer_widths == (6, 1)
    search.units = view.units.take(np.arange(1, 6))
    view = fit_unsigned(search)
    assert len(view.wrong) > 10 and view.residual > 1e-3
