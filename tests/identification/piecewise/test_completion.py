import numpy as np

from skident.identification.piecewise.deep.known_layers import KnownLayers
from skident.identification.piecewise.deep.signs import layer_signs, with_missing_weights

from .test_layer_signs import unit_with


def test_a_weight_that_no_kink_tells_is_told_with_the_signs():
    """Unit 2 is on wherever input 1 is: what their weight adds is linear there."""
    rng, (m, K, J) = np.random.RandomState(0), (5, 7, 4)
    W, b, s = rng.standard_normal((m, K)), rng.standard_normal(K), rng.choice([-1.0, 1.0], K)
    alpha, d = rng.standard_normal((K, J)), rng.standard_normal(J)
    lacking, vague = W.copy(), np.zeros((m, K), dtype=bool)
    lacking[1, 2], vague[1, 2] = 0.0, True
    c = lacking @ (s[:, None] * alpha)
    c[1] += 2.0 * s[2] * alpha[2] * W[1, 2]
    known = KnownLayers([], lacking, b)
    units = [unit_with(known, theta) for theta in np.vstack([alpha, c, d]).T]
    assert not layer_signs(known, units[:2]).residual < 1e-5
    told = layer_signs(known, units, undetermined=vague)
    assert told.certain and told.residual < 1e-10 and told.used == [0, 1, 2, 3]
    np.testing.assert_array_equal(np.sign(told.signs), s)
    whole, moved = with_missing_weights(known, units, told)
    np.testing.assert_allclose(whole.weights, W, atol=1e-9)
    truth = np.vstack([alpha, W @ (s[:, None] * alpha), d]).T
    rows = np.array([unit.equations[known.n_inputs + 1 :] @ theta for unit, theta in zip(moved, truth, strict=True)])
    np.testing.assert_allclose(rows, np.array([unit.targets[known.n_inputs + 1 :] for unit in moved]), rtol=1e-9)
    assert with_missing_weights(known, units, told._replace(missing_weights=np.zeros((m, K))))[0] is known
