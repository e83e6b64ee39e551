import functools

import numpy as np
import pytest
import torch

from skident import NetworkIdentifier
from skident.identification.piecewise.shallow.hard_tanh import find_hard_tanh_network
from skident.metrics import parameter_error
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, Oracle, probabilities_from_logits
from tests.identifiers import make_identifier


def planted(D, m, n_outputs, seed, activation="hard_tanh"):
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((D, m)) / np.sqrt(D), rng.standard_normal((m, n_outputs)) / np.sqrt(m)]
    biases = [0.5 * rng.standard_normal(m), rng.standard_normal(n_outputs)]
    return FeedforwardNetwork(weights, biases, activation)


def outputs(network, X):
    return network(X)


def identify(function, D, **options):
    X = np.random.default_rng(1).standard_normal((200, D))
    return make_identifier(function, activation="hard_tanh", random_state=0, **options).fit(X)


def relative_error(truth, found, D):
    rng = np.random.default_rng(2)
    U = np.concatenate([spread * rng.standard_normal((5000, D)) for spread in (1.0, 3.0)])
    return np.abs(found(U) - truth(U)).max() / np.abs(truth(U) - truth(U).mean(axis=0)).max()


def test_random_networks():
    """Widths given or not."""
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(100 + seed)
        D, m, n_outputs = (int(rng.integers(*ends)) for ends in ((3, 21), (2, 21), (1, 4)))
        truth = planted(D, m, n_outputs, seed)
        model = identify(functools.partial(outputs, truth), D, layer_widths=(m, n_outputs) if seed % 2 else None)
        right = model.report_.exact and model.layer_widths_ == (m, n_outputs)
        found += right and relative_error(truth, model.network_, D) <= 1e-10
    assert found >= 19


@pytest.mark.parametrize("widths", ["auto", None, (6, 2)])
def test_widths_are_found_or_checked(widths):
    truth = planted(8, 6, 2, 0)
    model = identify(lambda X: truth(X), 8, layer_widths=widths)
    assert model.report_.exact and model.layer_widths_ == (6, 2) and model.network_.activation == "hard_tanh"
    assert parameter_error(truth, model.network_) < 1e-10 and model.report_.redundant_units == [0]
    assert model.report_.never_active == [0] and model.report_.route == "activation boundaries"


@pytest.mark.parametrize("widths", [(5, 2), (7, 2)])
def test_wrong_widths(widths):
    truth = planted(8, 6, 2, 0)
    if widths[0] < 6:
        with pytest.raises(ValueError, match=r"5 hidden units, but 6 pairs of parallel .* set layer_widths=\(6, "):
            identify(lambda X: truth(X), 8, layer_widths=widths)
    else:
        with pytest.warns(UserWarning, match=".6, 2. explain all outputs"):
            assert identify(lambda X: truth(X), 8, layer_widths=widths).layer_widths_ == (6, 2)


def test_parallel_units_of_different_widths():
    W = np.array([[1.0, 2.0, 0.5], [-1.0, -2.0, 1.0]])
    truth = FeedforwardNetwork([W, [[1.0], [-2.0], [0.5]]], [[0.3, -4.0, 0.1], [1.0]], "hard_tanh")
    assert relative_error(truth, find_hard_tanh_network(Oracle(lambda X: truth(X), 2)).network, 2) < 1e-12


def test_units_so_steep_that_most_outputs_rest():
    """At nine places in ten both units are saturated: these are no steps."""
    truth = planted(6, 2, 1, 2)
    truth = truth.with_parameters([10.0 * truth.weights[0], truth.weights[1]], truth.biases)
    model = identify(lambda X: truth(X), 6)
    assert model.report_.exact and parameter_error(truth, model.network_) < 1e-9


def test_of_torch_where_the_activation_is_read_off():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(9, 6), torch.nn.Hardtanh(), torch.nn.Linear(6, 2)).double()
        with torch.no_grad():
            module[0].weight *= 3.0
    X = np.random.default_rng(1).standard_normal((300, 9))
    model = NetworkIdentifier(module, random_state=0).fit(X)
    assert model.report_.exact and model.network_.activation == "hard_tanh"
    assert relative_error(FeedforwardNetwork.from_torch(module), model.network_, 9) < 1e-12


def test_probabilities():
    truth = planted(6, 5, 3, 3)
    box = lambda X: probabilities_from_logits(truth(X))  # noqa: E731
    model = identify(box, 6, response_method="predict_proba")
    X = np.random.default_rng(1).standard_normal((500, 6))
    assert model.layer_widths_ == (5, 3) and np.abs(model.predict_proba(X) - box(X)).max() < 1e-10


def test_rounded_outputs():
    truth = planted(6, 4, 1, 0)
    with pytest.warns(UserWarning, match="stderr_ holds the standard errors"):
        model = identify(lambda X: truth(X).round(7), 6)
    assert model.layer_widths_ == (4, 1) and not model.report_.exact and model.stderr_ is not None
    assert relative_error(truth, model.network_, 6) < 1e-6


RELU, TANH, HARD = (planted(6, 5, 1, 4, name) for name in ("relu", "tanh", "hard_tanh"))
DEEP = FeedforwardNetwork([*HARD.weights, [[2.0]]], [*HARD.biases, [0.0]], "hard_tanh")
NO_HARD_TANH = {
    "relu": (lambda X: RELU(X), "5 of 5 activation boundaries have no partner.*try activation='relu'"),
    "tanh": (lambda X: TANH(X), "bend everywhere.*try activation='tanh'"),
    "a linear skip": (lambda X: HARD(X)[:, 0] + X[:, 1], "misses held-out outputs.*something linear"),
    "one relu unit more": (
        lambda X: HARD(X)[:, 0] + np.maximum(X[:, 0], 0.0),
        "1 of 11 activation boundaries have no partner",
    ),
    "two layers": (lambda X: DEEP(X), "more than one hidden layer"),
    "steps": (lambda X: np.sign(X[:, 0] + X[:, 1]) + 0.3 * np.sign(X[:, 2]), "the outputs jump within"),
    "linear": (lambda X: X[:, 0] - 2.0 * X[:, 1], "no activation boundaries"),
}


@pytest.mark.parametrize("name", NO_HARD_TANH)
def test_no_hard_tanh_network(name):
    box, message = NO_HARD_TANH[name]
    with pytest.raises(NotIdentified, match=f"not a hard tanh network with one hidden layer: .*{message}"):
        identify(box, 6)


def test_hard_tanh_determined_as_relu():
    """Five units that clip on both sides are ten ReLU units in pairs, whose signs cancel."""
    model = NetworkIdentifier(lambda X: HARD(X), activation="relu", layer_widths=(10, 1), random_state=0)
    model.fit(np.random.default_rng(1).standard_normal((200, 6)))
    assert model.report_.exact and not model.report_.determined
    assert "the signs of 10 units" in str(model.report_)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer_widths": (5, 4, 1)}, r"only one hidden layer can be recovered, got layer_widths=\(5, 4, 1\)"),
        ({"strategy": "saturation"}, "saturates smoothly, got 'hard_tanh'"),
        ({"strategy": "hessian"}, "activation='hard_tanh' has no second derivative"),
        ({"layer_widths": (5, 1), "output_activation": "tanh"}, "not a hard tanh network with one hidden layer"),
    ],
)
def test_what_cannot_be_queried_for(options, message):
    with pytest.raises(ValueError, match=message):
        identify(lambda X: HARD(X), 6, **options)
