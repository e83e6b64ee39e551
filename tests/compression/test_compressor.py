"""Networks made smaller: exactly where they can be, to a tolerance elsewhere."""

import numpy as np
import pytest
import torch
from sklearn.base import is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skident import NetworkCompressor, NetworkIdentifier
from skident.compression import compress_network
from skident.compression.smaller_network import compression_error, rows_around
from skident.datasets import make_network
from skident.network import FeedforwardNetwork


def with_units(network, layer, incoming, added, outgoing):
    """The network with more units in a hidden layer."""
    weights, biases = list(network.weights), list(network.biases)
    weights[layer] = np.hstack([weights[layer], incoming])
    biases[layer] = np.append(biases[layer], added)
    weights[layer + 1] = np.vstack([weights[layer + 1], outgoing])
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


def copies(network, layer, rng):
    """Two units once more, with outgoing weights of their own."""
    W, b = network.weights[layer][:, :2], network.biases[layer][:2]
    return with_units(network, layer, W, b, rng.standard_normal((2, network.layer_widths[layer + 1])))


def dead(network, layer, rng):
    """A unit that nothing reads, and a constant one that is read."""
    W = rng.standard_normal((len(network.weights[layer]), 1))
    out = rng.standard_normal((1, network.layer_widths[layer + 1]))
    return with_units(with_units(network, layer, W, 0.3, 0.0 * out), layer, 0.0 * W, 0.7, out)


def opposite(network, layer, rng):
    """A unit with its sign changed."""
    W, b = network.weights[layer][:, :1], network.biases[layer][:1]
    return with_units(network, layer, -W, -b, rng.standard_normal((1, network.layer_widths[layer + 1])))


def never_bending(network, layer, rng):
    """relu units that are positive on all data: together one linear function of the inputs an output, which as many
    units as there are outputs can give."""
    n_out = network.layer_widths[layer + 1]
    W = 0.2 * rng.standard_normal((len(network.weights[layer]), n_out + 3))
    return with_units(network, layer, W, np.full(n_out + 3, 9.0), rng.standard_normal((n_out + 3, n_out)))


# activation, widths, what is added to every hidden layer, hidden widths expected
EXACT = {
    "tanh, copies": ("tanh", (5, 4, 2), [copies, opposite], (4,)),
    "tanh, two layers": ("tanh", (6, 5, 4, 2), [copies, dead, opposite], (5, 4)),
    "sigmoid, two layers": ("sigmoid", (6, 5, 4, 2), [copies, dead], (5, 4)),
    "softplus": ("softplus", (5, 4, 2), [copies, dead], (4,)),
    "gelu": ("gelu", (5, 4, 2), [copies, dead], (4,)),
    "relu": ("relu", (5, 4, 2), [copies, dead], (4,)),
    "relu, linear units": ("relu", (5, 4, 1), [never_bending], (5,)),
    "identity": ("identity", (5, 7, 2), [copies, dead], (2,)),
}


@pytest.mark.parametrize(("activation", "sizes", "additions", "expected"), EXACT.values(), ids=EXACT)
def test_what_a_smaller_network_represents_is_reduced_to_it(activation, sizes, additions, expected):
    rng = np.random.RandomState(1)
    network = make_network(sizes, activation=activation, output_activation="identity", bias_scale=0.3, random_state=1)
    wide = network
    for layer in range(len(sizes) - 2):
        for add in additions:
            wide = add(wide, layer, rng)
    X = rng.standard_normal((300, sizes[0]))
    found, path = compress_network(wide, X, tol=1e-8, rng=rng)
    assert found.layer_widths[:-1] == expected
    # Refits converge quadratically to zero residual, so to rounding; the best smaller network would miss by 1e-3.
    fresh = np.random.RandomState(2).standard_normal((500, sizes[0]))
    std = wide(X).std(axis=0)
    assert np.sqrt(np.mean(((found(fresh) - wide(fresh)) / std) ** 2)) < 1e-10
    assert path[-1]["error"] < 1e-10 and path[0]["layer_widths"] == wide.layer_widths
    if activation == "tanh":  # whose units are determined: they are the first ones (later layers read the added ones)
        np.testing.assert_allclose(found.align_to(network).weights[0], network.weights[0], atol=1e-9)


@pytest.fixture(scope="module")
def planted():
    """An over-wide regressor of a function of three units, and its rows."""
    X = np.random.RandomState(0).standard_normal((400, 4))
    truth = make_network((4, 3, 1), output_activation="identity", bias_scale=0.5, random_state=3)
    mlp = MLPRegressor(hidden_layer_sizes=(30,), activation="tanh", solver="lbfgs", alpha=1e-3, random_state=0)
    return mlp.set_params(max_iter=2000, tol=1e-3).fit(X, truth(X)[:, 0]), X


