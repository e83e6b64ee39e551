import numpy as np
import pytest
import scipy.optimize

from skident.datasets import make_network
from skident.identification.hessians.ridge_units import fit_ridge_units
from skident.network import get_activation


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "softplus"])
def test_ridge_units_end_where_scipy_does(rng, activation, n_outputs):
    """On noisy answers, so that the minimum is not zero."""
    g, n, m = get_activation(activation), 80, 3
    Z = rng.standard_normal((n, m))
    scales, shifts = np.array([0.8, 1.3, 1.7]), np.array([-0.4, 0.1, 0.6])
    Y = g(Z * scales + shifts) @ rng.standard_normal((m, n_outputs)) + 0.5 + 1e-2 * rng.standard_normal((n, n_outputs))

    def residual(w):
        Phi = np.hstack([np.ones((n, 1)), g(Z * w[:m] + w[m:])])
        return (Phi @ np.linalg.lstsq(Phi, Y, rcond=None)[0] - Y).ravel()

    start = 1.05 * scales, shifts + 0.05
    expected = scipy.optimize.least_squares(residual, np.concatenate(start), xtol=1e-12, ftol=1e-12, gtol=1e-12)
    network, result = fit_ridge_units(Z, Y, g, *start)
    assert result.cost == pytest.approx(2 * expected.cost, rel=1e-6)
    assert np.sum((network(Z) - Y) ** 2) == pytest.approx(result.cost, rel=1e-9)
    np.testing.assert_allclose(result.x, expected.x, atol=1e-2)


def test_ridge_units_exact(rng):
    g = get_activation("tanh")
    truth = make_network((4, 4, 2), output_activation="identity", random_state=0)
    Z = rng.standard_normal((100, 4))
    scales, shifts = np.array([0.5, 1.0, 1.5, 2.0]), np.array([0.3, 0.0, -0.3, 0.5])
    Y = g(Z * scales + shifts) @ truth.weights[1] + truth.biases[1]
    network, result = fit_ridge_units(Z, Y, g, 0.8 * scales, shifts + 0.1)
    assert result.status == "target"
    np.testing.assert_allclose(np.diag(network.weights[0]), scales, rtol=1e-9)
    np.testing.assert_allclose(network.weights[1], truth.weights[1], rtol=1e-8)


def test_equal_units_do_not_blow_up(rng):
    """Two units with one direction and one start make the readout's least squares singular."""
    Z = np.repeat(rng.standard_normal((40, 1)), 2, axis=1)
    network, result = fit_ridge_units(Z, np.tanh(Z[:, :1]), get_activation("tanh"), np.ones(2), np.zeros(2))
    assert result.cost < 1e-20 and np.abs(network.weights[1]).max() < 10


@pytest.mark.parametrize("activation", ["softplus", "gelu", "silu"])
def test_ridge_units_with_wrong_signs(activation, rng):
    """A softplus or gelu unit turned round is off by a line; the fit must notice and turn it back."""
    network = make_network(
        (6, 5, 2), activation=activation, output_activation="identity", shift_scale=0.3, random_state=1
    )
    X = rng.standard_normal((300, 6))
    signs = np.array([1.0, -1.0, 1.0, -1.0, -1.0])
    Z = X @ (network.weights[0] * signs)
    found, result = fit_ridge_units(Z, network(X), get_activation(activation), np.full(5, 0.7), np.zeros(5))
    np.testing.assert_allclose(np.diag(found.weights[0]), signs, atol=1e-8)
    np.testing.assert_allclose(found.biases[0], network.biases[0], atol=1e-8)
    np.testing.assert_allclose(found(Z), network(X), atol=1e-10)
