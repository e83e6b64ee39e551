"""Quantized copies of a network, from files, modules and functions: named, unless one weight differs by three steps."""

import json
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from skident import verify_same
from skident.cli import main
from skident.datasets import make_network

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

ROWS = np.random.default_rng(0).standard_normal((100, 6))
KINDS = [(kind, per_channel) for kind in ("dynamic", "QDQ", "QOperator", "torch") for per_channel in (False, True)]


def network_of(activation="relu", seed=0):
    return make_network(
        (6, 9, 8, 3), activation=activation, output_activation="identity", random_state=seed, bias_scale=0.3
    )


class Calibration(quantization.CalibrationDataReader):
    """Rows of X, one at a time."""

    def __init__(self):
        self.rows = iter([{"X": row[None].astype(np.float32)} for row in ROWS])

    def get_next(self):
        return next(self.rows, None)


def quantized_file(network, kind, per_channel, folder):
    source, path = folder / "source.onnx", folder / "int8.onnx"
    network.to_onnx(source, dtype="float32")
    options = {"per_channel": per_channel, "weight_type": quantization.QuantType.QInt8}
    if kind == "dynamic":
        quantization.quantize_dynamic(source, path, **options)
    else:
        form = quantization.QuantFormat[kind]
        quantization.quantize_static(source, path, Calibration(), quant_format=form, **options)
    return path


def quantized_module(network, per_channel):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = {nn.Linear: torch.ao.quantization.per_channel_dynamic_qconfig} if per_channel else {nn.Linear}
        return torch.ao.quantization.quantize_dynamic(network.to_torch(torch.float32).eval(), kinds, dtype=torch.qint8)


def edited_file(path, edit):
    """The file after `edit` of its first matrix of integers."""
    model = onnx.load(path)
    tensor = next(t for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 2)
    integers = onnx.numpy_helper.to_array(tensor).copy()
    edit(integers)
    tensor.CopyFrom(onnx.numpy_helper.from_array(integers, tensor.name))
    onnx.save(model, path.with_name("edited.onnx"))
    return path.with_name("edited.onnx")


def three_steps(integers):
    integers[2, 3] += 3 if integers[2, 3] < 100 else -3


def one_step(integers):
    integers[2, 3] += 1 if integers[2, 3] < 100 else -1


def edited_module(module):
    layer = module[0]
    weight, integers = layer.weight(), layer.weight().int_repr().clone()
    three_steps(integers)
    if "channel" in str(weight.qscheme()):
        scheme = weight.q_per_channel_scales(), weight.q_per_channel_zero_points(), weight.q_per_channel_axis()
        edited = torch._make_per_channel_quantized_tensor(integers, *scheme)
    else:
        edited = torch._make_per_tensor_quantized_tensor(integers, weight.q_scale(), weight.q_zero_point())
    layer.set_weight_bias(edited, layer.bias())
    return module


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
@pytest.mark.parametrize(("kind", "per_channel"), KINDS)
def test_the_quantized_reference(kind, per_channel, activation, tmp_path):
    network = network_of(activation)
    if kind == "torch":
        box, changed = quantized_module(network, per_channel), edited_module(quantized_module(network, per_channel))
    else:
        box = quantized_file(network, kind, per_channel, tmp_path)
        changed = edited_file(box, three_steps)
    report = verify_same(box, network, ROWS, random_state=0)
    cause = report.causes[0]
    assert (report.verdict, report.same) == ("the quantized reference", False), str(report)
    assert cause.parameters["scheme"] == ("channel" if per_channel else "tensor") and cause.parameters["symmetric"]
    assert cause.parameters["activations"] == ("dynamic" if kind in ("dynamic", "torch") else "static")
    assert cause.parameters["changed"] == 0
    largest = np.abs(network.weights[0]).max(axis=0 if per_channel else None)
    np.testing.assert_allclose(cause.parameters["scales"][0], largest / 127.0, rtol=0.005)
    report = verify_same(changed, network, ROWS, random_state=0)
    assert report.verdict == "different" and report.causes[0].parameters["changed"] == 1
    assert "1 weights differ by more than one step" in str(report)


def as_function(box):
    if isinstance(box, nn.Module):
        return lambda X: box(torch.from_numpy(np.asarray(X, dtype=np.float32))).detach().numpy()
    session = onnxruntime.InferenceSession(box, providers=["CPUExecutionProvider"])
    return lambda X: session.run(None, {"X": np.asarray(X, dtype=np.float32)})[0]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["dynamic", "torch"])
def test_functions_with_dynamic_activations(kind, per_channel, tmp_path):
    network = network_of(seed=1)
    if kind == "torch":
        box, changed = quantized_module(network, per_channel), edited_module(quantized_module(network, per_channel))
    else:
        box = quantized_file(network, kind, per_channel, tmp_path)
        changed = edited_file(box, three_steps)
    report = verify_same(as_function(box), network, ROWS, random_state=0)
    assert report.verdict == "the quantized reference", str(report)
    assert report.causes[0].parameters["scheme"] == ("channel" if per_channel else "tensor")
    assert verify_same(as_function(changed), network, ROWS, random_state=0).verdict == "different"


def test_weights_that_differ_by_one_step_are_counted(tmp_path):
    network = network_of()
    path = edited_file(quantized_file(network, "QDQ", False, tmp_path), one_step)
    report = verify_same(path, network, ROWS, random_state=0)
    assert report.verdict == "the quantized reference" and report.causes[0].parameters["one_step"] == 1
    assert "1 weights differ by one step" in str(report)


def test_other_networks_are_not_the_reference(tmp_path):
    path = quantized_file(network_of(), "QDQ", True, tmp_path)
    assert verify_same(path, network_of(seed=5), ROWS, random_state=0).verdict == "different"
    report = verify_same(
        path,
        network_of().with_parameters(network_of().weights, [b + 0.1 for b in network_of().biases]),
        ROWS,
        random_state=0,
    )
    assert report.verdict == "different" and "another network: biases differ" in str(report)
    leaky = type(network_of())(network_of().weights, network_of().biases, "elu")
    report = verify_same(path, leaky, ROWS, random_state=0)
    assert report.verdict == "different" and "another network: activations differ" in str(report)


@pytest.mark.parametrize("kind", ["dynamic", "QDQ", "QOperator"])
def test_scales_of_zero_are_named(kind, tmp_path):
    path = quantized_file(network_of(), kind, False, tmp_path)
    model = onnx.load(path)
    tensor = next(t for t in model.graph.initializer if t.name == "weights_2_scale")
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros_like(onnx.numpy_helper.to_array(tensor)), tensor.name))
    onnx.save(model, path)
    with pytest.raises(ValueError, match="scale 'weights_2_scale' of the quantized ONNX model must be positive, got 0"):
        verify_same(path, network_of(), ROWS, random_state=0)


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    network = network_of()
    path = quantized_file(network, "QDQ", False, tmp_path)
    network.save("network.safetensors")
    np.savetxt("X.csv", ROWS, delimiter=",")
    assert main(["audit", path.name, "network.safetensors", "--data", "X.csv", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "the quantized reference"
