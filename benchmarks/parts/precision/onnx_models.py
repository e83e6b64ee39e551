"""ONNX models in float32, by path and by session: perceptrons, and a convolution before a linear layer."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import seed_ranges
from cases.float32_models import Case, in_float64, torch_network
from registry import part
from skident.network import FeedforwardNetwork

from .fits import measured_fit
from .rows import MAX_ERROR, rows_table

NETWORKS, QUICK, SECONDS = 10, 1, 60.0
FIRST = seed_ranges.PRECISION.start + 500
SIDE, KERNEL, CHANNELS = 6, 3, 2  # of images, and of the convolution


def perceptron(seed):
    """An ONNX model of a perceptron in float32, its samples, and the same weights in float64."""
    activation = ("tanh", "relu")[seed % 2]
    network, X = torch_network(Case((10, 16, 2), activation, True), seed)
    truth = in_float64(network, activation)
    return truth.to_onnx(dtype="float32"), X, truth


def convolution(seed):
    """An ONNX model of Conv + ReLU + Linear in float32 with weights as torch initializes them."""
    rng, n_out = np.random.RandomState(seed), SIDE - KERNEL + 1
    m = CHANNELS * n_out**2
    kernels = (rng.uniform(-1, 1, (CHANNELS, 1, KERNEL, KERNEL)) / KERNEL).astype(np.float32)
    shifts = (rng.uniform(-1, 1, CHANNELS) / KERNEL).astype(np.float32)
    outgoing, offset = ((rng.uniform(-1, 1, shape) / np.sqrt(m)).astype(np.float32) for shape in ((m, 1), 1))
    parts = {"K": kernels, "k": shifts, "V": outgoing, "v": offset, "image": np.array([-1, 1, SIDE, SIDE])}
    nodes = [
        helper.make_node("Reshape", ["x", "image"], ["pixels"]),
        helper.make_node("Conv", ["pixels", "K", "k"], ["z"]),
        helper.make_node("Relu", ["z"], ["h"]),
        helper.make_node("Flatten", ["h"], ["flat"]),
        helper.make_node("Gemm", ["flat", "V", "v"], ["y"]),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])]
        for name, size in (("x", SIDE**2), ("y", 1))
    ]
    graph = helper.make_graph(nodes, "g", *ends, [numpy_helper.from_array(a, name) for name, a in parts.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    dense = np.zeros((SIDE, SIDE, CHANNELS, n_out, n_out))
    for i, j in np.ndindex(n_out, n_out):
        dense[i : i + KERNEL, j : j + KERNEL, :, i, j] = np.moveaxis(kernels[:, 0], 0, -1)
    weights = [dense.reshape(SIDE**2, m), outgoing.astype(float)]
    biases = [np.repeat(shifts.astype(float), n_out**2), offset.astype(float)]
    X = rng.standard_normal((500, SIDE**2)).astype(np.float32).astype(float)
    return model, X, FeedforwardNetwork(weights, biases, "relu", "identity")


def trial(make, by, seed, folder):
    """One model, by path or by session."""
    model, X, truth = make(seed)
    path = str(Path(folder) / f"{make.__name__}_{seed}.onnx")
    onnx.save(model, path)
    given = path if by == "path" else onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    result = {"seed": seed} | measured_fit(given, X, truth, seconds=SECONDS)
    print(make.__name__, by, result, flush=True)
    return result


@part("precision", "onnx", seeds=seed_ranges.PRECISION)
def run(trials, quick):
    """Both kinds, every other model by path."""
    n, rows = QUICK if quick else trials or NETWORKS, []
    with tempfile.TemporaryDirectory() as folder:
        for i, (make, n_right) in enumerate(((perceptron, 9), (convolution, 8))):
            bars = {"right": n_right, "accurate": n_right, "seconds": None, "queries": None}
            done = [trial(make, ("path", "session")[k % 2], FIRST + 20 * i + k, folder) for k in range(n)]
            rows.append({"name": make.__name__, "bars": bars, "max_error": MAX_ERROR, "trials": done})
    return {"rows": rows}


def tables(result):
    """As for the other rows."""
    return rows_table(result["rows"])
