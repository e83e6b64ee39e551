"""Outputs that are a known function of a network: bounded, log-probabilities, exponentials; what is none of them."""

import warnings

import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning

from skident import NetworkIdentifier, NetworkVerifier
from skident.datasets import make_network
from skident.identification.reductions.one_output import _last_hidden
from skident.identification.reductions.outputs import (
    BoundedOutputs,
    ExponentialOutputs,
    LogProbabilities,
    refuse_refuted,
)
from skident.network import FeedforwardNetwork
from skident.oracle import NotIdentified, Oracle

LOW, HIGH = np.array([-1.5, -0.3, 2.0]), np.array([0.7, 3.0, 2.5])


def bounded(Z):
    return LOW + (HIGH - LOW) * (np.tanh(Z) + 1.0) / 2.0


FUNCTIONS = {
    "bounded": (bounded, (6, 3), "outputs between"),
    "score": (lambda Z: 100.0 * expit(Z), (6, 1), "outputs between"),
    "log-probabilities": (lambda Z: log_softmax(Z, axis=1), (6, 4), "log-probabilities"),
    "exponential": (np.exp, (6, 1), "logarithm of the outputs"),
}


def model_of(function, widths, activation="relu", seed=0):
    network = make_network((5, *widths), activation=activation, output_activation="identity", random_state=seed)
    return lambda X: function(network(X))


def accepted(kind, model):
    X = np.random.default_rng(0).standard_normal((20, 5))
    oracle = Oracle(model, 5)
    return kind.accepts(oracle, oracle(X))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_default_call_recovers_what_comes_before_the_outputs(name, rng):
    function, widths, text = FUNCTIONS[name]
    model, X = model_of(function, widths), rng.standard_normal((100, 5))
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact and found.layer_widths_ == widths
    assert found.report_.reductions[0].startswith(text)
    far = 3.0 * rng.standard_normal((500, 5))
    scale = np.abs(model(far)).max()
    assert found.predict(far).shape == model(far).shape
    assert np.abs(found.predict(far) - model(far)).max() < 1e-10 * scale
    if name in ("bounded", "score"):
        np.testing.assert_allclose(found.network_(far), model(far), atol=1e-10 * scale)
        assert NetworkVerifier(model, network=found, tol=1e-9, random_state=0).fit(X).report_.same
    else:
        with pytest.raises(ValueError, match=f"is what comes before its outputs .{text}.*pass network_ itself"):
            NetworkVerifier(model, network=found, random_state=0).fit(X)


def test_one_output_without_an_axis(rng):
    model = model_of(lambda Z: 100.0 * expit(Z[:, 0]), (6, 1))
    found = NetworkIdentifier(model, random_state=0).fit(rng.standard_normal((100, 5)))
    assert found.report_.exact and found.predict(np.zeros((2, 5))).shape == (2,)


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("hidden", [(8,), (8, 6)])
def test_values_before_bounds_have_the_error_of_their_rounding(hidden, seed, rng):
    """Without it, boundaries near the bounds seemed to be wrong: 490,000 to 1,200,000 queries, not 12,000 to 71,000."""
    network = make_network(
        (5, *hidden, 2), activation="relu", output_activation="identity", random_state=seed, bias_scale=0.3
    )
    X = rng.standard_normal((100, 5))
    found = NetworkIdentifier(lambda X: bounded(network(X)[:, [0, 1, 1]])[:, :2], random_state=0).fit(X)
    assert found.report_.exact and found.n_queries_ < 150_000


def test_an_output_that_leaves_its_bounds_refutes_them(rng):
    """Outputs that a query finds beyond the bounds, after these were accepted."""
    network = make_network((5, 6, 3), activation="relu", output_activation="identity", random_state=0)
    oracle = Oracle(lambda X: np.where(X[:, :1] > 2.0, HIGH + 0.1, bounded(network(X))), 5)
    inner = BoundedOutputs(LOW, HIGH).apply(oracle)
    inner(np.zeros((1, 5)))
    refuse_refuted(inner)
    inner(np.full((1, 5), 1e3))
    with pytest.raises(NotIdentified, match="some outputs of the model contradict: outputs between"):
        refuse_refuted(inner)


