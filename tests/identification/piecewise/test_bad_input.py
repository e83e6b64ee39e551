"""Boxes that are no ReLU network with one hidden layer, or hide a part of one: a clear error, or nothing exact."""

import itertools
import re
import time
import warnings

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._testing import ignore_warnings

from skident import NetworkIdentifier
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, OutOfBudgetError
from tests.identifiers import make_identifier


def planted(D, K, m, seed):
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((D, K)) / np.sqrt(D), rng.standard_normal((K, m)) / np.sqrt(K)]
    return FeedforwardNetwork(weights, [0.5 * rng.standard_normal(K), rng.standard_normal(m)], "relu")


def with_first_layer(network, W, b):
    return FeedforwardNetwork([W, network.weights[1]], [b, network.biases[1]], "relu")


RNG = np.random.RandomState(3)
X, A = RNG.standard_normal((300, 6)), RNG.standard_normal((6, 4))
NETWORK, LOGITS = planted(6, 8, 1, 0), planted(6, 8, 3, 0)
W, B = NETWORK.weights[0], NETWORK.biases[0]
OPPOSITE = with_first_layer(
    NETWORK, np.column_stack([W[:, 0], -2.0 * W[:, 0], W[:, 2:]]), np.r_[B[0], -2.0 * B[0], B[2:]]
)
FAR = with_first_layer(NETWORK, W, np.r_[B[0], 30.0, B[2:]])
DEEP = FeedforwardNetwork([A, A.T @ A / 2.0, A[:4, :3]], [np.full(4, 0.1), np.full(4, 0.2), np.zeros(3)], "relu")
FOREST = RandomForestRegressor(20, random_state=0).fit(X, X[:, 0] * X[:, 1])


def softmax(Z):
    E = np.exp(Z - Z.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


def four_digits(X):
    P = softmax(LOGITS(X)).round(4)
    P[:, 0] += 1.0 - P.sum(axis=1)
    return P


RESIDUAL = RNG.standard_normal((4, 4)) / 2.0


def with_a_skip(X):
    H = np.maximum(X @ A + 0.2, 0.0)
    return (H + np.maximum(H @ RESIDUAL + 0.1, 0.0)) @ np.array([1.0, -0.5, 0.7, 1.2])


def normalising_every_batch(X):
    H = X @ A
    return np.maximum((H - H.mean(axis=0)) / np.sqrt(H.var(axis=0) + 1e-5), 0.0).sum(axis=1)


PROBABILITIES = {"response_method": "predict_proba"}
REFUSED = {
    "clipped inputs in a range": (
        lambda X: NETWORK(np.clip(X, -3.0, 3.0)),
        {"input_range": (-5.0, 5.0), "max_seconds": 1.5},
        "clipped inputs",
    ),
    "batch norm in train mode": (normalising_every_batch, {}, "depends on the other rows of the call"),
    "a forest": (FOREST.predict, {}, "a tree"),
    "tanh": (lambda X: np.tanh(X @ A).sum(axis=1), {}, "activation='tanh'"),
    "tanh in single precision": (lambda X: np.tanh(X @ A).sum(axis=1).astype(np.float32), {}, "bend|max_seconds"),
    "tanh of classes": (lambda X: softmax(np.tanh(X @ A)), PROBABILITIES, "activation='tanh'"),
    "probabilities of four digits": (four_digits, PROBABILITIES, "they are rounded"),
}


@ignore_warnings(category=ConvergenceWarning)
@pytest.mark.usefixtures("own_seconds")
@pytest.mark.parametrize("name", REFUSED)
def test_a_clear_error_in_time(name):
    box, options, match = REFUSED[name]
    # A callable: the box does not tell what it is.
    identifier = make_identifier(lambda X: box(X), activation="relu", random_state=0, **{"max_seconds": 10, **options})
    began = time.perf_counter()
    with pytest.raises(ValueError, match=match):
        identifier.fit(X)
    assert time.perf_counter() - began < 12.0


def test_a_residual_connection_is_declared():
    """A linear part beside the units represents it: the outputs are right, the widths are not those of the model."""
    identifier = NetworkIdentifier(lambda X: with_a_skip(X), activation="relu", random_state=0).fit(X)
    held_out = np.random.RandomState(0).standard_normal((2000, 6))
    assert np.abs(identifier.network_(held_out)[:, 0] - with_a_skip(held_out)).max() < 1e-11
    assert identifier.report_.exact and not identifier.report_.determined


def test_clipped_inputs_are_a_layer():
    """A clip is the difference of two ReLU units: the outputs are right, the widths are not those of the model."""
    identifier = NetworkIdentifier(lambda X: NETWORK(np.clip(X, -3.0, 3.0)), activation="relu", random_state=0).fit(X)
    held_out = 3.0 * np.random.RandomState(0).standard_normal((2000, 6))
    assert np.abs(identifier.network_(held_out) - NETWORK(np.clip(held_out, -3.0, 3.0))).max() < 1e-10
    assert identifier.report_.exact and not identifier.report_.determined


@ignore_warnings(category=ConvergenceWarning)
def test_two_units_on_one_hyperplane_are_declared():
    """They appear as one and a linear part: the outputs are right, the weights may not be."""
    identifier = NetworkIdentifier(lambda X: OPPOSITE(X), activation="relu", random_state=0).fit(X)
    held_out = np.random.RandomState(0).standard_normal((300, 6))
    assert np.abs(identifier.network_(held_out) - OPPOSITE(held_out)).max() < 1e-11
    assert identifier.report_.exact and not identifier.report_.determined


@ignore_warnings(category=ConvergenceWarning)
def test_a_hyperplane_outside_the_range_is_declared():
    """Its unit is a linear part of the outputs there: they are right, the weights may not be."""
    identifier = NetworkIdentifier(lambda X: FAR(X), activation="relu", random_state=0, input_range=(-4, 4)).fit(X)
    inside = np.random.RandomState(0).uniform(-4.0, 4.0, (300, 6))
    assert np.abs(identifier.network_(inside) - FAR(inside)).max() < 1e-11
    assert identifier.report_.exact and not identifier.report_.determined
    assert "not determined: the signs of the units" in str(identifier.report_)


@pytest.mark.parametrize("seed", range(3))
def test_a_wide_first_layer_is_warned_of_before_the_budget_is_spent(seed):
    """Two hidden layers with one output, the first wider than the input: a warning, or a refusal with both numbers."""
    rng, n_queries = np.random.RandomState(seed), 0
    sizes = [4, 70, 10, 1]
    weights = [rng.standard_normal((a, b)) * (2.0 / a) ** 0.5 for a, b in itertools.pairwise(sizes)]
    network = FeedforwardNetwork(weights, [rng.standard_normal(b) for b in sizes[1:]], "relu")

    def model(X):
        nonlocal n_queries
        n_queries += len(X)
        return network(X)

    identifier, when, refusal = make_identifier(model, activation="relu", max_queries=40_000, random_state=0), [], ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.showwarning = lambda message, *rest: when.append((str(message), n_queries))
        warnings.simplefilter("always", ConvergenceWarning)
        try:
            identifier.fit(rng.standard_normal((100, 4)))
        except (NotIdentified, OutOfBudgetError, ValueError) as error:
            refusal = str(error)
    said = [n for message, n in when if "wider than the 4 inputs" in message]
    refused = re.search(r"leaves [\d,]+ queries, and the layers behind a first one of \d+ units need [\d,]+", refusal)
    assert (said and said[0] < 37_000) or (refused and n_queries < 37_000)
