"""Models that are no feedforward networks: refused by name within seconds, and never a network by mistake."""

import time

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RationalQuadratic
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer
from sklearn.svm import SVR

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.methods.saturating import Saturation
from skident.identification.saturating.separate_inputs import steps_of_sequence
from skident.oracle import NotIdentified

LINEAR = {"output_activation": "identity", "random_state": 0}
X = np.random.RandomState(0).standard_normal((300, 6))
Y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2 + np.abs(X[:, 3])
RELU = make_network((6, 12, 3), activation="relu", **LINEAR)
LEVELS = X.copy()
LEVELS[:, 2] = np.random.RandomState(1).randint(0, 4, len(X))


def learned(estimator):
    return estimator.fit(X, Y).predict


def of_module(module, shape):
    module = module.double().eval()

    def model(rows):
        with torch.no_grad():
            outputs = module(torch.as_tensor(rows).reshape(len(rows), *shape))
            outputs = outputs[0] if isinstance(outputs, tuple) else outputs
            return outputs.reshape(len(rows), -1)[:, -4:].numpy() @ [1.0, 0.3, -0.8, 0.5]

    return model


def of_units(g, depth, small=0):
    """A network of 12 units of any activation per hidden layer; some of the first have weights of 1e-6."""
    rng = np.random.RandomState(depth)
    weights = [rng.standard_normal((n, 12)) / np.sqrt(n) for n in [6, 12][:depth]]
    biases, last = rng.standard_normal((depth, 12)), rng.standard_normal((12, 2))
    weights[0][:, :small] *= 1e-6
    last[:small] *= 1e6

    def model(rows):
        for W, b in zip(weights, biases, strict=True):
            rows = g(rows @ W + b)
        return rows @ last

    return model


def quantized(A, axis=None):
    """Rounded to 127 steps per sign, of the largest entry of a batch or a row."""
    step = np.abs(A).max(axis=axis, keepdims=axis is not None) / 127
    return step * np.round(A / step)


def int8(axis):
    W, V = quantized(RELU.weights[0]), quantized(RELU.weights[1][:, :1])
    return lambda rows: quantized(np.maximum(quantized(rows, axis) @ W + RELU.biases[0], 0.0), axis) @ V


def rounded_column(network):
    return lambda rows: network(np.column_stack([rows[:, :2], np.round(rows[:, 2]), rows[:, 3:]]))


def probabilities(rows):
    return FOREST.predict_proba(rows)


