"""Ordinary black boxes: float32, rounded, noisy, shifted and scaled outputs."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace

import numpy as np
import onnxruntime
import torch
from skl2onnx import to_onnx
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale

import seed_ranges
from parts.identification.grid import Noisy
from parts.identification.trials import Case, identify, notes, table
from registry import part
from skident.network import FeedforwardNetwork, change_outputs

_N_HELD_OUT = 2000
_TIMES_ROUNDING, _TIMES_NOISE = 20.0, 10.0  # largest error, relative to that of the outputs, of a recovered network
_TWO_SIGMA = 2.0  # standard errors within which nine weights in ten must be


def random_module(n_inputs, widths, seed):
    """A float32 torch network; hidden weights twice torch's, so that units bend."""
    torch.manual_seed(seed)
    layers = []
    for before, after in zip((n_inputs, *widths), widths):
        layers += [torch.nn.Linear(before, after), torch.nn.Tanh()]
    with torch.no_grad():
        for layer in layers[:-2:2]:
            layer.weight.mul_(2.0)
    return torch.nn.Sequential(*layers[:-1])


def in_single_precision(module):
    """Outputs of a deployed module as a function of float64 inputs."""

    def outputs(X):
        with torch.no_grad():
            return module(torch.as_tensor(X, dtype=torch.float32)).numpy()

    return outputs


def truth_of(module):
    """The module as a float64 network."""
    weights = [layer.weight.detach().double().numpy().T for layer in module[::2]]
    biases = [layer.bias.detach().double().numpy() for layer in module[::2]]
    return FeedforwardNetwork(weights, biases, "tanh", "identity")


def covered(truth, model):
    """Share of the weights within two standard errors of the true ones; None where there are no standard errors."""
    if model is None or model.stderr_ is None or model.layer_widths_ != truth.layer_widths:
        return None
    true, (weights, biases) = truth.align_to(model.network_), model.stderr_
    found = [*model.network_.weights, *model.network_.biases]
    gaps = zip(found, [*true.weights, *true.biases], [*weights, *biases], strict=True)
    return float(np.mean(np.concatenate([(np.abs(a - b) < _TWO_SIGMA * s).ravel() for a, b, s in gaps])))


def _case(seed, n_hidden):
    """Sizes, a module, and rows of X."""
    seed = seed_ranges.ORDINARY.start + seed % 100
    rng = np.random.RandomState(seed)
    D, widths = rng.randint(4, 21), (rng.randint(4, 31), 2)
    if n_hidden == 2:
        D, first = rng.randint(8, 21), rng.randint(4, 13)
        first = min(first, D)
        widths = (first, rng.randint(2, first), 2)
    module = random_module(D, widths, seed)
    return seed, module, truth_of(module), rng.standard_normal((200, D)), rng.standard_normal((_N_HELD_OUT, D))


def _judged(trial, model, truth, seed):
    """Recovered with the right widths, and not called exact."""
    right = trial.get("widths") == truth.layer_widths
    trial |= {"seed": seed, "covered": covered(truth, model), "right widths": right}
    return trial | {"success": bool(trial["success"] and right and not trial["exact"])}


def _single(n_hidden, told, seed):
    seed, module, truth, X, held_out = _case(seed, n_hidden)
    box, Y = in_single_precision(module), truth(held_out)
    unit = np.abs(Y - Y.mean(axis=0)).max(axis=0)
    rounding = float(np.max(np.abs(box(held_out) - Y) / unit))
    widths = truth.layer_widths if told == "widths" else told
    options = {"layer_widths": widths, "error": _TIMES_ROUNDING * rounding, "parameters": None, "max_seconds": 60.0}
    trial, model = identify(box, X, truth, held_out, seed=seed, **options)
    return _judged(trial | {"times": trial["error"] / rounding}, model, truth, seed)


def _rounded(mlp, X):
    """scikit-learn's regressor, inputs and outputs in single precision."""
    return lambda U: mlp.predict(U.astype(np.float32).astype(float))[:, None].astype(np.float32)


