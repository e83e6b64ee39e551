"""Several changed weights are found where a part of the outputs does not show them."""

import numpy as np
import pytest

from skident.audit import explanations
from skident.audit.parameters import ParameterEffects
from skident.network import FeedforwardNetwork


@pytest.mark.parametrize("shown", [slice(1, None, 2), slice(None)], ids=["in others only", "everywhere"])
def test_many_answers(shown, monkeypatch):
    monkeypatch.setattr(explanations, "_OUTPUTS_FIRST", 100)
    rng = np.random.default_rng(0)
    network = FeedforwardNetwork([rng.normal(size=(5, 6)), rng.normal(size=(6, 1))], [rng.normal(size=6), [0.0]])
    X, tolerance = rng.normal(size=(280, 5)), np.full((280, 1), np.inf)
    tolerance[shown] = 1e-12
    changed = {(0, 1, 2), (0, 3, 4), (0, 0, 5)}
    weights = [np.array(W) for W in network.weights]
    for layer, row, unit in changed:
        weights[layer][row, unit] += 1e-4
    outputs = network.with_parameters(weights, network.biases)(X)
    found = explanations.explain_differences(ParameterEffects(network, X, tolerance), outputs, tolerance)
    assert found.kind == "weights" and set(found.named) == changed and found.max_residual <= 1.0
    truth = [weights[layer][row, unit] for layer, row, unit in found.named]
    np.testing.assert_allclose(found.values, truth, atol=1e-9)
