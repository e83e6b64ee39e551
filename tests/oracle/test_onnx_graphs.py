"""ONNX models with several inputs or outputs: queried, or refused with a call that makes a model of one output."""

import re

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from skident import NetworkIdentifier
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle

RNG = np.random.default_rng(0)
X = RNG.standard_normal((100, 4))
W, V = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 3))
LOGITS = np.tanh(X @ W) @ V
LAYERS = [("MatMul", ["x", "W"], "z", {}), ("Tanh", ["z"], "h", {}), ("MatMul", ["h", "V"], "logits", {})]
LABEL = ("ArgMax", ["logits"], "label", {"axis": 1, "keepdims": 0})
CLASSES = ("Softmax", ["logits"], "p", {"axis": 1})


def written(path, nodes, outputs, widths=(4,)):
    """A file of float64 tensors with inputs x, or x0, x1, ... of these widths."""
    names = ["x"] if len(widths) == 1 else [f"x{i}" for i in range(len(widths))]
    real = TensorProto.DOUBLE
    graph = helper.make_graph(
        [helper.make_node(kind, read, [name], **options) for kind, read, name, options in nodes],
        "graph",
        [helper.make_tensor_value_info(name, real, ["n", width]) for name, width in zip(names, widths)],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["n"])
            if name == "label"
            else helper.make_tensor_value_info(name, real, ["n", 3])
            for name in outputs
        ],
        [numpy_helper.from_array(W, "W"), numpy_helper.from_array(V, "V")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def test_labels_and_logits(tmp_path):
    path = written(tmp_path / "model.onnx", [*LAYERS, LABEL], ["label", "logits"])
    assert np.abs(FeedforwardNetwork.from_onnx(path)(X) - LOGITS).max() < 1e-13
    assert NetworkIdentifier(path, random_state=0).fit(X).report_.exact


def test_labels_and_probabilities(tmp_path):
    path = written(tmp_path / "model.onnx", [*LAYERS, LABEL, CLASSES], ["label", "p"])
    with pytest.raises(ValueError, match="use response_method='predict_proba'"):
        Oracle(path, 4)
    found = NetworkIdentifier(path, response_method="predict_proba", random_state=0).fit(X)
    assert found.report_.exact


@pytest.mark.parametrize("read", [FeedforwardNetwork.from_onnx, lambda path: Oracle(path, 4)])
def test_several_outputs_name_a_call_that_keeps_one(read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written("model.onnx", [*LAYERS, LABEL, CLASSES], ["label", "logits", "p"])
    with pytest.raises(ValueError, match="eep one, with onnx.utils.extract_model") as caught:
        read(path)
    eval(re.search(r"onnx\.utils\.extract_model\(.*?\]\)", str(caught.value))[0])
    assert np.abs(FeedforwardNetwork.from_onnx("one.onnx")(X) - LOGITS).max() < 1e-13
    assert np.abs(Oracle("one.onnx", 4).query_inputs(X) - LOGITS).max() < 1e-13


def test_one_input_per_column(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    widths = (1, 1, 1, 1)
    joined = ("Concat", [f"x{i}" for i in range(len(widths))], "x", {"axis": 1})
    path = written("model.onnx", [joined, *LAYERS], ["logits"], widths)
    assert np.abs(Oracle(path, 4).query_inputs(X) - LOGITS).max() < 1e-13
    assert np.abs(FeedforwardNetwork.from_onnx(path)(X) - LOGITS).max() < 1e-13


def test_a_module_with_its_own_forward_names_a_call_that_runs():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(4, 5), nn.Linear(5, 2)

        def forward(self, x):
            h = torch.tanh(self.inner(x))
            return 0.5 * self.outer(h) + 0.5 * self.outer(h)

    torch.manual_seed(0)
    module = Net().double()
    with pytest.raises(
        ValueError, match=r"cannot read Net: it defines its own forward, .*; query it instead"
    ) as caught:
        FeedforwardNetwork.from_torch(module)
    found = eval(re.search(r"NetworkIdentifier\(.*?\)\.fit\(X\)", str(caught.value))[0])
    assert found.report_.exact
