"""Two hidden layers behind an exact first one, from Hessians by its outputs."""

import numpy as np
import pytest

from skident.identification.saturating.first_layer import FirstLayer
from skident.identification.smooth.hidden_coordinates.coordinates import HiddenModel
from skident.identification.smooth.hidden_coordinates.profiles import fit_curvatures
from skident.identification.smooth.hidden_coordinates.two_layer_start import _is_first_kind, two_layers_start
from skident.identification.smooth.hidden_coordinates.two_layers import recover_two_layers, second_layer_span
from skident.metrics import relative_max_error
from skident.oracle import NotIdentified, Oracle
from tests.identifiers import make_identifier

TOL = 1e-6


def exact_model(network):
    """The model behind the network's own first layer."""
    D, m = network.weights[0].shape
    first = FirstLayer(network.weights[0], network.biases[0], np.zeros((m, D)), 1e5, 1, 0)
    oracle = Oracle(lambda X: network(X), D)
    oracle(np.zeros((1, D)))
    return HiddenModel(oracle, first, network.activation)


def recovered(network, seed, n_trials=6):
    rng, model = np.random.RandomState(seed), exact_model(network)
    basis = second_layer_span(model, network.layer_widths[1], rng)
    return recover_two_layers(model, basis, n_trials, rng, tol=TOL)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(14, 12, 10, 8, 5), (14, 10, 10, 6, 5)])
def test_rate_of_recovery(sizes, make_planted, rng):
    X, n_good = rng.standard_normal((300, sizes[0])), 0
    for seed in range(4):
        network = make_planted(sizes, seed=seed, bias_scale=0.3)
        try:
            found = recovered(network, seed).network
        except NotIdentified:
            continue
        n_good += found.layer_widths == sizes[1:] and relative_max_error(network(X), found(X)) < 100.0 * TOL
    assert n_good >= 3


def test_norms_and_biases_from_curvatures(rng):
    """Curvatures over slopes of a tanh unit do not depend on what follows it."""
    norms, biases = np.array([0.6, 1.4, 2.5]), np.array([0.3, -0.5, 0.1])
    q, slopes = rng.standard_normal((60, 3)), rng.standard_normal((60, 3))
    found = fit_curvatures(q, -2.0 * norms * np.tanh(norms * q + biases) * slopes, slopes)
    np.testing.assert_allclose(found[0], norms, rtol=1e-5)
    np.testing.assert_allclose(found[1], biases, atol=1e-5)


def test_start_where_the_second_layer_is_linear(make_planted, rng):
    """Directions of both layers to a few per cent, with norms and biases of the second one."""
    network = make_planted((40, 40, 40, 40, 10), seed=0, bias_scale=0.3)
    start = two_layers_start(exact_model(network), np.eye(40), 0, rng)
    W, found = network.weights[1], start.weights[0]
    cosines = (W / np.linalg.norm(W, axis=0)).T @ (found / np.linalg.norm(found, axis=0))
    nearest = np.abs(cosines).argmax(axis=1)
    assert np.median(np.abs(cosines).max(axis=1)) > 0.998
    assert np.median(np.linalg.norm(found, axis=0)[nearest] / np.linalg.norm(W, axis=0)) == pytest.approx(1.0, abs=0.05)
    assert start.layer_widths[1] >= 36


def test_span_of_second_layer_weights(make_planted, rng):
    network = make_planted((14, 12, 7, 5, 3), seed=0, bias_scale=0.3)
    basis = second_layer_span(exact_model(network), 7, rng)
    W = network.weights[1]
    np.testing.assert_allclose(basis @ (basis.T @ W), W, atol=1e-8)


def test_signs_assign_directions_to_layers(rng):
    """The gradient is a combination over either layer, with coefficients of any sign."""
    n, m_L, counts = 20, 6, (20, 12)
    W, T = rng.standard_normal((n, counts[0])), rng.standard_normal(counts)
    A = rng.standard_normal((counts[1], m_L))
    X, profiles = np.vstack([W.T, (W @ T).T]), np.vstack([T @ A, A])
    norms = np.linalg.norm(X, axis=1, keepdims=True), np.linalg.norm(profiles, axis=1, keepdims=True)
    signs = rng.choice([-1.0, 1.0], (2, len(X), 1))
    first = _is_first_kind(signs[0] * X / norms[0], signs[1] * profiles / norms[1], W @ T @ A)
    expected = np.arange(len(X)) < counts[0]
    assert np.array_equal(first, expected) or np.array_equal(first, ~expected)


def test_no_network_fits_other_models(rng):
    W = rng.standard_normal((8, 4))
    first = FirstLayer(np.eye(8), np.zeros(8), np.zeros((8, 8)), 1e5, 1, 0)
    oracle = Oracle(lambda X: np.sin(3.0 * np.tanh(X) @ W) * np.tanh(X[:, :1]), 8)
    oracle(np.zeros((1, 8)))
    with pytest.raises(NotIdentified, match="three hidden layers"):
        recover_two_layers(HiddenModel(oracle, first, "tanh"), np.eye(8), 2, rng, tol=TOL)


@pytest.mark.parametrize(("widths", "seed"), [("auto", 4), ((12, 10, 8, 5), 2)])
def test_through_the_identifier(widths, seed, make_planted, rng):
    """Of eleven seeds, ten were exact with unknown widths, eight of them by this route."""
    network = make_planted((14, 12, 10, 8, 5), seed=seed, bias_scale=0.3)
    X = rng.standard_normal((200, 14))
    model = make_identifier(lambda A: network(A), layer_widths=widths, activation="tanh", random_state=0).fit(X)
    assert model.report_.exact and model.layer_widths_ == (12, 10, 8, 5)
    assert model.report_.route == "saturation, hidden coordinates"
    assert relative_max_error(network(X), model.network_(X)) < 1e-10
