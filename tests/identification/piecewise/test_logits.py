"""Classifiers whose probabilities are float32: their logits are those of a ReLU network near the center only."""

import warnings

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.exceptions import ConvergenceWarning

from skident.datasets import make_network
from skident.identification import NetworkIdentifier
from skident.identification.piecewise.shallow.signs import points_on_both_sides
from skident.identification.piecewise.shallow.units import ReLUUnits
from skident.identification.piecewise.shallow.visible_units import VisibleUnits
from skident.network import change_outputs
from skident.oracle import Oracle

pytestmark = pytest.mark.usefixtures("own_seconds")


def classifier(widths, seed, scale=1.0):
    """Logits in float64, and a float32 callable that answers class probabilities, or that of the second of two."""
    options = {"activation": "relu", "output_activation": "identity", "bias_scale": 0.5}
    network = make_network(widths, **options, random_state=seed)
    network = change_outputs(network, np.zeros(widths[-1]), np.full(widths[-1], scale))

    def probabilities(X):
        Z = network(X.astype(np.float32).astype(float)).astype(np.float32)
        return expit(Z[:, 0]) if Z.shape[1] == 1 else softmax(Z, axis=1)

    return network, probabilities


def fitted(model, X, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return NetworkIdentifier(model, layer_widths="auto", random_state=0, max_seconds=20, **options).fit(X)


@pytest.mark.parametrize(("widths", "scale"), [((8, 6, 4), 1.0), ((8, 6, 4), 5.0), ((6, 5, 1), 1.0), ((6, 5, 1), 4.0)])
def test_probabilities_of_float32_classifiers(widths, scale, rng):
    """By default, in three of three, also of a classifier that is certain nearly everywhere."""
    X, errors = rng.standard_normal((100, widths[0])), []
    for seed in (0, 1, 3):
        network, model = classifier(widths, seed, scale)
        identifier = fitted(model, X)
        U = rng.standard_normal((500, widths[0]))
        Z = network(U)
        errors.append(np.abs(identifier.predict(U) - (expit(Z[:, 0]) if widths[-1] == 1 else softmax(Z, axis=1))).max())
        assert identifier.layer_widths_ == widths[1:] or not identifier.report_.agrees
        assert not identifier.report_.exact
    assert max(errors) < 1e-5


def test_lines_stay_where_logits_are_visible(rng):
    """And show every unit once 20 of them are scanned."""
    network, model = classifier((10, 8, 3), 1, 5.0)
    oracle = Oracle(model, 10, response="predict_proba")
    oracle(rng.standard_normal((20, 10)))
    visible = VisibleUnits(oracle, np.random.RandomState(0))
    visible.scan(20)
    planes = np.vstack([network.weights[0], network.biases[0]]) / np.linalg.norm(network.weights[0], axis=0)
    units = visible.units()
    found = np.vstack([units.weights, units.biases])
    gaps = [np.linalg.norm(planes[:, :, None] - sign * found[:, None], axis=0) for sign in (1.0, -1.0)]
    assert np.minimum(*gaps).min(axis=1).max() < 1e-2


def test_a_unit_too_faint_for_the_lines_is_named(rng):
    """An outgoing weight of 6e-6: the others are recovered, and the function to that."""
    network, model = classifier((6, 5, 1), 2)
    assert np.abs(network.weights[1]).min() < 1e-5
    identifier = fitted(model, rng.standard_normal((100, 6)))
    U = rng.standard_normal((500, 6))
    assert np.abs(identifier.predict(U) - expit(network(U)[:, 0])).max() < 2e-5
    assert identifier.layer_widths_ == (5, 1) or not identifier.report_.agrees


def test_outputs_are_fitted_without_units_if_none_is_located_again():
    none = ReLUUnits(np.empty((4, 0)), np.empty(0), np.empty((0, 1)), np.empty(0))
    assert points_on_both_sides(none, 10, np.random.RandomState(0)).shape == (13, 4)