def test_an_overwide_regressor_shrinks_towards_the_planted_size(planted):
    mlp, X = planted
    compressor = NetworkCompressor(FrozenEstimator(mlp), tol=0.02, random_state=0).fit(X)
    fresh = np.random.RandomState(1).standard_normal((500, 4))
    truth = mlp.predict(fresh)
    assert compressor.layer_widths_[0] <= 9
    # Rows that took no part have the error of the held-out ones, but for the scatter of 100 rows with heavy tails.
    assert np.sqrt(np.mean((compressor.predict(fresh) - truth) ** 2)) < 2 * 0.02 * truth.std()
    assert compressor.error_ <= 0.02 and compressor.n_iter_ == len(compressor.path_) - 1


def test_the_path_leads_from_the_network_to_the_result(planted):
    mlp, X = planted
    compressor = NetworkCompressor(FrozenEstimator(mlp), tol=0.05, random_state=0).fit(X)
    first, last = compressor.path_[0], compressor.path_[-1]
    assert first == {"layer_widths": (30, 1), "n_parameters": 181, "error": 0.0, "accepted": True}
    assert last["layer_widths"] == compressor.layer_widths_ == compressor.network_.layer_widths
    assert last["n_parameters"] == compressor.network_.n_parameters and last["error"] == compressor.error_
    accepted = [e for e in compressor.path_ if e["accepted"]]
    assert all(e["error"] <= 0.05 for e in accepted)
    assert all(e["error"] > 0.05 for e in compressor.path_ if not e["accepted"])
    widths = [e["layer_widths"][0] for e in accepted]
    assert widths == sorted(widths, reverse=True)
    # One unit less was tried, and failed with every candidate.
    failed = [e for e in compressor.path_ if e["layer_widths"] == (widths[-1] - 1, 1)]
    assert len(failed) >= 1 and not any(e["accepted"] for e in failed)


def test_a_looser_tolerance_gives_no_larger_network_and_continues_a_tighter_one(planted):
    mlp, X = planted
    network = FeedforwardNetwork.from_sklearn(mlp)
    current, sizes = None, []
    for tol in (0.01, 0.05, 0.3):
        current, path = compress_network(network, X, tol=tol, start=current, rng=np.random.RandomState(0))
        sizes.append(current.n_parameters)
        assert path[-1]["error"] <= tol
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < sizes[0]


def test_a_relu_network_shrinks(planted):
    _, X = planted
    mlp = MLPRegressor(hidden_layer_sizes=(30,), random_state=0, solver="lbfgs", alpha=1e-2, max_iter=2000, tol=1e-3)
    mlp = mlp.fit(X, np.abs(X[:, 0]) + X[:, 1])
    compressor = NetworkCompressor(FrozenEstimator(mlp), tol=0.05, random_state=0).fit(X)
    assert compressor.network_.activation == "relu"
    assert compressor.layer_widths_[0] <= 15
    assert np.sqrt(np.mean((compressor.predict(X) - mlp.predict(X)) ** 2)) < 0.05 * mlp.predict(X).std()


@pytest.fixture(scope="module", params=[2, 3])
def classifier(request):
    """An over-wide classifier behind a scaler, with rows and labels of blobs."""
    rng = np.random.RandomState(0)
    labels = np.arange(300) % request.param
    X = 5.0 + 3.0 * rng.standard_normal((300, 3)) + 4.0 * np.eye(3)[labels]
    y = np.array(["a", "b", "c"])[labels]
    mlp = MLPClassifier(hidden_layer_sizes=(25,), activation="tanh", solver="lbfgs", random_state=0, alpha=1.0)
    return make_pipeline(StandardScaler(), mlp).fit(X, y), X, y


@pytest.mark.parametrize("metric", ["auto", "probabilities", "outputs"])
def test_a_classifier_shrinks_and_remains_one(classifier, metric):
    pipeline, X, y = classifier
    compressor = NetworkCompressor(FrozenEstimator(pipeline), metric=metric, tol=0.03, random_state=0).fit(X)
    assert is_classifier(compressor) and list(compressor.classes_) == list(pipeline.classes_)
    assert compressor.layer_widths_[0] < 15
    probabilities = compressor.predict_proba(X)
    assert probabilities.shape == (300, len(pipeline.classes_))
    # 3 % of labels, or errors of 3 % of a standard deviation, which turns fewer; twice that for what was not held out.
    assert np.mean(compressor.predict(X) != pipeline.predict(X)) <= 0.06
    assert abs(compressor.score(X, y) - pipeline.score(X, y)) <= 0.06
    if metric != "auto":
        assert np.sqrt(np.mean((probabilities - pipeline.predict_proba(X)) ** 2)) < 0.03


