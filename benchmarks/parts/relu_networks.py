"""Deep ReLU networks with unknown widths: random ones, trained regressors and classifiers."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine, make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import seed_ranges
from cases.random_networks import random_relu_network
from parts.identification.trials import Case, identify, notes, table
from registry import part
from skident.network import FeedforwardNetwork, center_outputs, leaky_relu

ROWS = 20_000  # held-out inputs of each spread
SPREADS = (1.0, 3.0)
TABLES = {"cancer": load_breast_cancer, "digits": load_digits, "wine": load_wine, "iris": load_iris}


def held_out_inputs(D, seed):
    """Inputs of two spreads around the center."""
    rng = np.random.default_rng(seed)
    return np.concatenate([spread * rng.standard_normal((ROWS, D)) for spread in SPREADS])


def _judged(trial, model, truth, U, error):
    """The larger error of the two spreads, each over its own largest centered output; success by that alone."""
    if model is not None:
        Y, found = truth(U).reshape(len(SPREADS), ROWS, -1), model.network_(U).reshape(len(SPREADS), ROWS, -1)
        unit = np.abs(Y - Y.mean(axis=1, keepdims=True)).max(axis=1)
        trial["error"] = float(np.max(np.abs(Y - found).max(axis=1) / unit))
        trial["right widths"] = model.layer_widths_ == truth.layer_widths
    trial["success"] = bool(trial["error"] <= error)
    return trial


def _seed(seed):
    return seed_ranges.RELU_NETWORKS.start + seed % 100


def random_trial(sizes, seed, *, activation="relu", deploy=None, error=1e-10):
    """A random network; `deploy` makes the black box; the tolerance is 20 times the error of its outputs."""
    seed = _seed(seed)
    truth = random_relu_network(sizes, seed, activation)
    box = truth if deploy is None else deploy(truth)
    U, X = held_out_inputs(sizes[0], seed + 1), np.random.default_rng(seed).standard_normal((500, sizes[0]))
    name = "leaky_relu" if activation != "relu" else "relu"
    options = {"activation": name, "parameters": None, "max_seconds": 120.0}
    trial, model = identify(lambda A: box(A), X, truth, U[:1000], seed=seed, **options)
    if deploy is not None:
        Y = truth(U)
        error = 20.0 * float(np.abs(np.asarray(box(U)).reshape(Y.shape) - Y).max() / np.abs(Y - Y.mean(axis=0)).max())
    trial = _judged(trial, model, truth, U, error)
    if activation != "relu" and model is not None:
        slope = getattr(model.network_.activations[0], "negative_slope", np.nan)
        trial["slope error"] = abs(slope - activation.negative_slope)
        trial["success"] = trial["success"] and trial["slope error"] <= 1e-9
    if deploy is not None:
        trial["success"] = bool(trial["success"] and trial.get("right widths") and not trial["exact"])
    return trial


def _rounded(digits, truth):
    return lambda X: truth(X).round(digits)


def _in_single_precision(truth):
    module = truth.to_torch().float()

    def outputs(X):
        with torch.no_grad():
            return module(torch.from_numpy(np.asarray(X, dtype=np.float32))).numpy()

    return outputs


def regressor_trial(data, hidden, seed):
    """scikit-learn's regressor, trained on standardized inputs and targets."""
    seed = _seed(seed)
    if data == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    else:
        X, y = make_friedman1(500, n_features=10, noise=0.5, random_state=seed)
    X, y = StandardScaler().fit_transform(X), (y - y.mean()) / y.std()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp = MLPRegressor(hidden_layer_sizes=hidden, max_iter=500, random_state=seed).fit(X, y)
    truth = FeedforwardNetwork.from_sklearn(mlp)
    U = held_out_inputs(X.shape[1], seed + 1)
    options = {"activation": "relu", "parameters": None, "max_seconds": 120.0}
    trial, model = identify(mlp.predict, X, truth, U[:1000], seed=seed, **options)
    return _judged(trial, model, truth, U, 1e-10)