FOREST = RandomForestClassifier(20, random_state=0).fit(X, Y > 0.5)
TANH = make_network((6, 5, 1), **LINEAR)
torch.manual_seed(0)
TREES, LOCAL, NORMALIZED, SLOW = "a tree ensemble", "a local kernel", "LayerNorm", "slow tails"
# The model, the noun of its message, and the samples if they are not X.
MODELS = {
    "forest": (learned(RandomForestRegressor(20, random_state=0)), TREES),
    "extra trees": (learned(ExtraTreesRegressor(20, random_state=0)), TREES),
    "boosting": (learned(GradientBoostingRegressor(random_state=0)), TREES),
    "boosting of histograms": (learned(HistGradientBoostingRegressor(max_iter=30, random_state=0)), TREES),
    "AdaBoost": (learned(AdaBoostRegressor(random_state=0)), TREES),
    "probabilities of a forest": (probabilities, TREES),
    "nearest neighbors": (learned(KNeighborsRegressor(5)), "nearest neighbors"),
    "weighted neighbors": (learned(KNeighborsRegressor(5, weights="distance")), "nearest neighbors"),
    "support vectors": (learned(SVR()), LOCAL),
    "support vectors, cubic": (learned(SVR(kernel="poly")), "a polynomial of degree 3"),
    "Gaussian process": (learned(GaussianProcessRegressor(alpha=0.01)), LOCAL),
    "rational quadratic kernel": (
        learned(GaussianProcessRegressor(RationalQuadratic(), optimizer=None, alpha=0.01)),
        LOCAL,
    ),
    "softsign": (of_units(lambda z: z / (1.0 + np.abs(z)), 1), SLOW),
    "softsign, two layers": (of_units(lambda z: z / (1.0 + np.abs(z)), 2), SLOW),
    "arctan": (of_units(np.arctan, 1), SLOW),
    "z / sqrt(1 + z^2)": (of_units(lambda z: z / np.hypot(1.0, z), 1), SLOW),
    "snake": (of_units(lambda z: z + np.sin(z) ** 2, 1), "periodic part"),
    "z + sin(z), two layers": (of_units(lambda z: z + np.sin(z), 2), "periodic part"),
    "tanh units that saturate beyond 1e5": (of_units(np.tanh, 1, 3), "bend beyond 100000 standard deviations"),
    "kernel ridge": (learned(KernelRidge(kernel="rbf")), LOCAL),
    "quadratic": (learned(make_pipeline(PolynomialFeatures(2), Ridge())), "a polynomial of degree 2"),
    "quartic": (learned(make_pipeline(PolynomialFeatures(4), Ridge())), "a polynomial of degree 4"),
    "spline": (learned(make_pipeline(SplineTransformer(), Ridge())), "a spline"),
    "spline, linear outside": (learned(make_pipeline(SplineTransformer(extrapolation="linear"), Ridge())), "a spline"),
    "integer column, ReLU": (rounded_column(RELU), "where input 2 crosses .* integer or categorical column", LEVELS),
    "integer column, tanh": (rounded_column(TANH), "where input 2 crosses .* integer or categorical column", LEVELS),
    "GRU": (of_module(torch.nn.GRU(2, 6, batch_first=True), (3, 2)), "a recurrent network"),
    "LSTM": (of_module(torch.nn.LSTM(2, 6, batch_first=True), (3, 2)), "a recurrent network"),
    "transformer layer": (of_module(torch.nn.TransformerEncoderLayer(3, 1, 8, batch_first=True), (2, 3)), NORMALIZED),
    "transformer layer, norm first": (
        of_module(torch.nn.TransformerEncoderLayer(3, 1, 8, batch_first=True, norm_first=True), (2, 3)),
        NORMALIZED,
    ),
    "LayerNorm": (
        of_module(torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.LayerNorm(12), torch.nn.ReLU()), (6,)),
        NORMALIZED,
    ),
    "labels": (lambda rows: RELU(rows).argmax(axis=1), "class labels .*: pass response_method='labels'"),
    "words": (lambda rows: np.array(["a", "b", "c"])[RELU(rows).argmax(axis=1)], "pass response_method='labels'"),
    "int8, scale of the batch": (int8(None), "dynamic int8 quantization"),
    "int8, scale of the row": (int8(1), "dynamic int8 quantization"),
    "batch normalization while training": (
        lambda rows: TANH((rows - rows.mean(axis=0)) / rows.std(axis=0).clip(1e-3)),
        "batch normalization in training mode",
    ),
    "rounded inputs": (lambda rows: RELU(rows.round(1)), "rounds its inputs"),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_that_are_no_networks(name, monkeypatch):
    """Refused by the noun, in the first 200 characters, within five seconds of processor time."""
    if name not in ("GRU", "LSTM"):  # their first layer is recovered before its inputs tell what it belongs to
        monkeypatch.setattr(Saturation, "run", None)
        monkeypatch.setattr("skident.identification.methods.discovery.UnknownWidths.run", None)
    model, noun, *samples = MODELS[name]
    began = time.process_time()
    with pytest.raises(ValueError, match=rf"(?s)^.{{0,200}}{noun}|^.{{0,80}}{noun}") as caught:
        NetworkIdentifier(model, random_state=0).fit(*(samples or [X]))
    assert time.process_time() - began < 5.0
    first = str(caught.value).partition(". ")[0]
    assert len(first) <= 200 and "Detected activation" not in first


def test_periodic_units_are_named():
    with pytest.raises(NotIdentified, match=r"(?s)activation='sin'.*Detected activation: sin \(oscillates\)"):
        NetworkIdentifier(of_units(np.sin, 1), random_state=0).fit(X)


