"""The second layer from derivatives by first-layer outputs, with m_1 <= D."""

import numpy as np
import pytest

from skident.identification.saturating.biases import null_dimension, preactivation_gradients
from skident.identification.saturating.first_layer import FirstLayer
from skident.identification.second_layer.hidden_coordinates.coordinates import HiddenModel
from skident.identification.second_layer.hidden_coordinates.profiles import fit_profiles
from skident.identification.second_layer.hidden_coordinates.recover import recover_in_hidden_coordinates
from skident.metrics import relative_max_error
from skident.network import get_activation
from skident.oracle import NotIdentified, Oracle

GOOD = 1e-2  # relative error of outputs from which the polish converges


def rough_first_layer(network, rng):
    """The true first layer, with norms off by 1 % and biases by 0.1."""
    m = network.layer_widths[0]
    weights = network.weights[0] * (1.0 + 0.01 * rng.uniform(-1.0, 1.0, m))
    biases = network.biases[0] + 0.1 * rng.uniform(-1.0, 1.0, m)
    return FirstLayer(weights, biases, np.zeros((m, len(weights))), 1e5, 1, 0)


def recovered(network, n_units, seed=0):
    rng = np.random.RandomState(seed)
    first = rough_first_layer(network, rng)
    return recover_in_hidden_coordinates(Oracle(network, network.n_inputs), first, network.activation, n_units, rng)


@pytest.mark.parametrize(
    ("sizes", "scale", "activation"),
    [
        ((12, 8, 8, 3), 1.0, "tanh"),
        ((12, 8, 5, 3), 1.5, "tanh"),
        ((10, 8, 6, 2), 1.0, "sigmoid"),
        ((9, 9, 9, 2), 1.0, "tanh"),
        ((12, 8, 5, 1), 1.0, "tanh"),
        ((10, 8, 6, 1), 1.0, "sigmoid"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_rate_of_recovery(sizes, scale, activation, known, make_planted, rng):
    X, n_good = rng.standard_normal((300, sizes[0])), 0
    for seed in range(3):
        network = make_planted(sizes, seed=seed, scale=scale, activation=activation, bias_scale=0.3)
        try:
            found = recovered(network, sizes[2] if known else None, seed).network
        except NotIdentified:
            continue
        n_good += found.layer_widths == sizes[1:] and relative_max_error(network(X), found(X)) < GOOD
    assert n_good >= 2


def test_one_output_needs_a_narrower_second_layer(make_planted):
    network = make_planted((12, 8, 8, 1), seed=1, bias_scale=0.3)
    with pytest.raises(NotIdentified, match="no second layer"):
        recovered(network, None)


@pytest.mark.parametrize("width", [4, 7])
def test_a_wrong_width_is_reported(width, make_planted):
    network = make_planted((12, 8, 5, 3), seed=1, bias_scale=0.3)
    with pytest.raises(NotIdentified, match="another width|second-layer units|relative residual"):
        recovered(network, width)


def test_a_dead_second_layer_unit_is_not_counted(make_planted, rng):
    network = make_planted((12, 8, 5, 3), seed=1, bias_scale=0.3)
    W = [w.copy() for w in network.weights]
    W[2][2] = 0.0
    network = network.with_parameters(W, network.biases)
    found = recovered(network, None).network
    assert found.layer_widths == (8, 4, 3)
    X = rng.standard_normal((300, 12))
    assert relative_max_error(network(X), found(X)) < GOOD


def test_two_identical_second_layer_units_count_as_one(make_planted):
    network = make_planted((12, 8, 5, 3), seed=1, bias_scale=0.3)
    W, b = ([part.copy() for part in parts] for parts in (network.weights, network.biases))
    W[1][:, 1], b[1][1] = W[1][:, 0], b[1][0]
    network = network.with_parameters(W, b)
    found = recovered(network, None).network
    assert found.layer_widths == (8, 4, 3)


def test_three_hidden_layers_are_not_taken_for_two(make_planted):
    network = make_planted((12, 8, 6, 5, 3), seed=1, bias_scale=0.3)
    for width in (None, 6):
        with pytest.raises(NotIdentified, match="another width|no second layer|relative residual"):
            recovered(network, width)


def test_gradients_are_those_of_the_network(make_planted, rng):
    network = make_planted((12, 8, 5, 3), seed=0)
    W, b = network.weights[0], network.biases[0]
    Z = rng.standard_normal((6, 8))
    slopes = preactivation_gradients(Oracle(network, 12), W, b, Z, 1e-3)
    inner = 1.0 - np.tanh(np.tanh(Z) @ network.weights[1] + network.biases[1]) ** 2
    expected = np.einsum("ni,ik,nk,kp->npi", 1.0 - np.tanh(Z) ** 2, network.weights[1], inner, network.weights[2])
    # Truncation is a twentieth of step^4 times the fifth derivative, rounding eps / step.
    np.testing.assert_allclose(slopes, expected, atol=1e-10)
    some = preactivation_gradients(Oracle(network, 12), W, b, Z, 1e-3, np.array([1, 4]))
    np.testing.assert_allclose(some, slopes[:, :, [1, 4]], atol=1e-12)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_hessians_are_those_of_the_network(activation, make_planted, rng):
    network, g = make_planted((12, 8, 5, 2), seed=0, activation=activation), get_activation(activation)
    first = FirstLayer(network.weights[0], network.biases[0], np.zeros((8, 12)), 1e5, 1, 0)
    basis, H = np.linalg.qr(rng.standard_normal((8, 3)))[0], g(rng.standard_normal((4, 8)))
    W, curvature = network.weights[1], g.jet(H @ network.weights[1] + network.biases[1], 2)[2]
    expected = np.einsum("ik,jk,nk,kp->npij", basis.T @ W, basis.T @ W, curvature, network.weights[2])
    found = HiddenModel(Oracle(network, 12), first, activation).hessians(H, basis)
    np.testing.assert_allclose(found, expected, atol=1e-4)  # a third of step^2 times the fourth derivative


def test_null_dimension_needs_no_biases(rng):
    n, k, rank = 120, 10, 4
    Z, b = rng.standard_normal((n, k)), rng.standard_normal(k)
    low_rank = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, k))
    slope = get_activation("tanh").jet(Z + b, 1)[1]
    assert null_dimension(low_rank * slope, Z, 2.0) == k - rank
    assert null_dimension(rng.standard_normal((n, k)), Z, 2.0) is None
    assert null_dimension(low_rank[:20], Z[:20], 2.0) is None  # fewer equations than unknowns


def test_profiles(rng):
    q = rng.uniform(-2.0, 2.0, (200, 4))
    norms, biases = np.array([0.3, 1.0, 3.0, 2.0]), np.array([0.5, -1.0, 0.2, 0.0])
    e = np.array([1.0, -2.0, 0.1, 3.0]) / np.cosh(norms * q + biases) ** 2
    found, offsets, errors = fit_profiles(q, e)
    np.testing.assert_allclose(found, norms, rtol=1e-6)
    np.testing.assert_allclose(offsets, biases, atol=1e-6)
    assert errors.max() < 1e-8