@pytest.mark.parametrize("function", [lambda Z: np.maximum(Z, 0.0), lambda Z: np.clip(Z, LOW, HIGH)])
def test_clips_are_no_bounds_that_are_approached(function):
    assert accepted(BoundedOutputs, model_of(function, (8, 3))) is None


def test_clipped_outputs_of_which_hardly_any_query_keeps_all(rng):
    """The next reading recovers them: a layer of ReLU units before linear outputs."""
    network = make_network((8, 6, 3), activation="relu", output_activation="identity", random_state=3)
    model, X = (lambda X: np.maximum(network(X) - 0.5, 0.0)), rng.standard_normal((100, 8))
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact
    np.testing.assert_allclose(found.predict(X), model(X), atol=1e-10)


def test_log_probabilities_of_smooth_units(rng):
    model, X = model_of(lambda Z: log_softmax(Z, axis=1), (6, 3), "tanh"), rng.standard_normal((100, 5))
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact
    np.testing.assert_allclose(found.predict(X), model(X), atol=1e-10)


def test_log_probabilities_in_single_precision(rng):
    """The rounding of float32 is 1e-7 of the largest log-probability."""
    network = make_network((5, 6, 3), activation="relu", output_activation="identity", random_state=0)
    model = lambda X: log_softmax(network(X.astype(np.float32)), axis=1).astype(np.float32)  # noqa: E731
    X = rng.standard_normal((100, 5))
    with pytest.warns(ConvergenceWarning, match="noise or rounding"):
        found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.agrees and not found.report_.exact and found.stderr_ is None
    np.testing.assert_allclose(found.predict(X), model(X), atol=3e-6)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_logarithms_of_probabilities_that_underflow(activation, rng):
    """Far out, ReLU units make them minus infinity."""
    network = make_network((5, 6, 3), activation=activation, output_activation="identity", random_state=0)

    def model(X):
        with np.errstate(divide="ignore"):
            return np.log(softmax(network(X), axis=1))

    X = rng.standard_normal((100, 5))
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact and found.report_.reductions[0] == "log-probabilities"
    np.testing.assert_allclose(found.predict(X), model(X), atol=1e-10)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_exponentials_of_units_that_saturate(activation, rng):
    """The product of outputs at far opposite points is constant."""
    model, X = model_of(np.exp, (6, 2), activation), rng.standard_normal((100, 5))
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact and found.report_.reductions == ["logarithm of the outputs"]
    np.testing.assert_allclose(found.predict(X), model(X), rtol=1e-9)


@pytest.mark.parametrize("kind", [BoundedOutputs(LOW, HIGH), LogProbabilities(), ExponentialOutputs()])
def test_inverses(kind, rng):
    Z = rng.standard_normal((50, 3))
    if isinstance(kind, BoundedOutputs):
        Z, Y = np.tanh(Z), bounded(Z)
    else:
        Y = kind.forward(Z)
    before = kind.before(Y)
    expected = Z[:, :-1] - Z[:, -1:] if isinstance(kind, LogProbabilities) else Z
    np.testing.assert_allclose(before, expected, atol=1e-13)


def test_a_clip_between_bounds_stays_one(rng):
    network = make_network((4, 5, 3), output_activation="identity", random_state=0).with_clip(-0.8, 1.0)
    X = 3.0 * rng.standard_normal((200, 4))
    expected = LOW + (HIGH - LOW) * (network(X) + 1.0) / 2.0
    assert np.abs(BoundedOutputs(LOW, HIGH).invert(network)(X) - expected).max() < 1e-14


def test_one_output_without_hidden_layers(rng):
    """A linear output among clipped ones: the others are fitted to the inputs."""
    network = FeedforwardNetwork([np.array([[1.0], [2.0]])], [np.array([0.5])], "tanh")
    U = rng.standard_normal((3, 2))
    assert np.array_equal(_last_hidden(network)(U), np.column_stack([U, np.ones(3)]))