def _in_onnxruntime(mlp, X):
    """The same regressor converted to ONNX, (n, 1) in single precision throughout."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = to_onnx(mlp, X[:1].astype(np.float32)).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda U: session.run(None, {name: U.astype(np.float32)})[0]


def _trained(activation, deploy, seed):
    """scikit-learn's regressor on the diabetes data, as it is deployed."""
    seed = seed_ranges.ORDINARY.start + seed % 100
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X), scale(y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp = MLPRegressor(hidden_layer_sizes=(10,), activation=activation, max_iter=300, random_state=seed)
        mlp.fit(X, y)
    truth, box = FeedforwardNetwork.from_sklearn(mlp), deploy(mlp, X)
    held_out = np.random.RandomState(seed).standard_normal((_N_HELD_OUT, X.shape[1]))
    Y = truth(held_out)
    rounding = float(np.max(np.abs(box(held_out) - Y)) / np.abs(Y - Y.mean(axis=0)).max())
    options = {"error": _TIMES_ROUNDING * rounding, "parameters": None, "activation": activation}
    trial, model = identify(box, X, truth, held_out, seed=seed, **options)
    return _judged(trial | {"times": trial["error"] / rounding}, model, truth, seed)


def _disturbed(decimals, noise, seed):
    seed, _, truth, X, held_out = _case(seed, 1)
    disturb = Noisy(noise, truth, seed) if decimals is None else lambda Y: Y.round(decimals)
    Y = truth(held_out)
    unit = np.abs(Y - Y.mean(axis=0)).max(axis=0)
    level = noise * Y.std(axis=0) if decimals is None else 0.5 * 10.0**-decimals
    level = float(np.max(level / unit))
    error = _TIMES_NOISE * level
    trial, model = identify(lambda A: disturb(truth(A)), X, truth, held_out, seed=seed, error=error, parameters=None)
    return _judged(trial | {"times": trial["error"] / level}, model, truth, seed)


def _mapped(offset, unit, seed):
    seed, _, truth, X, held_out = _case(seed, 2)
    mapped = change_outputs(truth, np.full(2, offset), np.full(2, unit))
    box = lambda A: offset + unit * truth(A)  # noqa: E731
    options = {"layer_widths": truth.layer_widths, "parameters": None}
    plain, _ = identify(truth, X, truth, held_out, seed=seed, **options)
    trial, _ = identify(box, X, mapped, held_out, seed=seed, **options)
    same = abs(trial["queries"] / plain["queries"] - 1.0) <= 0.05 and trial["success"] == plain["success"]
    ratios = {"queries beside f": trial["queries"] / plain["queries"], "seconds": trial["seconds"]}
    return trial | ratios | {"seed": seed, "success": bool(same), "seconds of f": plain["seconds"]}


def cases(quick):
    """The rows."""
    few = 2 if quick else 10
    rows = [
        Case("float32, one hidden layer", functools.partial(_single, 1, None), 2 * few, 2 * few),
        Case("float32, two, widths given", functools.partial(_single, 2, "widths"), 9 * few // 10, few),
        Case("float32, two, auto", functools.partial(_single, 2, "auto"), 8 * few // 10, few),
        Case("float32 MLPRegressor (10,)", functools.partial(_trained, "tanh", _rounded), few, few),
        Case("onnxruntime, tanh (10,)", functools.partial(_trained, "tanh", _in_onnxruntime), few, few),
        Case("onnxruntime, relu (10,)", functools.partial(_trained, "relu", _in_onnxruntime), few, few),
    ]
    for decimals in (6, 4, 3):
        rows.append(Case(f"{decimals} decimals", functools.partial(_disturbed, decimals, None), 9 * few // 10, few))
    for noise in (1e-9, 1e-6, 1e-4, 1e-2):
        trial = functools.partial(_disturbed, None, noise)
        rows.append(Case(f"noise {noise:.0e}", trial, 9 * few // 10, few, seconds=900.0))
    for name, offset, unit in (("1000 + f", 1e3, 1.0), ("1e6 f", 0.0, 1e6), ("1e-9 f", 0.0, 1e-9)):
        rows.append(Case(name, functools.partial(_mapped, offset, unit), few, few))
    return rows


def _summary(row, trials):
    """What a row's trials add to the usual record."""
    some = [t["covered"] for t in trials if t.get("covered") is not None]
    row["within two standard errors"] = float(np.mean(some)) if some else None
    times = [t["times"] for t in trials if np.isfinite(t.get("times", np.inf))]
    row["median error beside the answers'"] = float(np.median(times)) if times else None
    ratios = [t["queries beside f"] for t in trials if "queries beside f" in t]
    row["most queries beside f"] = max(ratios, default=None)
    total = sum(t.get("seconds of f", 0.0) for t in trials)
    row["seconds beside f"] = sum(t["seconds"] for t in trials) / total if total else None
    return row


@part("identification", "ordinary", seeds=seed_ranges.ORDINARY)
def run(trials, quick):
    """All rows, of so many trials."""
    rows = []
    for case in cases(quick):
        kept = []
        remembering = replace(case, trial=lambda seed, c=case, k=kept: k.append(c.trial(seed)) or k[-1])
        rows.append(_summary(remembering.run(trials), kept))
        print("   ", {k: rows[-1][k] for k in _COLUMNS}, flush=True)
    return {"rows": rows}


_COLUMNS = {  # key of the results: header
    "within two standard errors": "within two standard errors",
    "median error beside the answers'": "median error / error of outputs",
    "most queries beside f": "maximum queries / queries for f",
    "seconds beside f": "seconds / seconds for f",
}


def tables(result):
    """The rows as Markdown."""
    extra = [(title, lambda row, key=key: row[key]) for key, title in _COLUMNS.items()]
    return f"{table(result['rows'], 'black box', extra)}\n\n{notes(result['rows'])}"
