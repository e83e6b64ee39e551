import numpy as np
import pytest

from skident.audit.parameters import ParameterEffects
from skident.datasets import make_network


@pytest.fixture(scope="module")
def case():
    rng = np.random.RandomState(0)
    network = make_network((3, 4, 5, 2), random_state=0)
    X, tolerance = rng.standard_normal((7, 3)), rng.uniform(0.5, 2.0, (7, 2))
    return network, X, tolerance, ParameterEffects(network, X, tolerance)


def reference_columns(network, X, tolerance, step=1e-6):
    """Effects of all parameters by central differences, layer by layer, and the parameters' names."""
    layers = [np.vstack([W, b]) for W, b in zip(network.weights, network.biases)]
    columns, names = [], []
    for layer, matrix in enumerate(layers):
        for row in range(matrix.shape[0]):
            for unit in range(matrix.shape[1]):
                sides = []
                for sign in (1.0, -1.0):
                    moved = [np.array(a) for a in layers]
                    moved[layer][row, unit] += sign * step
                    sides.append(network.with_parameters([a[:-1] for a in moved], [a[-1] for a in moved])(X))
                columns.append(((sides[0] - sides[1]) / (2 * step) / tolerance).ravel())
                names.append((layer, row, unit))
    return np.stack(columns, axis=1), names


def test_all_effects_are_those_of_differences(case):
    network, X, tolerance, effects = case
    J, names = reference_columns(network, X, tolerance)
    np.testing.assert_allclose(effects.columns(names), J, atol=1e-8)
    flat = lambda parts: np.concatenate([p.ravel() for p in parts])  # noqa: E731
    np.testing.assert_allclose(flat(effects.norms()), np.linalg.norm(J, axis=0), atol=1e-8)
    R = np.random.RandomState(1).standard_normal((7, 2))
    np.testing.assert_allclose(flat(effects.correlations(R)), J.T @ R.ravel(), atol=1e-8)
    np.testing.assert_allclose(flat(effects.largest()), np.abs(J).max(axis=0), atol=1e-8)


def test_removals_are_first_order_effects_of_outgoing_weights(case):
    network, X, tolerance, effects = case
    J, names = reference_columns(network, X, tolerance)
    for layer in (0, 1):
        gone = effects.removals(layer)
        for unit in range(network.layer_widths[layer]):
            W = network.weights[layer + 1]
            columns = [names.index((layer + 1, unit, k)) for k in range(W.shape[1])]
            np.testing.assert_allclose(gone[unit], -J[:, columns] @ W[unit], atol=1e-8)


def test_the_strength_of_a_unit_is_the_effect_of_its_shift(case):
    network, X, tolerance, effects = case
    bias = effects.columns([(1, 4, 3)]).reshape(7, 2)  # the row after the four weights
    np.testing.assert_allclose(effects.strength(1)[:, 3], np.abs(bias).max(axis=1))
