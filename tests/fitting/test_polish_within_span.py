"""Polish of networks with a narrow first layer: the same minimum as in all inputs, from fewer parameters."""

import numpy as np
import pytest

from skident.base.progress import StageLog
from skident.datasets import make_network
from skident.fitting import polish_within_span as module
from skident.fitting.polish_within_span import polish_within_span, spans_few_inputs
from skident.metrics import parameter_error
from skident.oracle import Budget, Oracle


def bent(network, size, rng):
    """A network whose parameters are off by about `size`."""
    return network.with_parameters(
        [W + size * rng.standard_normal(W.shape) for W in network.weights],
        [b + size * rng.standard_normal(b.shape) for b in network.biases],
    )


@pytest.mark.parametrize(("activation", "outputs"), [("tanh", 3), ("sigmoid", 2), ("gelu", 1)])
@pytest.mark.parametrize("size", [1e-4, 1e-7])
def test_to_rounding_also_outside_of_the_span(activation, outputs, size, rng):
    network = make_network(
        (30, 5, 4, outputs), activation=activation, output_activation="identity", bias_scale=0.3, random_state=0
    )
    oracle, log = Oracle(network, 30), StageLog()
    found, residual, sample = polish_within_span(oracle, bent(network, size, rng), np.random.RandomState(0), log)
    U = rng.standard_normal((500, 30))
    assert residual < 1e-13
    assert np.abs(found(U) - network(U)).max() < 1e-12 * np.abs(network(U)).max()
    assert parameter_error(network, found) < 1e-9
    np.testing.assert_allclose(sample.outputs, network(sample.inputs), atol=1e-12)
    assert sum(stage.queries for stage in log.stages) == oracle.n_queries


def test_an_exhausted_budget_keeps_the_network_within_the_span(rng):
    network = make_network((30, 5, 2), activation="tanh", output_activation="identity", random_state=0)
    start = bent(network, 1e-7, rng)
    oracle = Oracle(network, 30, budget=Budget(max_queries=200))
    found, _, _ = polish_within_span(oracle, start, np.random.RandomState(0), StageLog())
    assert "200" in oracle.exhausted
    U = rng.standard_normal((500, 30)) @ np.linalg.qr(start.weights[0])[0] @ np.linalg.qr(start.weights[0])[0].T
    assert np.abs(found(U) - network(U)).max() < 1e-12 * np.abs(network(U)).max()


def test_it_applies_to_many_parameters_narrow_layers_and_inputs_without_limits(monkeypatch):
    wide = make_network((10, 8, 2), output_activation="identity", random_state=0)
    narrow = make_network((30, 5, 2), output_activation="identity", random_state=0)
    monkeypatch.setattr(module, "_MANY_PARAMETERS", 50)
    assert spans_few_inputs(Oracle(narrow, 30), narrow, None)
    assert not spans_few_inputs(Oracle(wide, 10), wide, None)
    assert not spans_few_inputs(Oracle(narrow, 30), narrow, 1e-3)
    assert not spans_few_inputs(Oracle(narrow, 30, input_range=(np.full(30, -5.0), np.full(30, 5.0))), narrow, None)
    monkeypatch.undo()
    assert not spans_few_inputs(Oracle(narrow, 30), narrow, None)
