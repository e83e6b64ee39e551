"""A network through ONNX into a mixed integer program: OMLT writes it down, HiGHS solves it."""

import numpy as np
import pytest

from skident.network import FeedforwardNetwork

omlt = pytest.importorskip("omlt")
pytest.importorskip("highspy")
pyo = pytest.importorskip("pyomo.environ")


def test_the_smallest_output_of_a_relu_network():
    from omlt.io.onnx import load_onnx_neural_network
    from omlt.neuralnet import ReluBigMFormulation

    rng = np.random.RandomState(0)
    weights = [rng.standard_normal(shape) for shape in [(2, 6), (6, 4), (4, 1)]]
    network = FeedforwardNetwork(weights, [rng.standard_normal(m) for m in (6, 4, 1)], "relu")
    definition = load_onnx_neural_network(network.to_onnx(), input_bounds=[(-1.0, 1.0)] * 2)
    model = pyo.ConcreteModel()
    model.network = omlt.OmltBlock()
    model.network.build_formulation(ReluBigMFormulation(definition))
    model.answer = pyo.Objective(expr=model.network.outputs[0])
    pyo.SolverFactory("appsi_highs").solve(model)
    x = np.array([[pyo.value(model.network.inputs[i]) for i in range(2)]])
    smallest = pyo.value(model.network.outputs[0])
    assert abs(smallest - network(x)[0, 0]) < 1e-7
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 401)] * 2), axis=-1).reshape(-1, 2)
    assert smallest <= network(grid).min() + 1e-7
