"""Models of low or changing precision: a right result with an honest report, or an error that states the cause."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident.datasets import make_network
from skident.identification import NetworkIdentifier

pytestmark = pytest.mark.usefixtures("own_seconds")


def small_network(activation, seed):
    return make_network(
        (4, 5, 1), activation=activation, bias_scale=0.5, output_activation="identity", random_state=seed
    )


TANH, RELU = small_network("tanh", 0), small_network("relu", 0)
X = np.random.RandomState(0).standard_normal((60, 4))


def in_float32(network, round_products=lambda A: A):
    """A network that computes in float32, with factors of its products rounded further."""
    weights = [round_products(W.astype(np.float32)) for W in network.weights]
    biases = [b.astype(np.float32) for b in network.biases]
    activations = [np.tanh if a.name == "tanh" else lambda z: np.maximum(z, 0.0) for a in network.activations[:-1]]

    def model(X):
        H = np.asarray(X, dtype=np.float32)
        for W, b, activation in zip(weights, biases, [*activations, lambda z: z], strict=True):
            with np.errstate(over="ignore", invalid="ignore"):
                H = activation(round_products(H) @ W + b)
        return H

    return model


def with_bits(bits):
    """Rounds float32 numbers to so many mantissa bits, the leading one included."""

    def rounded(A):
        mantissa, exponent = np.frexp(A)
        return np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits).astype(np.float32)

    return rounded


def alternating(network):
    """Answers float64 and float32 in turn."""
    calls, single = [0], in_float32(network)

    def model(X):
        calls[0] += 1
        return network(X) if calls[0] % 2 else single(X)

    return model


BFLOAT16, TF32 = with_bits(8), with_bits(11)
# The largest error of an agreeing network, over the outputs' range: what the model's own rounding leaves.
MODELS = {
    "inputs near the largest float32": (lambda net: lambda X: in_float32(net)(np.asarray(X) / 1e37), 1e-5),
    "subnormal outputs": (lambda net: lambda X: in_float32(net)(X) * np.float32(1e-41), 1e-3),
    "precision changes": (alternating, 1e-5),
    "computed in bfloat16": (lambda net: lambda X: BFLOAT16(in_float32(net, BFLOAT16)(X)), 0.1),
    "products in tf32": (lambda net: in_float32(net, TF32), 1e-2),
    "integers": (lambda net: lambda X: np.rint(3.0 * in_float32(net)(X)), 0.3),
    "offset of a million": (lambda net: lambda X: in_float32(net)(X) + np.float32(1e6), 0.1),
}
RECOVERED = [("inputs near the largest float32", "tanh")]  # where precision changes, that depends on when it does


def outcome(model, X, max_seconds=2):
    """The fitted identifier, or the error's message."""
    identifier = NetworkIdentifier(model, layer_widths="auto", random_state=0, max_seconds=max_seconds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return identifier.fit(X)
        except ValueError as error:
            assert not hasattr(identifier, "network_")
            return str(error)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("name", MODELS)
def test_no_wrong_network_is_trusted(name, activation, seed, rng):
    """Exact only with exact answers; agreeing only with the right widths, and right up to the model's own errors."""
    spread = 1e37 if "largest" in name else 1.0
    make, tol = MODELS[name]
    network = small_network(activation, seed)
    model = make(network)
    found = outcome(model, spread * X)
    if isinstance(found, str):
        assert (name, network.activation) not in RECOVERED and len(found) > 40, found
        return
    # Half of the answers of the model whose precision changes are exact, and can be the held-out ones.
    assert not found.report_.exact or name == "precision changes"
    if found.report_.agrees:
        U = spread * rng.standard_normal((500, 4))
        Y = np.asarray(model(U), dtype=float).ravel()
        assert found.layer_widths_ == (5, 1)
        assert np.abs(found.predict(U).ravel() - Y).max() < tol * np.ptp(Y)


@pytest.mark.slow
def test_units_grown_for_rounding_inside_the_model_do_not_agree():
    """A network agrees only if the model rounds once, at the end, and only with the right widths."""
    network = small_network("relu", 6)
    for model, rounded_once in [
        (lambda X: BFLOAT16(in_float32(network, BFLOAT16)(X)), False),
        (lambda X: BFLOAT16(in_float32(network)(X)), True),
    ]:
        found = outcome(model, X, max_seconds=6)
        if isinstance(found, str):  # the budget is over, or no network explains the outputs
            continue
        assert found.report_.agrees <= (rounded_once and found.layer_widths_ == (5, 1))


def test_inputs_beyond_the_largest_float32():
    """Queries overflow in the model: the error names the input, and nothing is fitted."""

    def model(U):
        with np.errstate(over="ignore"):
            return in_float32(TANH)(np.asarray(U).astype(np.float32) / np.float32(1e38))

    found = outcome(model, 1e38 * X)
    assert isinstance(found, str) and "finite" in found


def test_a_rarely_active_unit_that_is_missing_is_no_agreement(rng):
    """Of float32 outputs: a unit active at one sample in 1,000 is found, or the network does not agree."""
    for seed in range(3):
        options = {"activation": "relu", "output_activation": "identity", "bias_scale": 0.5}
        network = make_network((4, 5, 1), **options, random_state=seed)
        biases = np.concatenate([[-3.0], network.biases[0][1:]])
        network = network.with_parameters(network.weights, [biases, network.biases[1]])
        found = outcome(in_float32(network), rng.standard_normal((60, 4)))
        assert isinstance(found, str) or found.layer_widths_ == (5, 1) or not found.report_.agrees
