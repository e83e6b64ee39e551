"""Linear models, and ReLU layers with a linear part: the function is exact, the report says what is not determined."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import VotingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPRegressor
from sklearn.utils._testing import ignore_warnings

from skident import NetworkIdentifier
from skident.datasets import make_network

X = np.random.RandomState(0).standard_normal((200, 6))
FAR = 3.0 * np.random.RandomState(1).standard_normal((500, 6))
Y = np.column_stack([np.sin(X[:, 0]) + X[:, 1], X[:, 2] * X[:, 3]])
RELU = make_network((6, 9, 6), activation="relu", output_activation="identity", random_state=0)
MLP = MLPRegressor(hidden_layer_sizes=(10,), random_state=0, max_iter=50)
SLOPES = np.random.RandomState(2).uniform(-0.2, 0.6, 9)


@ignore_warnings(category=ConvergenceWarning)
def voting():
    return VotingRegressor([("a", MLP), ("b", LinearRegression())]).fit(X, Y[:, 0]).predict


def prelu(rows):
    Z = rows @ RELU.weights[0] + RELU.biases[0]
    return np.where(Z > 0, Z, SLOPES * Z) @ RELU.weights[1]


# The model, hidden units (None: no hidden layer), and whether the outputs determine the weights.
MODELS = {
    "linear": (LinearRegression().fit(X, Y[:, 0]).predict, None, True),
    "linear, two outputs": (LinearRegression().fit(X, Y).predict, None, True),
    "linear module": (torch.nn.Linear(6, 2), None, True),
    "average with a linear model": (voting(), 10 + 2, False),
    "residual block": (lambda rows: rows + RELU(rows), 9 + 12, False),
    "absolute values": (lambda rows: np.abs(rows @ RELU.weights[0]).sum(axis=1), 9 + 2, False),
    "a slope per unit": (prelu, 9 + 12, False),
}


@pytest.mark.parametrize("name", MODELS)
def test_linear_parts(name):
    model, n_units, determined = MODELS[name]
    identifier = NetworkIdentifier(model, random_state=0).fit(X)
    report = identifier.report_
    assert report.exact and report.determined == determined == (report.undetermined == "")
    assert identifier.layer_widths_[:-1] == (() if n_units is None else (n_units,))
    truth = model.double()(torch.as_tensor(FAR)).detach().numpy() if isinstance(model, torch.nn.Module) else model(FAR)
    assert np.abs(identifier.predict(FAR) - truth).max() < 1e-12 * np.abs(truth).max()


CLASSES = {2: Y[:, 0] > 0, 3: np.digitize(Y[:, 0], [-1.0, 1.0])}


@pytest.mark.parametrize("n_classes", CLASSES)
@pytest.mark.parametrize("kind", ["frozen", "callable", "predict_proba"])
def test_linear_classifiers(kind, n_classes):
    """However they are given, the logits are linear."""
    classifier = LogisticRegression().fit(X, CLASSES[n_classes])
    box = FrozenEstimator(classifier) if kind == "frozen" else classifier.predict_proba
    options = {"response_method": "predict_proba"} if kind == "predict_proba" else {}
    identifier = NetworkIdentifier(box, random_state=0, **options).fit(X)
    found = identifier.predict(FAR) if kind == "callable" else identifier.predict_proba(FAR)
    assert identifier.report_.exact and identifier.network_.n_layers == 1
    assert np.abs(found - classifier.predict_proba(FAR)).max() < 1e-11
    assert hasattr(identifier, "classes_") == (kind != "callable")


@pytest.mark.parametrize("hidden", ["tanh", "relu"])
def test_activations_behind_given_probabilities(hidden):
    """`response_method="predict_proba"` finds the activation of the logits, as a call without it does."""
    network = make_network((6, 5, 3), activation=hidden, output_activation="identity", random_state=0)

    def box(rows):
        E = np.exp(network(rows) - network(rows).max(axis=1, keepdims=True))
        return E / E.sum(axis=1, keepdims=True)

    identifier = NetworkIdentifier(box, response_method="predict_proba", random_state=0).fit(X)
    assert identifier.report_.exact and identifier.network_.activation == hidden


@pytest.mark.parametrize("last", [torch.nn.Sigmoid(), torch.nn.Softmax(dim=1)])
@pytest.mark.parametrize("hidden", [torch.nn.Tanh(), torch.nn.ReLU()])
def test_modules_that_end_in_probabilities(hidden, last):
    """Recovered as the callable that returns the same values."""
    n_outputs = 1 if isinstance(last, torch.nn.Sigmoid) else 3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(6, 8), hidden, torch.nn.Linear(8, n_outputs), last).double()
    assert NetworkIdentifier(module, random_state=0).fit(X).report_.exact


@pytest.mark.parametrize("last", [torch.nn.Sigmoid(), torch.nn.Tanh()])
def test_outputs_that_reach_one_limit(last):
    """Positive outgoing weights: far out sigmoid and tanh reach 1, and never their other limit."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1), last).double()
    with torch.no_grad():
        module[2].weight.abs_()
        module[2].bias.fill_(-0.3)
    model = lambda rows: module(torch.as_tensor(rows)).detach().numpy()  # noqa: E731
    identifier = NetworkIdentifier(model, random_state=0).fit(X)
    assert identifier.report_.exact and identifier.layer_widths_ == (8, 1)


def test_widths_given_beside_a_skip_connection():
    """The linear part is said, with what it leaves undetermined."""
    model = NetworkIdentifier(lambda rows: rows + RELU(rows), layer_widths=(9, 6), activation="relu", random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"layer_widths=\(9, 6\) was given, but \(21, 6\) .* linear part"):
        model.fit(X)
    assert model.report_.exact and not model.report_.determined
    assert "not determined: the signs of the units" in str(model.report_)
