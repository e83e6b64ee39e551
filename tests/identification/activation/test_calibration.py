"""Calibrated classifiers: named from steps of their probabilities, from levels far out, or by their class."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._testing import ignore_warnings

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.activation.calibration import declared_calibration, recognize_calibration
from skident.oracle import NotIdentified, Oracle

X = np.random.RandomState(0).standard_normal((300, 6))
Y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2 + np.abs(X[:, 3])


@ignore_warnings(category=ConvergenceWarning)
def calibrated(method, activation, n_classes=2):
    labels = np.digitize(Y, np.quantile(Y, np.arange(1, n_classes) / n_classes))
    inner = MLPClassifier((6,), activation, random_state=0).fit(X, labels)
    return CalibratedClassifierCV(FrozenEstimator(inner), method=method).fit(X, labels)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("response", ["predict", "predict_proba"])
@pytest.mark.parametrize(
    ("method", "activation"),
    [("isotonic", "relu"), ("isotonic", "tanh"), ("isotonic", "logistic"), ("sigmoid", "relu")],
)
def test_calibration_is_named_from_the_probabilities(method, activation, n_classes, response):
    model = calibrated(method, activation, n_classes)
    with pytest.raises(NotIdentified, match=rf"^.{{0,160}}{method} calibration") as caught:
        # A callable, so that the class of the model is hidden.
        NetworkIdentifier(lambda rows: model.predict_proba(rows), response_method=response, random_state=0).fit(X)
    assert caught.value.reason == f"{method} calibration"


def test_a_calibration_of_sigmoid_units_is_a_network():
    model = calibrated("sigmoid", "logistic")
    identifier = NetworkIdentifier(model.predict_proba, random_state=0).fit(X)
    assert identifier.report_.exact and identifier.layer_widths_[:2] == (6, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("own_seconds")
def test_the_class_of_a_calibration_is_named_if_nothing_else_explains_it():
    model = calibrated("sigmoid", "tanh", 3)
    with pytest.raises(NotIdentified, match="the model is a CalibratedClassifierCV: sigmoid calibration"):
        NetworkIdentifier(model.predict_proba, random_state=0, max_seconds=5).fit(X)


@pytest.mark.parametrize("steepness", [30.0, 300.0, 3000.0])
@pytest.mark.parametrize("seed", range(4))
def test_saturated_units_are_no_calibration(steepness, seed):
    """Probabilities of steep tanh units are constant at many levels, with smooth steps between them."""
    net = make_network((6, 8, 1), output_activation="identity", random_state=seed)
    inner = net.with_parameters(
        [steepness * net.weights[0], net.weights[1]], [steepness * net.biases[0], net.biases[1]]
    )
    oracle = Oracle(lambda rows: 1.0 / (1.0 + np.exp(-inner(rows))), 6)
    assert recognize_calibration(oracle, X, np.random.RandomState(seed)) is None


def test_what_declares_a_calibration():
    model = calibrated("sigmoid", "tanh")
    scaled = make_pipeline(StandardScaler(), FrozenEstimator(model)).fit(X)
    for owner in (model, FrozenEstimator(model), scaled, model.predict_proba):
        assert declared_calibration(owner).kind == "sigmoid calibration"
    assert declared_calibration(lambda rows: model.predict_proba(rows)) is None
    assert declared_calibration(calibrated) is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu"])
@pytest.mark.parametrize("widths", [(8, 3), (1, 2), (2, 2), (6, 4, 3)])
def test_networks_are_not_taken_for_calibrations(widths, activation, seed):
    network = make_network((6, *widths), activation=activation, output_activation="identity", random_state=seed)

    def model(rows):
        E = np.exp(network(rows) - network(rows).max(axis=1, keepdims=True))
        return E / E.sum(axis=1, keepdims=True)

    oracle = Oracle(model, 6)
    oracle.measure_accuracy(X[:50], oracle(X[:50]), np.random.RandomState(0))
    assert recognize_calibration(oracle, X, np.random.RandomState(0)) is None
