"""Outputs that are not exact: single precision, rounded to decimals, noisy; one hidden layer and more."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import scale
from sklearn.utils._testing import ignore_warnings

from skident import NetworkIdentifier
from skident.identification.piecewise.kernel.output_error import probe_of
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, Oracle


def planted_noise(D, K, seed):
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((D, K)) / np.sqrt(D), rng.standard_normal((K, 1)) / np.sqrt(K)]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(K), rng.standard_normal(1)], "relu")


def single(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = torch.nn.Sequential(torch.nn.Linear(20, 10), torch.nn.ReLU(), torch.nn.Linear(10, 1))
    return lambda X: module(torch.tensor(X, dtype=torch.float32)).detach().numpy(), FeedforwardNetwork.from_torch(
        module
    )


def decimals(places):
    def box(seed):
        truth = planted_noise(20, 10, seed)
        return lambda X: truth(X).round(places), truth

    return box


def noisy(seed):
    truth, rng = planted_noise(20, 10, seed), np.random.RandomState(seed)
    return lambda X: truth(X) + 1e-6 * rng.standard_normal((len(X), 1)), truth


KINDS = {"single": (single, 6e-8), "8": (decimals(8), 1e-8), "6": (decimals(6), 1e-6), "noisy": (noisy, 1e-6)}


@ignore_warnings(category=ConvergenceWarning)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_error_in_proportion_and_calibrated(kind, seed):
    make, unit = KINDS[kind]
    box, truth = make(seed)
    rng = np.random.RandomState(100 + seed)
    identifier = NetworkIdentifier(box, activation="relu", random_state=seed).fit(rng.standard_normal((300, 20)))
    network, truth = identifier.network_, truth.canonical()
    X = rng.standard_normal((1000, 20))
    assert network.layer_widths == (10, 1)
    assert np.abs(network(X) - truth(X)).max() < 3.0 * unit
    # Noise below `tol` leaves a network that is exact to `tol`.
    assert not identifier.report_.exact or kind == "8"
    pairs = zip((*network.weights, *network.biases), (*truth.weights, *truth.biases), sum(identifier.stderr_, []))
    z = np.concatenate([((found - true) / error).ravel() for found, true, error in pairs])
    assert 0.7 < np.sqrt(np.mean(z**2)) < 1.5


@ignore_warnings(category=ConvergenceWarning)
def test_through_onnx():
    skl2onnx, onnxruntime = pytest.importorskip("skl2onnx"), pytest.importorskip("onnxruntime")
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X), scale(y)
    model = MLPRegressor(hidden_layer_sizes=(10,), max_iter=300, random_state=0).fit(X, y)
    text = skl2onnx.to_onnx(model, X[:1].astype(np.float32)).SerializeToString()
    session = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"])
    box = lambda X: session.run(None, {"X": X.astype(np.float32)})[0]  # noqa: E731
    identifier = NetworkIdentifier(box, activation="relu", random_state=0).fit(X)
    assert identifier.layer_widths_ == (10, 1) and not identifier.report_.exact
    assert np.abs(identifier.predict(X).ravel() - model.predict(X)).max() < 1e-6


@pytest.mark.parametrize("rounded", [lambda Y: Y.astype(np.float32), lambda Y: Y.round(6)])
def test_smooth_outputs_with_noise_are_refused(rounded):
    W, rng = np.random.RandomState(0).standard_normal((6, 4)), np.random.RandomState(1)
    oracle = Oracle(lambda X: rounded(np.tanh(X @ W).sum(axis=1, keepdims=True)), 6)
    U = rng.standard_normal((100, 6))
    Y = oracle(U)
    oracle.standardize_outputs(Y)
    oracle.measure_accuracy(U, oracle(U), rng)
    with pytest.raises(NotIdentified, match="bend everywhere") as info:
        probe_of(oracle, rng)
    assert info.value.reason == "smooth"


def _network(n_inputs, widths, seed):
    """Weights of the usual size, and biases."""
    rng, sizes = np.random.default_rng(seed), [n_inputs, *widths, 1]
    W = [rng.standard_normal((a, b)) / np.sqrt(a / (1 + (i > 0))) for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
    return FeedforwardNetwork(W, [0.3 * rng.standard_normal(len(w.T)) for w in W], "relu")


def _identified(black_box, n_inputs):
    X = np.random.default_rng(0).standard_normal((300, n_inputs))
    return NetworkIdentifier(black_box, activation="relu", random_state=0).fit(X)


def _largest_error(found, truth, n_inputs):
    X = np.random.default_rng(1).standard_normal((5000, n_inputs))
    return np.abs(found.network_(X) - truth(X)).max()


@pytest.mark.filterwarnings("ignore:.*carry noise or rounding.*:UserWarning")
@pytest.mark.parametrize("decimals", [10, 8, 6])
def test_rounded_outputs_of_two_hidden_layers_to_their_rounding(decimals):
    truth = _network(6, (6, 5), 3)
    found = _identified(lambda X: np.round(truth(X), decimals), 6)
    assert found.layer_widths_ == (6, 5, 1)
    assert _largest_error(found, truth, 6) < 10.0 * 10.0**-decimals


@pytest.mark.filterwarnings("ignore:.*carry noise or rounding.*:UserWarning")
def test_single_precision_arithmetic_of_two_hidden_layers():
    truth = _network(6, (6, 5), 3)
    single = [
        (torch.tensor(W, dtype=torch.float32), torch.tensor(b, dtype=torch.float32))
        for W, b in zip(truth.weights, truth.biases, strict=True)
    ]

    def black_box(X):
        H = torch.tensor(X, dtype=torch.float32)
        for i, (W, b) in enumerate(single):
            H = (torch.relu(H) if i else H) @ W + b
        return H.numpy()

    found = _identified(black_box, 6)
    assert found.layer_widths_ == (6, 5, 1)
    assert not found.report_.exact
    assert _largest_error(found, truth, 6) < 20.0 * 2.0**-23 * np.abs(truth(np.eye(6))).max() + 1e-6
