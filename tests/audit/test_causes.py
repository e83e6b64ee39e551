"""Ordinary causes of differences: each is named first, with the numbers that were changed."""

import numpy as np
import pytest
from scipy.special import softmax

from skident import verify_same
from skident.audit.changes import rounded_to
from skident.network import FeedforwardNetwork, get_activation, leaky_relu


def drawn(seed, sizes=(6, 9, 9, 3), activation="relu"):
    rng = np.random.RandomState(seed)
    weights = [rng.standard_normal((m, n)) * np.sqrt(2.0 / m) for m, n in zip(sizes, sizes[1:])]
    return FeedforwardNetwork(weights, [0.3 * rng.standard_normal(n) for n in sizes[1:]], activation)


def samples(network, seed=0):
    return np.random.RandomState(seed).standard_normal((200, network.n_inputs))


def layered(network, activations=None, order=None):
    layers = list(zip(network.weights, network.biases, activations or network.activations))

    def outputs(X):
        for k in order or range(len(layers)):
            X = layers[k][2](X @ layers[k][0] + layers[k][1])
        return X

    return outputs


def with_layer(network, k, W=None, b=None):
    weights, biases = list(network.weights), list(network.biases)
    weights[k], biases[k] = weights[k] if W is None else W, biases[k] if b is None else b
    return FeedforwardNetwork(weights, biases, network.activation)


SCALE, OFFSET = np.linspace(0.4, 2.5, 6), np.linspace(-1.0, 0.7, 6)
ORDER = np.array([3, 0, 4, 1, 5, 2])
ONE = np.array([1.0, 1.0, 2.54, 1.0, 1.0, 1.0])
GAIN, SHIFT = np.array([2.0, 0.1, 30.0]), np.array([1.0, -0.5, 4.0])
CAUSES = {  # the black box, from the network; the kind; entries of its parameters
    "standardized": (lambda f: lambda X: f(X * SCALE + OFFSET), "input maps", {"input_scale": SCALE}),
    "divided": (lambda f: lambda X: f(X / 255), "input maps", {"input_scale": np.full(6, 1 / 255)}),
    "inches": (lambda f: lambda X: f(X * ONE), "one input map", {"input_scale": ONE}),
    "columns": (lambda f: lambda X: f(X[:, ORDER]), "permuted inputs", {}),
    "outputs": (lambda f: lambda X: f(X)[:, ::-1], "reversed outputs", {"order": np.array([2, 1, 0])}),
    "units": (lambda f: lambda X: GAIN * f(X) + SHIFT, "output maps", {"output_scale": GAIN, "output_offset": SHIFT}),
    "both": (lambda f: lambda X: GAIN * f(X * SCALE) + SHIFT, "input maps and output maps", {}),
    "replaced": (
        lambda f: layered(f, [get_activation("gelu"), *f.activations[1:]]), "activation",
        {"layer": 0, "activation": "gelu"},
    ),
    "missing": (lambda f: layered(f, [f.activations[0], np.array, np.array]), "activation", {"activation": "identity"}),
    "leaky": (lambda f: FeedforwardNetwork(f.weights, f.biases, leaky_relu(0.123)), "activation", {"slope": 0.123}),
    "biases": (lambda f: with_layer(f, 0, b=np.zeros(9)), "zero biases", {"layer": 0}),
    "transposed": (lambda f: with_layer(f, 1, W=f.weights[1].T), "transposed weights", {"layer": 1}),
    "dropped": (lambda f: layered(f, order=[0, 2]), "missing layer", {"layer": 1}),
    "doubled": (lambda f: layered(f, order=[0, 1, 1, 2]), "doubled layer", {"layer": 1}),
    "short": (
        lambda f: f.with_parameters(*([rounded_to(A, 8) for A in part] for part in (f.weights, f.biases))),
        "number format", {"format": "bfloat16", "of": "weights"},
    ),
    "clipped": (lambda f: lambda X: np.clip(f(X), -1.0, 2.0), "clipped outputs", {"low": -1.0, "high": 2.0}),
    "softmax": (lambda f: lambda X: softmax(f(X), axis=1), "added softmax", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_cause_is_named_first(name):
    network = drawn(1)
    changed, kind, parameters = CAUSES[name]
    X = samples(network)
    report = verify_same(changed(network), network, X, response_method="predict", random_state=0)
    first = report.causes[0]
    assert (report.same, first.kind, first.explains) == (False, kind, True), str(report)
    for key, value in parameters.items():
        if isinstance(value, str):
            assert first.parameters[key] == value
        else:
            np.testing.assert_allclose(first.parameters[key], value, rtol=1e-7, atol=1e-9)
    if first.network is not None and name not in ("softmax", "clipped"):
        np.testing.assert_allclose(first.network(X), changed(network)(X), rtol=1e-8, atol=1e-8)
    assert report.to_dict()["causes"][0]["kind"] == kind


def test_same_models_have_no_cause():
    network = drawn(2)
    report = verify_same(network, network, samples(network), random_state=0)
    assert report.same and report.causes == []


@pytest.mark.parametrize("seed", range(3))
def test_another_network_has_no_cause(seed):
    network = drawn(seed)
    report = verify_same(drawn(seed + 10), network, samples(network), random_state=0)
    assert report.same is False and not any(cause.explains for cause in report.causes)


def test_two_causes_at_once_are_not_taken_for_one():
    network = drawn(3)
    box = lambda X: layered(network, order=[0, 2])(X / 255)[:, ::-1]  # noqa: E731
    report = verify_same(box, network, samples(network), random_state=0)
    assert report.same is False and not any(cause.explains for cause in report.causes)
    assert "no change of one unit, of few weights or ordinary cause explains it" in str(report)


def test_other_shapes_are_refused():
    network = drawn(4)
    with pytest.raises(ValueError, match="the black box gives 2 output"):
        verify_same(drawn(4, (6, 9, 2)), network, samples(network), random_state=0)


def test_noise_is_not_dropout():
    network, rng = drawn(5), np.random.RandomState(0)
    report = verify_same(
        lambda X: network(X) + 0.05 * rng.standard_normal((len(X), 3)), network, samples(network), random_state=0
    )
    assert report.causes == []
