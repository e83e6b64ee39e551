import numpy as np
import pytest

from skident.datasets import make_network
from skident.fitting.removal import removal_costs, remove_unit
from skident.network import FeedforwardNetwork


def wider(network, layer, incoming, shift, outgoing):
    """The network with one more unit in a hidden layer."""
    weights, biases = list(network.weights), list(network.biases)
    weights[layer] = np.column_stack([weights[layer], incoming])
    biases[layer] = np.append(biases[layer], shift)
    weights[layer + 1] = np.vstack([weights[layer + 1], outgoing])
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


def superfluous(network, kind, layer):
    W, V = network.weights[layer], network.weights[layer + 1]
    b = network.biases[layer]
    return {
        "copy": wider(network, layer, W[:, 0], b[0], 0.5 * V[0]),
        "opposite copy": wider(network, layer, -W[:, 0], -b[0], V[1]),
        "no outgoing weights": wider(network, layer, W[:, 0] + W[:, 1], 0.3, 0.0 * V[0]),
        "constant": wider(network, layer, 0.0 * W[:, 0], 0.7, V[0]),
    }[kind]


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("kind", ["copy", "opposite copy", "no outgoing weights", "constant"])
def test_superfluous_units_cost_nothing_and_can_go(kind, layer, rng):
    network = make_network((6, 5, 4, 2), shift_scale=0.3, random_state=0)
    U = rng.standard_normal((100, 6))
    wide = superfluous(network, kind, layer)
    costs, takeovers = removal_costs(wide, U)
    # The ridge of 1e-10 on unit variances leaves errors of its square root in replacements, squared in costs.
    assert costs[layer][-1] < 1e-8
    assert all(c.min() > 1e-6 for k, c in enumerate(costs) if k != layer)
    smaller = remove_unit(wide, layer, len(costs[layer]) - 1, takeovers[layer][:, -1])
    assert smaller.layer_widths == network.layer_widths
    np.testing.assert_allclose(smaller(U), wide(U), atol=1e-7)


def test_costs_are_what_a_linear_layer_loses(rng):
    """With one hidden layer and linear output the prediction is exact: compare with least squares."""
    network = make_network((5, 4, 2), output_activation="identity", random_state=1)
    U = rng.standard_normal((300, 5))
    costs, takeovers = removal_costs(network, U)
    units = np.tanh(U @ network.weights[0] + network.biases[0])
    for j in range(4):
        others = np.column_stack([np.delete(units, j, axis=1), np.ones(300)])
        left = units[:, j] - others @ np.linalg.lstsq(others, units[:, j], rcond=None)[0]
        expected = np.mean(left**2) * np.sum(network.weights[1][j] ** 2)
        assert costs[0][j] == pytest.approx(expected, rel=1e-6)
        change = remove_unit(network, 0, j, takeovers[0][:, j])(U) - network(U)
        assert np.mean(np.sum(change**2, axis=1)) == pytest.approx(expected, rel=1e-6)
