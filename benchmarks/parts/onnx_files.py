"""Networks read from and written to ONNX files: outputs agree to rounding."""

from __future__ import annotations

import importlib.metadata
import io
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from scipy.special import expit, softmax
from skl2onnx import to_onnx
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor

import seed_ranges
from common import format_table
from registry import part
from skident.audit.rounding import rounding_of_outputs
from skident.network import FeedforwardNetwork

N_NETWORKS, N_ROWS = 10, 2000
BAR = 1e-12  # in double precision
SIGMAS = 8.0  # standard deviations of rounding, as in an audit


def run_model(model, X):
    """The last output of a model in onnxruntime, in double."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    rows = X.astype({"tensor(float)": np.float32, "tensor(double)": np.float64}[given.type])
    outputs = np.asarray(session.run(None, {given.name: rows})[-1], dtype=float)
    return outputs.reshape(len(X), -1)


def _shape(rng):
    return int(rng.randint(3, 21)), tuple(int(m) for m in rng.randint(5, 41, size=rng.randint(1, 3)))


def _fitted(estimator, rng):
    D, widths = _shape(rng)
    X, activation = rng.standard_normal((200, D)), ("tanh", "relu")[rng.randint(2)]
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    if isinstance(estimator, MLPClassifier):
        y = np.digitize(y, [-0.5, 0.5][: rng.randint(1, 3)])
    estimator.set_params(hidden_layer_sizes=widths, activation=activation, max_iter=20, random_state=rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y), D


def regressor(rng, dtype):
    """A fitted MLPRegressor: its outputs, and its file."""
    mlp, D = _fitted(MLPRegressor(), rng)
    return mlp.predict, to_onnx(mlp, np.zeros((1, D), dtype)), np.asarray, D


def classifier(rng, dtype):
    """A fitted MLPClassifier of two or three classes, queried for probabilities."""
    mlp, D = _fitted(MLPClassifier(), rng)
    model = to_onnx(mlp, np.zeros((1, D), dtype), options={"zipmap": False})
    return mlp.predict_proba, model, _probabilities, D


def _probabilities(Z):
    return softmax(Z, axis=1) if Z.shape[1] > 1 else np.hstack([expit(-Z), expit(Z)])


def torch_module(rng, dtype):
    """A torch module in the same precision, queried in double precision."""
    D, widths = _shape(rng)
    torch.manual_seed(rng.randint(2**31 - 1))
    kind, sizes = (torch.nn.Tanh, torch.nn.ReLU)[rng.randint(2)], [D, *widths, rng.randint(1, 4)]
    parts = [part for n, m in zip(sizes, sizes[1:]) for part in (torch.nn.Linear(n, m), kind())][:-1]
    module, file = torch.nn.Sequential(*parts).to(torch.from_numpy(np.zeros(1, dtype)).dtype).eval(), io.BytesIO()
    rows = torch.from_numpy(np.zeros((2, D), dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(module, (rows,), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    module.double()

    def outputs(X):
        with torch.no_grad():
            return module(torch.from_numpy(X)).numpy()

    return outputs, onnx.load_from_string(file.getvalue()), np.asarray, D


def own_network(rng, dtype):
    """A network and its own file."""
    D, widths = _shape(rng)
    sizes = [D, *widths, rng.randint(1, 4)]
    weights = [rng.standard_normal((n, m)) / np.sqrt(n) for n, m in zip(sizes, sizes[1:])]
    biases, activation = [0.3 * rng.standard_normal(m) for m in sizes[1:]], ("tanh", "relu")[rng.randint(2)]
    network = FeedforwardNetwork(weights, biases, activation)
    return network, network.to_onnx(dtype=dtype), np.asarray, D


SOURCES = {
    "MLPRegressor, skl2onnx": regressor,
    "MLPClassifier, skl2onnx": classifier,
    "torch module, torch.onnx": torch_module,
    "FeedforwardNetwork, to_onnx": own_network,
}


def trial(source, seed, dtype):
    """One network there and back: largest differences from its own outputs."""
    rng = np.random.RandomState(seed)
    function, model, of_network, D = source(rng, dtype)
    X = rng.standard_normal((N_ROWS, D)).astype(np.float32).astype(float)  # the same rows in both precisions
    truth, network = np.asarray(function(X)).reshape(N_ROWS, -1), FeedforwardNetwork.from_onnx(model)
    again = network.to_onnx(dtype=dtype)
    found = {
        "read": of_network(network(X)),
        "their file run": run_model(model, X),
        "file written anew, run": of_network(run_model(again, X)),
    }
    single = np.dtype(dtype) == np.float32
    deviation = rounding_of_outputs(network, X, single=single).max(axis=1, keepdims=True)
    if of_network is _probabilities:  # which move by half as much as logits at most, and are rounded themselves
        deviation = deviation + np.finfo(dtype).eps
    gaps = {key: np.abs(value - truth) for key, value in found.items()}
    largest = np.abs(truth).max()
    return {key: float(gap.max() / largest) for key, gap in gaps.items()} | {
        "over rounding": float(max((gap / (SIGMAS * deviation)).max() for gap in gaps.values())),
        "the same again": FeedforwardNetwork.from_onnx(again) == network,
    }


@part("onnx", "files", seeds=seed_ranges.ONNX)
def run(trials, quick):
    """All sources in both precisions."""
    n, rows = (2 if quick else trials or N_NETWORKS), []
    for number, (name, source) in enumerate(SOURCES.items()):
        for dtype in ("float64", "float32"):
            first = seed_ranges.ONNX.start + 100 * number
            found = [trial(source, seed, dtype) for seed in range(first, first + n)]
            worst = {key: max(t[key] for t in found) for key in ("read", "their file run", "file written anew, run")}
            rounding = max(t["over rounding"] for t in found)
            met = max(worst.values()) <= BAR if dtype == "float64" else rounding <= 1.0
            same = sum(t["the same again"] for t in found)
            row = {"source": name, "numbers": dtype, "networks": n, **worst, "over rounding": rounding}
            rows.append(row | {"the same again": same, "met": bool(met and same == n)})
    return {"rows": rows, "versions": {p: importlib.metadata.version(p) for p in ("onnx", "onnxruntime", "skl2onnx")}}


def tables(result):
    """Differences by source and precision."""
    header = ["network, written by", "numbers", "read by from_onnx", "run by onnxruntime"]
    header += [
        "written by to_onnx, run by onnxruntime",
        "maximum / 8 sd of rounding",
        "identical when read again",
        "met",
    ]
    keys = ("source", "numbers", "read", "their file run", "file written anew, run", "over rounding")
    rows = [
        [r[key] for key in keys] + [f"{r['the same again']} of {r['networks']}", "pass" if r["met"] else "**FAIL**"]
        for r in result["rows"]
    ]
    versions = ", ".join(" ".join(pair) for pair in result["versions"].items())
    return f"{format_table(header, rows)}\n\nWith {versions}."