def test_a_constant_output_among_bounded_ones(rng):
    network = make_network((5, 6, 3), activation="relu", output_activation="identity", random_state=1)
    weights = [network.weights[0], network.weights[1] * [1.0, 0.0, 1.0]]
    network = network.with_parameters(weights, network.biases)
    found = accepted(BoundedOutputs, lambda X: bounded(network(X)))
    np.testing.assert_allclose(found.low[[0, 2]], LOW[[0, 2]])
    np.testing.assert_allclose(found.high[[0, 2]], HIGH[[0, 2]])
    assert found.high[1] - found.low[1] == 2.0


def test_bounds_that_hardly_differ_are_none():
    model = model_of(lambda Z: 5.0 + 1e-12 * np.tanh(Z), (6, 2))
    assert accepted(BoundedOutputs, model) is None


@pytest.mark.parametrize("function", [lambda Z: Z, lambda Z: Z**2 + 0.1, lambda Z: np.maximum(Z, 0.0) + 0.5])
@pytest.mark.parametrize("kind", [BoundedOutputs, LogProbabilities, ExponentialOutputs])
def test_other_outputs_are_accepted_by_none(kind, function):
    assert accepted(kind, model_of(function, (6, 2))) is None


def rests(z):
    """An odd piecewise linear function that approaches 1 in three steps, the last of slope 1e-4, and rests there."""
    steps = zip((0.0, 0.8, 1.6), (0.8, 1.6, 10.0), (1.0, 0.1, 1e-4), strict=True)
    return np.sign(z) * sum(slope * (np.clip(np.abs(z), low, high) - low) for low, high, slope in steps)


def cone(X, width):
    """What grows where the first input is larger than the others together, times `width`: 1 % of all directions."""
    return 0.05 * np.maximum(X[:, :1] - width * np.abs(X[:, 1:]).sum(axis=1, keepdims=True), 0.0)


def test_a_network_that_rests_at_bounds_is_recovered_without_them(rng):
    """The bounds are accepted first: the rival reading explains the outputs, and the report states both."""
    W, X = rng.standard_normal((5, 2)), rng.standard_normal((100, 5))
    model = lambda X: LOW[:2] + HIGH[:2] * rests(X @ W)  # noqa: E731
    assert accepted(BoundedOutputs, model) is not None
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact and found.report_.reductions == []
    assert found.report_.rejected.startswith("outputs between") and "rejected: outputs between" in str(found.report_)
    far = np.array([[1.0], [10.0], [1e3]])[:, :, None] * rng.standard_normal((3, 100, 5))
    np.testing.assert_allclose(found.predict(far.reshape(-1, 5)), model(far.reshape(-1, 5)), atol=1e-9)


@pytest.mark.parametrize("inner", ["network", "rests"])
def test_outputs_that_saturate_but_are_not_bounded_are_never_exact(inner, rng):
    """They grow in 1 % of all directions, which the far outputs that show the bounds do not meet."""
    W, X = rng.standard_normal((5, 2)), rng.standard_normal((100, 5))
    saturated = model_of(bounded, (6, 3)) if inner == "network" else lambda X: LOW[:2] + HIGH[:2] * rests(X @ W)
    model = lambda X: saturated(X) + cone(X, 1.0)  # noqa: E731
    assert accepted(BoundedOutputs, model) is not None
    try:
        with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore"):
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = NetworkIdentifier(model, random_state=0).fit(X)
    except NotIdentified as refused:
        assert "curved and have sharp bends" in str(refused)
    else:
        assert not found.report_.exact and found.report_.rejected.startswith("outputs between")


def test_constant_inputs_among_many(rng):
    """Of 100 inputs, 90 are constant in X."""
    network = make_network((100, 5, 1), activation="relu", output_activation="identity", random_state=0)
    X = rng.standard_normal((60, 100))
    X[:, 10:] = 0.5
    found = NetworkIdentifier(lambda X: network(X), random_state=0).fit(X)
    assert found.report_.exact and found.layer_widths_ == (5, 1)


