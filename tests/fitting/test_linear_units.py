"""Units that may face either way, but for a linear function."""

import numpy as np
import pytest

from skident.fitting.linear_units import oddness, sides_chosen, with_linear_units
from skident.network import Architecture, FeedforwardNetwork


@pytest.mark.parametrize(("name", "k"), [("softplus", 1), ("silu", 1), ("relu", 1), ("sin", 0), ("elu", 0)])
def test_what_is_odd_about_activations(name, k):
    assert oddness(name) == pytest.approx(k, abs=1e-12)


@pytest.mark.parametrize("activation", ["softplus", "gelu"])
def test_sides_are_chosen_such_that_no_linear_part_is_left(activation):
    rng = np.random.RandomState(0)
    W, b, A, c = (rng.standard_normal(s) for s in ((5, 4), (4,), (4, 2), (2,)))
    truth = FeedforwardNetwork([W, A], [b, c], activation)
    turned = np.array([True, False, True, False])
    sign = np.where(turned, -1.0, 1.0)
    mixed = with_linear_units(Architecture((4, 2), activation))
    # g(z) = g(-z) + z: what the turned units lack
    weights = [np.concatenate([W * sign, W @ (A * turned[:, None])], axis=1), np.concatenate([A, np.eye(2)])]
    biases = [np.concatenate([b * sign, (b * turned) @ A]), c]
    U = rng.standard_normal((20, 5))
    wrong = FeedforwardNetwork(weights, biases, *mixed.names)
    np.testing.assert_allclose(wrong(U), truth(U), atol=1e-12)
    same, more = sides_chosen(weights, biases, activation)
    assert (same.layer_widths, more.layer_widths) == ((4, 2), (8, 2))
    for found in (same, more):
        np.testing.assert_allclose(found(U), truth(U), atol=1e-12)
