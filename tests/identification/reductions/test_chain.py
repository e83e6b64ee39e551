"""For random networks, each reduction and pairs of them: the inverse of what is recovered behind it is the model."""

import numpy as np
import pytest
from scipy.special import expit, log_softmax

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.attempt import Attempt
from skident.identification.observe import observe, pose
from skident.identification.options import IdentifierOptions
from skident.identification.problem import Options
from skident.identification.reductions.chain import reduced
from skident.identification.reductions.outputs import (
    ActivatedOutputs,
    BoundedOutputs,
    ExponentialOutputs,
    LinearSkip,
    LogProbabilities,
    with_outputs,
)
from skident.identification.solve import Result
from skident.network import change_inputs, change_outputs
from skident.oracle import Oracle

D, M = 5, 3
BOUNDED = BoundedOutputs(np.array([-1.5, -0.3, 2.0]), np.array([0.7, 3.0, 2.5]))
SKIP = LinearSkip(np.linspace(-0.5, 0.7, D * M).reshape(D, M))
ACTIVATIONS = tuple(map(ActivatedOutputs, ("tanh", "sigmoid", "erf")))
SEQUENCES = [[one] for one in (LogProbabilities(), ExponentialOutputs(), SKIP, *ACTIVATIONS)]
SEQUENCES += [[BOUNDED, one] for one in ACTIVATIONS if one.name != "sigmoid"]  # g is between -1 and 1
SEQUENCES += [[outer, SKIP] for outer in (LogProbabilities(), ExponentialOutputs(), *ACTIVATIONS)]


def name_of(sequence):
    return " of ".join(f"{type(one).__name__} {getattr(one, 'name', '')}".strip() for one in sequence)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("sequence", SEQUENCES, ids=name_of)
def test_outputs(sequence, activation, seed, rng):
    """What `apply` leaves of the model is the plain network, and `invert` makes the model of it."""
    m = M - isinstance(sequence[0], LogProbabilities)
    if m < M:
        sequence = [LinearSkip(one.matrix[:, :m]) if one is SKIP else one for one in sequence]
    plain = make_network((D, 6, m), activation=activation, output_activation="identity", random_state=seed)
    network = plain
    for one in reversed(sequence):
        network = one.invert(network)
    model = lambda X: sequence[0].forward(network(X))  # noqa: E731
    oracle = Oracle(model, D)
    for one in sequence:
        oracle(np.zeros((1, D)))  # counts the outputs
        oracle = one.apply(oracle)
    X = 0.5 * rng.standard_normal((100, D))
    np.testing.assert_allclose(oracle(X), plain(X), atol=1e-11)
    np.testing.assert_allclose(sequence[0].forward(with_outputs(plain, oracle)(X)), model(X), atol=1e-14)


def observed(model, X):
    """The chain of reductions of the first reading of a model, and its standardized problem."""
    identifier, rng = NetworkIdentifier(model), np.random.RandomState(0)
    options = Options.of(identifier, IdentifierOptions(), "predict")
    oracle = Oracle(model, X.shape[1], center=X.mean(axis=0), scale=X.std(axis=0))
    return reduced(pose(next(iter(observe(model, oracle, X, options))), model, options, rng))


def in_units_of(oracle, network):
    """A network of the raw inputs and outputs of an oracle as one of its own."""
    network = change_inputs(network, oracle.center, oracle.scale)
    return change_outputs(network, -oracle.output_center / oracle.output_scale, 1.0 / oracle.output_scale)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("function", ["identity", "log-probabilities"])
def test_span_of_the_first_layer(function, activation, seed, rng):
    """Also of the values before log-probabilities: the network in its coordinates becomes that of all inputs."""
    m = M - (function != "identity")
    plain = make_network((60, 6, m), activation=activation, output_activation="identity", random_state=seed)
    padded = lambda X: np.pad(plain(X), ((0, 0), (0, M - m)))  # noqa: E731
    model = padded if m == M else lambda X: log_softmax(padded(X), axis=1)
    chain = observed(model, rng.uniform(size=(100, 60)))
    ((span, problem),) = chain.applied
    assert chain.names == [*([function] if m < M else []), "span of the first layer (6 of 60 inputs)"]
    known, unit = in_units_of(problem.oracle, plain), span.unit
    inner = known.with_parameters([unit * span.basis.T @ known.weights[0], known.weights[1]], known.biases)
    V, U = rng.standard_normal((100, 6)), rng.standard_normal((100, 60))
    np.testing.assert_allclose(chain.problem.oracle(V), inner(V), atol=1e-8)
    attempt = Attempt(inner, 0.0, "", 0.0, "")
    best = chain.invert(Result(attempt, [], [])).best
    np.testing.assert_allclose(best.network(U), known(U), atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("function", ["sigmoid", "clip"])
def test_one_output(function, activation, seed, rng):
    """The network of one output becomes that of all: outputs through a sigmoid, and clipped ones."""
    plain = make_network((6, 5, M), activation=activation, output_activation="identity", random_state=seed)
    last = 8.0 * plain.weights[-1]
    plain = plain.with_parameters([plain.weights[0], last], plain.biases)
    model = (lambda X: expit(plain(X))) if function == "sigmoid" else lambda X: np.clip(plain(X), -2.0, 2.0)
    X = rng.standard_normal((200, 6))
    chain = observed(model, X)
    ((one, problem),) = chain.applied
    assert str(one) == f"output {one.index}, which has the hidden layers of all"
    column = plain.with_parameters(
        [plain.weights[0], last[:, [one.index]]], [plain.biases[0], plain.biases[1][[one.index]]]
    )
    inner = in_units_of(chain.problem.oracle, column)
    best = chain.invert(Result(Attempt(inner, 0.0, "", 0.0, ""), [], [])).best
    found = with_outputs(
        change_inputs(best.network, -problem.oracle.center / problem.oracle.scale, 1.0 / problem.oracle.scale),
        problem.oracle,
    )
    np.testing.assert_allclose(
        found(X), (model(X) - problem.oracle.output_center) / problem.oracle.output_scale, atol=1e-9
    )