def sigmoids(widths, activation, sd, seed):
    network = make_network(widths, activation=activation, output_activation="identity", random_state=seed)
    last = sd * np.random.default_rng(seed).standard_normal(network.weights[-1].shape)
    network = network.with_parameters([*network.weights[:-1], last], network.biases)
    return lambda X: expit(network(X))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("sd", [5.0, 100.0])
def test_several_sigmoid_outputs_through_one_of_them(activation, sd, rng):
    """Few inputs keep the log-odds of all outputs."""
    model, X = sigmoids((10, 8, 4), activation, sd, 1), rng.standard_normal((100, 10))
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact and found.layer_widths_ == (8, 4)
    assert "has the hidden layers of all" in found.report_.reductions[0]
    np.testing.assert_allclose(found.predict(X), model(X), atol=1e-9)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_clips_of_unequal_level_per_output(activation, rng):
    network = make_network((6, 5, 3), activation=activation, output_activation="identity", random_state=3)
    X = rng.standard_normal((200, 6))
    low, high = (np.diag(np.quantile(network(X), q, axis=0)) for q in ([0.05, 0.1, 0.15], [0.9, 0.95, 0.85]))
    found = NetworkIdentifier(lambda X: np.clip(network(X), low, high), random_state=0).fit(X)
    assert found.report_.exact and found.layer_widths_ == (5, 3)
    np.testing.assert_array_equal(found.network_.output_range, (low, high))


def test_an_output_that_is_mostly_zero_among_relu_outputs(rng):
    """LayerNorm is not what outputs that rest along half of the rays show."""
    network = make_network((8, 6, 3), activation="relu", output_activation="identity", random_state=4)
    shift = [0.0, 0.0, np.quantile(network(rng.standard_normal((500, 8)))[:, 2], 0.9)]
    model, X = (lambda X: np.maximum(network(X) - shift, 0.0)), rng.standard_normal((100, 8))
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact
    np.testing.assert_allclose(found.predict(X), model(X), atol=1e-10)


def test_one_output_that_lacks_hidden_units_of_another(rng):
    """The first choice does not explain all outputs: the next output, or the next reading, does."""
    network = make_network((6, 5, 2), activation="tanh", output_activation="identity", random_state=0)
    last = 8.0 * network.weights[-1]
    last[0, 0] = 0.0
    network = network.with_parameters([network.weights[0], last], network.biases)
    model, X = (lambda X: expit(network(X))), rng.standard_normal((100, 6))
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact
    np.testing.assert_allclose(found.predict(X), model(X), atol=1e-9)


def test_an_output_that_is_always_zero_among_relu_outputs(rng):
    network = make_network((8, 6, 3), activation="relu", output_activation="identity", random_state=4)
    model, X = (lambda X: np.maximum(network(X), 0.0) * [1.0, 0.0, 1.0]), rng.standard_normal((100, 8))
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact
    np.testing.assert_allclose(found.predict(X), model(X), atol=1e-10)


@pytest.mark.parametrize(("decimals", "n_classes"), [(2, 2), (3, 3), (4, 5)])
def test_linear_classifiers_of_rounded_probabilities(decimals, n_classes, rng):
    """An error of a logit is that of a step at a probability of about a fifth, averaged over hundreds of samples."""
    W, X = rng.standard_normal((6, n_classes)), rng.standard_normal((200, 6))
    model = lambda X: softmax(X @ W, axis=1).round(decimals)  # noqa: E731
    with pytest.warns(ConvergenceWarning, match="noise or rounding"):
        found = NetworkIdentifier(model, response_method="predict_proba", random_state=0).fit(X)
    assert found.report_.agrees and len(found.layer_widths_) == 1
    true = W[:, 1:] - W[:, :1] if n_classes == 2 else W - W.mean(axis=1, keepdims=True)
    assert np.abs(found.network_.weights[0] - true).max() < 0.5 * 10.0**-decimals


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_bounds_that_far_outputs_do_not_reach(seed, rng):
    """Far out, one output is at its lower bound alone, and another one at its upper bound."""
    network = make_network((5, 6, 3), activation="relu", output_activation="identity", random_state=seed)
    network = network.with_parameters(
        [network.weights[0], network.weights[1] * [1.0, 0.0, 0.0] + np.outer(np.full(6, 0.4), [0.0, 1.0, -1.0])],
        [network.biases[0], network.biases[1] + [0.0, -1.0, 1.0]],
    )
    found = accepted(BoundedOutputs, lambda X: bounded(network(X)))
    np.testing.assert_allclose(found.low, LOW, atol=1e-10)
    np.testing.assert_allclose(found.high, HIGH, atol=1e-10)
    assert found.roundings < 1e6