def networks_of_all_kinds():
    """One network behind every face that has known weights; what `predict` then gives, (n,) or (n, 1)."""
    X = np.random.RandomState(0).standard_normal((100, 3))
    mlp = MLPRegressor(hidden_layer_sizes=(4,), activation="tanh", solver="lbfgs", max_iter=2000, random_state=0)
    network = make_network((3, 2, 1), output_activation="identity", random_state=0)
    y = network(X)[:, 0]
    pipeline = make_pipeline(StandardScaler(), mlp)
    fitted = TransformedTargetRegressor(pipeline, transformer=StandardScaler()).fit(X, y)
    identifier = NetworkIdentifier(lambda X: network(X)[:, 0], layer_widths=(2, 1), random_state=0).fit(X)
    torch_network = network.to_torch()
    return {
        "FeedforwardNetwork": (network, network(X)),
        "torch module": (torch_network, network(X)),
        "scaled regressor": (FrozenEstimator(fitted), fitted.predict(X)),
        "identifier": (FrozenEstimator(identifier), y),
    }, X


def test_all_networks_with_known_weights_are_read():
    kinds, X = networks_of_all_kinds()
    for name, (box, outputs) in kinds.items():
        compressor = NetworkCompressor(box, tol=1e-3, random_state=0).fit(X)
        assert compressor.predict(X).shape == outputs.shape, name
        assert compressor.score(X, outputs) > 1 - 1e-5, name


@pytest.mark.parametrize(
    ("box", "error", "words"),
    [
        (lambda X: X[:, :1], TypeError, "NetworkIdentifier recovers the weights"),
        (torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1)), ValueError, "3 inputs"),
        (torch.nn.Sequential(torch.nn.LayerNorm(2)), ValueError, "LayerNorm"),
        (MLPRegressor(), ValueError, "FrozenEstimator"),
    ],
)
def test_what_cannot_be_compressed_is_refused(box, error, words):
    with pytest.raises(error, match=words):
        NetworkCompressor(box).fit(np.random.RandomState(0).standard_normal((20, 2)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"X": np.zeros((1, 5))}, "n at least 2"),
        ({"X": np.zeros((9, 4))}, r"\(n, 5\)"),
        ({"metric": "r2"}, "metric must be one of"),
        ({"start": make_network((5, 4, 2), random_state=0)}, "start must have the inputs and outputs"),
    ],
)
def test_arguments_of_the_function_are_checked(change, words):
    network = make_network((5, 4, 1), random_state=0)
    arguments = {"X": np.eye(5), "rng": np.random.RandomState(0), **change}
    with pytest.raises(ValueError, match=words):
        compress_network(network, arguments.pop("X"), **arguments)


def test_verbose_prints_a_line_a_network(planted, capsys):
    mlp, X = planted
    compressor = NetworkCompressor(FrozenEstimator(mlp), tol=0.3, random_state=0, verbose=1).fit(X)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(compressor.path_)
    assert f"widths {compressor.layer_widths_}" in lines[-1]


def test_rows_around_data_keep_their_covariance_and_their_span(rng):
    X = rng.standard_normal((200, 2)) @ np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0]]) + [0.0, 0.0, 4.0]
    rows = rows_around(X, 40_000, 0.5, np.random.RandomState(0))
    np.testing.assert_allclose(rows[:, 2], 4.0, atol=1e-12)
    # Independent steps add a quarter of the covariance; 40 000 rows tell it to 1 %, some entries to 3 % of it.
    expected = 1.25 * np.cov(X.T, bias=True)
    np.testing.assert_allclose(np.cov(rows.T), expected, atol=0.03 * expected.max())


def test_errors_are_what_they_say():
    Z, found = np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([[2.0, 0.0], [2.5, 2.0]])
    assert compression_error(Z, found, np.array([2.5, 1.0])) == pytest.approx(0.5)  # sqrt((0 + 0 + 1 + 0) / 4)
    assert compression_error(Z, found, None, "labels") == 0.5
    gap = 1 / (1 + np.exp(-0.5)) - 1 / (1 + np.exp(2.0))
    assert compression_error(Z, found, np.ones(2), "probabilities") == pytest.approx(gap / np.sqrt(2))
    assert compression_error(Z, found * np.nan, np.ones(2)) == np.inf
