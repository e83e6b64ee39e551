import numpy as np
import pytest

from skident.identification.piecewise.deep.facet_unit import FacetUnit
from skident.identification.piecewise.deep.known_layers import KnownLayers
from skident.identification.piecewise.deep.signs import features_with_signs, layer_signs, signs_beside_linear_part


def unit_with(known, theta):
    unit = FacetUnit(known, np.ones(known.n_inputs), np.ones(known.n_inputs))
    unit.add_equations(1e9 * np.eye(len(theta)), 1e9 * theta, np.zeros((0, known.n_inputs)))
    unit.coef, unit.null_basis, unit.residual = theta, np.zeros((len(theta), 0)), 0.0
    return unit


def planted_layer(seed, D=5, K=7, J=4, n_missing=0):
    rng = np.random.RandomState(seed)
    W, b, s = rng.standard_normal((D, K)), rng.standard_normal(K), rng.choice([-1.0, 1.0], K)
    alpha = rng.standard_normal((K, J))
    missing = rng.standard_normal((D, n_missing)) @ rng.standard_normal((n_missing, J))
    theta = np.vstack([alpha, W @ (s[:, None] * alpha) + missing, rng.standard_normal(J)])
    known = KnownLayers([], W, b)
    return known, s, [unit_with(known, t) for t in theta.T]


def by_trying_all(known, units):
    """All signs, by the largest violation of the equations."""
    K = known.n_units
    best = None
    for i in range(2**K):
        s = np.array([1.0 - 2.0 * (i >> k & 1) for k in range(K)])
        misfit = max(np.abs(known.weights @ (s * u.coef[:K]) - u.coef[K:-1]).max() for u in units)
        best = min(best, (misfit, tuple(s))) if best else (misfit, tuple(s))
    return best


@pytest.mark.parametrize("seed", range(5))
def test_signs_are_those_of_trying_all(seed):
    known, s, units = planted_layer(seed)
    told = layer_signs(known, units)
    assert told.certain and told.determined.all() and told.residual < 1e-10
    np.testing.assert_array_equal(np.sign(told.signs), s)
    np.testing.assert_array_equal(by_trying_all(known, units)[1], s)


def test_a_stranger_is_left_out():
    known, s, units = planted_layer(0, J=5)
    stranger = unit_with(known, np.random.RandomState(1).standard_normal(known.n_features))
    told = layer_signs(known, [*units[:2], stranger, *units[2:]])
    assert told.certain and told.used == [0, 1, 3, 4, 5]
    np.testing.assert_array_equal(np.sign(told.signs), s)


@pytest.mark.parametrize(("J", "n_missing"), [(2, 1), (4, 1), (4, 2)])
def test_signs_beside_units_that_are_always_on(J, n_missing):
    known, s, units = planted_layer(2, D=8, J=J, n_missing=n_missing)
    assert not layer_signs(known, units).residual < 1e-5 or J == 2
    signs, linear = signs_beside_linear_part(known, units)
    np.testing.assert_array_equal(signs, s)
    K = known.n_units
    rest = np.array([u.coef[K:-1] - known.weights @ (s * u.coef[:K]) for u in units])
    np.testing.assert_allclose(rest @ linear @ linear.T, rest, atol=1e-10)
    assert linear.shape == (8, n_missing)


def test_no_signs_where_nothing_is_of_low_rank():
    known, _, units = planted_layer(3, D=8, J=3, n_missing=3)
    assert signs_beside_linear_part(known, units)[0] is None
    assert signs_beside_linear_part(known, units[:1])[0] is None


def test_a_unit_in_terms_of_its_own_weights(planted):
    net = planted((4, 6, 5, 1), 0)
    known, factors = net.known(1)
    X = net.rng.standard_normal((50, 4))
    linear = net.rng.standard_normal((4, 2))
    B = features_with_signs(known, np.sign(factors), linear)
    outputs = np.maximum(np.sign(factors) * known.evaluate(X)[0], 0.0)
    np.testing.assert_allclose(known.evaluate(X)[1] @ B, np.hstack([outputs, X @ linear, np.ones((50, 1))]), atol=1e-12)