def test_the_evidence_is_printed_on_request(capsys):
    with pytest.raises(NotIdentified, match=TREES) as caught:
        NetworkIdentifier(MODELS["forest"][0], random_state=0, verbose=1).fit(X)
    assert (caught.value.stage, caught.value.reason) == ("model", "tree ensemble")
    assert "jumps on 8 of 8 lines" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_integer_columns_of_a_network_are_inputs_like_others(activation, seed):
    """A network that is defined between the levels of a column is recovered."""
    network = make_network((6, 5, 1), activation=activation, output_activation="identity", random_state=seed)
    model = NetworkIdentifier(lambda rows: network(rows), random_state=0).fit(LEVELS)
    assert model.report_.exact


@pytest.mark.parametrize("steepness", [1.0, 30.0, 1e3])
def test_steep_units_do_not_jump(steepness, own_seconds):
    """A unit that is 1e-3 standard deviations wide varies continuously."""
    W, v = TANH.weights
    model = NetworkIdentifier(lambda rows: np.tanh(steepness * (rows @ W)) @ v, max_seconds=5, random_state=0)
    assert model.fit(LEVELS).layer_widths_ == (5, 1)


def test_counts_are_no_labels():
    """Whole numbers with many values are not taken for classes."""
    with pytest.warns(ConvergenceWarning, match="carry noise or rounding"):
        NetworkIdentifier(lambda rows: np.round(1000 * TANH(rows)), random_state=0).fit(X)


@pytest.mark.parametrize(("steps", "units"), [(2, 5), (3, 4)])
def test_steps_of_a_sequence(steps, units):
    W = np.kron(np.eye(steps), np.random.RandomState(0).standard_normal((6 // steps, units)))
    assert steps_of_sequence(W) == steps
    assert steps_of_sequence(W + 0.1) is None
    assert steps_of_sequence(np.delete(W, slice(units - 1), axis=1)) == steps  # an early step that shows one unit
    assert steps_of_sequence(np.delete(W, slice(units), axis=1)) is None


@pytest.mark.parametrize("seed", [11, 18])
def test_long_memory(seed, own_seconds):
    """Few units of the first step are seen, or the outputs look clipped as well: still no network is fitted."""
    torch.manual_seed(seed)
    layer = torch.nn.LSTM(2, 8, batch_first=True).double().requires_grad_(False)

    def model(rows):
        return layer(torch.as_tensor(rows).reshape(len(rows), 3, 2))[0][:, -1, -4:].numpy() @ [1.0, 0.3, -0.8, 0.5]

    rows = np.random.RandomState(seed).standard_normal((400, 6))
    with pytest.raises(NotIdentified, match="recurrent network"):
        NetworkIdentifier(model, random_state=seed, max_seconds=20).fit(rows)


@pytest.mark.parametrize("seed", [0, 1])
def test_clipped_inputs_are_no_steps_of_a_sequence(seed):
    """The borders are found; within them, as `input_range`, the network is recovered."""
    network = make_network((6, 4, 1), output_activation="identity", bias_scale=0.1, random_state=seed)

    def model(rows):
        return network(np.clip(rows, -2.5, 2.5))

    with pytest.raises(NotIdentified, match=r"clips its inputs.* 6 of 6 .*outside \(-2.5, 2.5\).*input_range"):
        NetworkIdentifier(model, random_state=seed).fit(X)
    inside = NetworkIdentifier(
        model, input_range=(-2.5, 2.5), activation="tanh", layer_widths=(4, 1), random_state=seed
    ).fit(X)
    assert inside.report_.exact


@pytest.mark.parametrize("seed", [0, 1])
def test_a_clip_in_a_hidden_layer_is_named(seed, own_seconds):
    network = make_network((6, 10, 6, 1), activation="relu", output_activation="identity", random_state=seed)
    (W, V, U), (b, c, d) = network.weights, network.biases

    def model(rows):
        return np.maximum(np.clip(rows @ W + b, 0.0, 2.0) @ V + c, 0.0) @ U + d

    with pytest.raises(NotIdentified, match=r"units are clipped \(ReLU6, hard tanh\) in a network with more than one"):
        NetworkIdentifier(model, random_state=seed, max_seconds=1.0).fit(X)