def classifier_trial(data, hidden, seed, activation="relu", solver="adam"):
    """scikit-learn's classifier behind a scaler, by its probabilities at inputs of two spreads."""
    seed = _seed(seed)
    X, labels = TABLES[data](return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp = MLPClassifier(hidden_layer_sizes=hidden, activation=activation, solver=solver, random_state=seed)
        classifier = make_pipeline(StandardScaler(with_std=data != "digits"), mlp).fit(X, labels)
    truth = center_outputs(FeedforwardNetwork.from_sklearn(classifier))
    given = {} if activation == "relu" else {"layer_widths": truth.layer_widths}
    options = {"activation": activation, "response_method": "predict_proba", **given}
    options |= {"parameters": None, "max_seconds": 120.0}
    trial, model = identify(classifier.predict_proba, X, truth, X[:500], seed=seed, **options)
    if model is not None:
        U = held_out_inputs(X.shape[1], seed + 1)[::10] * X.std(axis=0) + X.mean(axis=0)
        both = np.concatenate([U, X])
        trial["error"] = float(np.abs(model.predict_proba(both) - classifier.predict_proba(both)).max())
        trial["right widths"] = model.layer_widths_ == truth.layer_widths
    trial["success"] = bool(trial["error"] <= 1e-10)
    return trial


def _random_rows():
    rows = (
        ((10, 10, 10, 1), 19, 20_000, 5.0),
        ((20, 10, 10, 1), 19, 25_000, 5.0),
        ((40, 20, 10, 1), 19, 60_000, 10.0),
        ((10, 20, 20, 1), 19, 80_000, 15.0),
        ((20, 15, 10, 5, 1), 18, None, 30.0),
        ((10, 8, 6, 4, 1), 17, None, 30.0),
        ((20, 10, 10, 10, 5, 1), 12, None, 30.0),
    )
    for sizes, needed, queries, seconds in rows:
        bars = {"median seconds": seconds} | ({} if queries is None else {"median queries": queries})
        name, trial = "-".join(map(str, sizes)), functools.partial(random_trial, sizes)
        yield Case(name, trial, needed, 20, bars, seconds=1800.0)


def _regressor_rows():
    for hidden, needed in (((8, 5), 19), ((10, 6), 19), ((20, 10), 19), ((50, 25), 16), ((16, 8, 4), 16)):
        for data in ("diabetes", "friedman1"):
            trial = functools.partial(regressor_trial, data, hidden)
            yield Case(f"MLPRegressor {hidden}, {data}", trial, needed // 2, 10, seconds=1800.0)


def _classifier_rows():
    for hidden, needed in (((100,), 19), ((20, 10), 17), ((50, 20), 17)):
        for data in TABLES:
            trial = functools.partial(classifier_trial, data, hidden)
            yield Case(f"MLPClassifier {hidden}, {data}", trial, needed // 4, 5, seconds=1800.0)


def _tanh_rows():
    for data in ("cancer", "digits", "wine", "iris"):
        for hidden in ((8, 5), (10, 6)):
            for solver in ("adam", "lbfgs"):
                trial = functools.partial(classifier_trial, data, hidden, activation="tanh", solver=solver)
                yield Case(f"tanh MLPClassifier {hidden}, {data}, {solver}", trial, None, 1, seconds=300.0)


def _other_rows():
    leaky = functools.partial(random_trial, (10, 10, 10, 1), activation=leaky_relu(0.1))
    yield Case("leaky relu 10-10-10-1", leaky, 17, 20, seconds=1800.0)
    for name, deploy in (
        ("8 decimals", functools.partial(_rounded, 8)),
        ("6 decimals", functools.partial(_rounded, 6)),
        ("float32", _in_single_precision),
    ):
        for sizes, needed in (((20, 10, 1), 18), ((20, 10, 10, 1), 14)):
            trial = functools.partial(random_trial, sizes, deploy=deploy)
            yield Case(f"{name}, {'-'.join(map(str, sizes))}", trial, needed, 20, seconds=1800.0)


def _wide_rows():
    for sizes, seconds in (((784, 32, 1), 60.0), ((784, 128, 1), 600.0), ((784, 64, 10), 300.0)):
        n_parameters = sum((a + 1) * b for a, b in zip(sizes[:-1], sizes[1:], strict=True))
        bars = {"max seconds": seconds} | ({"max queries": 4 * n_parameters} if sizes[1] == 32 else {})
        trial = functools.partial(random_trial, sizes, error=1e-9)
        yield Case("-".join(map(str, sizes)), trial, 1, 1, bars, seconds=1800.0)


class Networks:
    """Rows of one kind, as `run_parts` takes them."""

    def __init__(self, rows):
        self.rows = rows

    def run(self, trials, quick):
        """All rows; of a quick run the first, once."""
        rows = list(self.rows())
        return {"rows": [case.run(1 if quick else trials) for case in (rows[:1] if quick else rows)]}

    def tables(self, result):
        """One table."""
        return f"{table(result['rows'])}\n\n{notes(result['rows'])}"


for name, networks in {
    "random": Networks(_random_rows),
    "regressors": Networks(_regressor_rows),
    "classifiers": Networks(_classifier_rows),
    "tanh": Networks(_tanh_rows),
    "others": Networks(_other_rows),
    "wide": Networks(_wide_rows),
}.items():
    part("relu_networks", name, seeds=seed_ranges.RELU_NETWORKS)(networks)
