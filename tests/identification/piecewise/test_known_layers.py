import numpy as np
import pytest


@pytest.fixture(params=[((4, 6, 5, 1), 1), ((4, 6, 5, 1), 2), ((5, 6, 4, 3, 1), 3)], ids=str)
def setting(request, planted):
    widths, n = request.param
    net = planted(widths, 0)
    known, factors = net.known(n)
    return net, known, factors, net.rng.standard_normal((7, widths[0]))


def test_features_are_those_of_the_definition(setting):
    net, known, factors, X = setting
    Z, phi = known.evaluate(X)
    every = net.pre_activations(X)[: len(known.layers) + 1]
    before = X if len(every) == 1 else np.maximum(every[-2], 0.0)
    np.testing.assert_allclose(Z, np.hstack([*every[:-1], every[-1] * factors]), atol=1e-14)
    np.testing.assert_allclose(phi, np.hstack([np.abs(every[-1] * factors), before, np.ones((7, 1))]), atol=1e-14)


def test_derivatives_are_numerical_differences(setting):
    net, known, _, X = setting
    D, h = known.n_inputs, 1e-6
    Z, _ = known.evaluate(X)
    active, theta = Z > 0, net.rng.standard_normal(known.n_features)
    differences = []
    for e in np.eye(D):
        (up, phi_up), (down, phi_down) = known.evaluate(X + h * e), known.evaluate(X - h * e)
        differences.append(((up - down) / (2 * h), (phi_up - phi_down) / (2 * h)))
    dZ, dphi = (np.stack(part, axis=2) for part in zip(*differences, strict=True))
    np.testing.assert_allclose(known.gradient_norms(active), np.linalg.norm(dZ, axis=2), atol=1e-7)
    np.testing.assert_allclose(known.feature_gradients(active), dphi, atol=1e-7)
    np.testing.assert_allclose(known.gradients(active, theta), np.einsum("ntd,t->nd", dphi, theta), atol=1e-6)
    U = net.rng.standard_normal(X.shape)
    along, along_phi = known.tangents(active, U)
    np.testing.assert_allclose(along, np.einsum("nmd,nd->nm", dZ, U), atol=1e-6)
    np.testing.assert_allclose(along_phi, np.einsum("ntd,nd->nt", dphi, U), atol=1e-6)
    for k in range(Z.shape[1]):
        np.testing.assert_allclose(known.boundary_gradients(active, np.full(len(X), k)), dZ[:, k], atol=1e-7)


def test_a_unit_of_the_next_layer_is_linear_in_the_features(setting):
    net, known, factors, _ = setting
    n = len(known.layers) + 1
    if n == len(net.network.weights) - 1:
        return
    X = net.rng.standard_normal((200, known.n_inputs))
    phi, z = known.evaluate(X)[1], net.pre_activations(X)[n]
    theta = np.linalg.lstsq(phi, z, rcond=None)[0]
    np.testing.assert_allclose(phi @ theta, z, atol=1e-12)
    np.testing.assert_allclose(
        2.0 * theta[: known.n_units] * np.abs(factors)[:, None], net.network.weights[n], atol=1e-10
    )


def test_points_on_boundaries(setting):
    net, known, _, X = setting
    x = net.kink_of(1, 2)[0]
    np.testing.assert_array_equal(known.on_boundaries(np.vstack([x, X])), [True, *[False] * 7])
    assert known.on_boundaries(X[:0]).shape == (0,)


def test_combinations_of_the_features(setting):
    net, known, _, X = setting
    phi, thetas = known.evaluate(X)[1], net.rng.standard_normal((known.n_features, 3))
    values, norms = known.combinations(X, thetas)
    np.testing.assert_allclose(values, phi @ thetas, atol=1e-13)
    np.testing.assert_allclose(norms, np.linalg.norm(phi, axis=1), rtol=1e-14)