def test_rays_on_which_all_units_are_off_show_no_bound(rng):
    """There, one output is larger than anywhere else; all other far outputs are at its lower bound."""
    network = make_network((5, 3, 3), activation="relu", output_activation="identity", random_state=0)
    last = np.column_stack([[1.0, -1.0, 0.5], [-1.0, 1.0, 0.5], np.full(3, -1.0)])
    network = network.with_parameters([network.weights[0], last], [network.biases[0], np.array([0.1, 0.2, 0.4])])
    found = accepted(BoundedOutputs, lambda X: bounded(network(X)))
    np.testing.assert_allclose([found.low, found.high], [LOW, HIGH], atol=1e-9)


@pytest.mark.parametrize("widths", [(1, 1), (2, 1), (2, 2)])
def test_units_that_saturate_are_no_bounds(widths, rng):
    model, X = model_of(lambda Z: Z + 3.0, widths, "tanh", 1), rng.standard_normal((100, 5))
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact and found.layer_widths_ == widths and found.report_.reductions == []


@pytest.mark.parametrize("shape", [(5, 6, 2), (8, 9, 5, 3)])
def test_bounds_behind_saturating_units_are_a_hidden_layer(shape, rng):
    """Far outputs do not reach their bounds: as many further units as outputs."""
    network, m = make_network(shape, output_activation="identity", random_state=0, bias_scale=0.3), shape[-1]
    model, X = (lambda X: bounded(network(X)[:, [0, 1, -1]])[:, :m]), rng.standard_normal((99, shape[0]))
    found = NetworkIdentifier(model, random_state=0).fit(X)
    assert found.report_.exact and found.layer_widths_ == (*shape[1:], m)
    np.testing.assert_allclose(found.predict(X), model(X), atol=1e-9)


def test_an_output_that_is_rarely_active_among_relu_outputs(rng):
    """No sample near the center shows it, so that its coefficients come from far ones, and its clip from the others."""
    network = make_network((8, 6, 3), activation="relu", output_activation="identity", random_state=4)
    shift = [0.0, 0.0, np.max(network(rng.standard_normal((2000, 8)))[:, 2])]
    model, X = (lambda X: np.maximum(network(X) - shift, 0.0)), rng.standard_normal((100, 8))
    found = NetworkIdentifier(model, random_state=0).fit(X)
    far = 100.0 * rng.standard_normal((100, 8))
    assert found.report_.exact and model(far)[:, 2].max() > 0.0
    np.testing.assert_allclose(found.predict(far), model(far), atol=1e-8)


@pytest.mark.parametrize("seed", [1, 2])
def test_probabilities_in_single_precision_are_weighted_by_their_errors(seed, rng):
    """Rounding of a probability near 1 is a thousand times that of others: log-odds of standard deviation 8."""
    network = make_network((8, 6, 1), output_activation="identity", random_state=seed)
    X = rng.standard_normal((200, 8))
    size = 8.0 / network(X).std()
    model = lambda X: expit(size * network(X.astype(np.float32)).astype(np.float32))[:, 0]  # noqa: E731
    with pytest.warns(ConvergenceWarning, match="noise or rounding"):
        found = NetworkIdentifier(model, response_method="predict_proba", random_state=0).fit(X)
    assert found.report_.agrees and found.layer_widths_ == (6, 1)
    near = X[np.abs(size * network(X))[:, 0] < 5.0].astype(np.float32)
    assert np.abs(found.network_(near) - size * network(near)).max() < 1e-4
