"""Weights that are float32, float16 or bfloat16 numbers come back to the last bit, and others are never called so."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.identification.exact_bits.grid import FORMAT_DIGITS, distances, evidence_of, nearest, spacing
from skident.identification.exact_bits.rounding import MAX_LOG_ODDS, round_network
from skident.identification.exact_bits.summary import Bits, round_to_format
from skident.identification.exact_bits.unit_scale import at_power_of_two, scale_of_unit
from skident.network import FeedforwardNetwork

MODULES = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "gelu": torch.nn.GELU}
EPS = np.finfo(float).eps


def rounded(network, dtype=np.float32):
    """The network with weights and biases rounded to a numpy type."""
    parts = ([np.asarray(a.astype(dtype), dtype=float) for a in part] for part in (network.weights, network.biases))
    return network.with_parameters(*parts)


def recovered(network, rng, error=4 * EPS):
    """The network as an identification returns it: ReLU units at any scale, every parameter with an error."""
    W, b = [w.copy() for w in network.weights], [v.copy() for v in network.biases]
    if network.activation == "relu":
        for i in range(len(W) - 1):
            scale = np.exp(rng.standard_normal(W[i].shape[1]))
            W[i], b[i], W[i + 1] = W[i] * scale, b[i] * scale, W[i + 1] / scale[:, None]
    for w, v in zip(W, b, strict=True):
        size = np.abs(np.vstack([w, v])).max(axis=0)
        w += error * size * rng.standard_normal(w.shape)
        v += error * size * rng.standard_normal(v.shape)
    return network.with_parameters(W, b)


def at_standard_scale(network):
    """The network with the largest incoming weight of every hidden ReLU unit in [1/2, 1): powers of two only."""
    W, b = [w.copy() for w in network.weights], [v.copy() for v in network.biases]
    for i in range(len(W) - 1 if network.activation == "relu" else 0):
        largest = np.abs(W[i]).max(axis=0)
        scale = np.ldexp(1.0, -np.frexp(np.where(largest > 0, largest, 0.5))[1])
        W[i], b[i], W[i + 1] = W[i] * scale, b[i] * scale, W[i + 1] / scale[:, None]
    return network.with_parameters(W, b)


def n_wrong(network, result):
    """How many of the parameters that are called certain differ from the true ones, by more than a power of two."""
    true = [np.vstack([W, b]) for W, b in zip(network.weights, network.biases, strict=True)]
    mantissas = [(np.frexp(layer.values)[0], np.frexp(t)[0]) for layer, t in zip(result.layers, true, strict=True)]
    return sum(int(np.sum((a != b) & layer.certain)) for layer, (a, b) in zip(result.layers, mantissas, strict=True))


def n_certain(result):
    return int(np.sum(result.log_odds < MAX_LOG_ODDS))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_grid_is_that_of_numpy(dtype, rng):
    digits = {np.float32: 24, np.float16: 11}[dtype]
    values = rng.standard_normal(1000) + 1.0
    normal = np.abs(values) > 1e-3
    assert np.array_equal(nearest(values, digits)[normal], values.astype(dtype).astype(float)[normal])
    numbers = values.astype(dtype)[normal]
    assert np.array_equal(spacing(numbers.astype(float), digits), np.spacing(np.abs(numbers)).astype(float))
    assert np.all(distances(values.astype(dtype).astype(float), digits) == 0.0)
    assert spacing(np.zeros(1), digits)[0] == 0.0 and nearest(np.zeros(1), digits)[0] == 0.0


def test_evidence_is_for_the_grid_only(rng):
    """Values off the grid have evidence of at most a few values near it by chance."""
    on = rng.standard_normal(50).astype(np.float32).astype(float)
    assert evidence_of(on, 1.0, 24).nats > 50 * np.log(2.0**-26 / (10 * 4 * EPS)) - 200
    assert max(evidence_of(rng.standard_normal(50), 1.0, 24).nats for _ in range(200)) < 10.0


@pytest.mark.parametrize("error", [EPS, 1e-13, 1e-12])
def test_scale_of_a_relu_unit(error, rng):
    """The scale is found up to a power of two; with seven entries by chance not in 3^-7 of the units."""
    n_found = 0
    for _ in range(50):
        values = rng.uniform(-1, 1, 7).astype(np.float32).astype(float)
        factor = np.exp(rng.standard_normal())
        found = scale_of_unit(factor * values + error * rng.standard_normal(7), 24)
        if found is not None:
            n_found += 1
            # 4 errors of the largest of seven uniform entries, and 2 roundings
            assert abs(np.log2(found[0] * factor) - np.rint(np.log2(found[0] * factor))) < 20 * error + 4 * EPS
    assert n_found >= 48


@pytest.mark.parametrize("factor", [3, 5, 9])
def test_largest_integers_share_an_odd_factor(factor, rng):
    """Ratios of the largest entries alone are those of smaller integers; the other entries rule these out."""
    largest = factor * rng.integers(3 * 2**22 // factor + 1, 2**24 // factor, 6)
    values = np.append(largest, rng.integers(2**23, 3 * 2**22, 6)) * rng.choice([-1.0, 1.0], 12)
    scale, _ = scale_of_unit(values / np.sqrt(2.0), 24)
    assert abs(np.log2(scale / np.sqrt(2.0)) - np.rint(np.log2(scale / np.sqrt(2.0)))) < 4 * EPS


def test_no_scale_of_other_units(rng):
    assert all(scale_of_unit(rng.standard_normal(11), 24) is None for _ in range(100))
    assert scale_of_unit(np.array([0.3, 0.0, 0.0]), 24) is None  # one nonzero weight
    assert scale_of_unit(np.array([3.0, 6.0, -9.0, 12.0]) / 7.0, 24) is None  # small integers: many scales
    assert at_power_of_two(0.3) == 1.2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("format", FORMAT_DIGITS)
@pytest.mark.parametrize("activation", MODULES)
def test_all_bits_come_back(activation, format, seed, rng):
    network = make_network((8, 12, 6, 2), activation=activation, output_activation="identity", random_state=seed)
    network = rounded(network) if format == "float32" else network
    digits = FORMAT_DIGITS[format]
    network = network.with_parameters(
        [nearest(W, digits) for W in network.weights], [nearest(b, digits) for b in network.biases]
    )
    result = round_network(recovered(network, rng), digits)
    assert n_certain(result) == network.n_parameters and n_wrong(network, result) == 0


def scaled_inputs(network, rng):
    first = network.weights[0] / rng.uniform(0.5, 2.0, network.n_inputs)[:, None]
    return network.with_parameters([first, *network.weights[1:]], [network.biases[0] - 0.1, *network.biases[1:]])


def scaled_outputs(network, rng):
    last, bias = network.weights[-1] * 1.2345, network.biases[-1] * 1.2345 + 0.3
    return network.with_parameters([*network.weights[:-1], last], [*network.biases[:-1], bias])


def pruned(network, rng):
    return network.with_parameters([W * (rng.random(W.shape) < 0.6) for W in network.weights], network.biases)


def with_tiny_weights(network, rng):
    """One weight in ten is subnormal in float32: 0 to double precision."""
    W = [np.where(rng.random(w.shape) < 0.1, np.float32(1e-42).astype(float), w) for w in network.weights]
    return network.with_parameters(W, network.biases)


def duplicated(network, rng):
    """A unit twice: its outgoing weights are recovered as their sum."""
    last = network.weights[-1].copy()
    last[0] += np.float32(np.pi).astype(float)
    return network.with_parameters([*network.weights[:-1], last], network.biases)


def with_one_weight(network, rng):
    first, bias = network.weights[0].copy(), network.biases[0].copy()
    first[1:, 0], bias[0] = 0.0, 0.0
    return network.with_parameters([first, *network.weights[1:]], [bias, *network.biases[1:]])


def quantized(network, rng):
    steps = [np.abs(W).max() / 127 for W in network.weights]
    return network.with_parameters([np.rint(W / s) * s for W, s in zip(network.weights, steps)], network.biases)


# A model, the least share of certain parameters of tanh and of ReLU networks, and what a layer's reasons name.
CHANGED = {
    "input scaler": (scaled_inputs, 0.4, 0.0, "numbers of this format"),
    "output scaler": (scaled_outputs, 0.8, 0.7, "numbers of this format"),
    "pruned": (pruned, 1.0, 0.3, None),
    "subnormal weights": (with_tiny_weights, 0.85, 0.5, None),
    "duplicate units": (duplicated, 0.85, 0.8, None),
    "one nonzero weight": (with_one_weight, 1.0, 0.8, None),
    "quantized": (quantized, 0.0, 0.0, "quantized to integers"),
}


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("name", CHANGED)
def test_what_is_not_float32_is_left(name, activation, rng):
    """What is called certain is right, whatever the rest of the network is; the reason is named."""
    change, least_tanh, least_relu, reason = CHANGED[name]
    for seed in range(5):
        network = rounded(make_network((6, 12, 8, 2), activation=activation, random_state=seed))
        network = FeedforwardNetwork(network.weights, network.biases, activation, "identity")
        changed = change(network, rng)
        result = round_network(recovered(changed, rng), 24)
        reasons = " ".join(reason for layer in result.layers for reason in layer.reasons)
        if name != "subnormal weights":  # a weight of 1e-42 is 0 to double precision
            assert n_wrong(changed, result) == 0
        assert n_certain(result) >= (least_tanh if activation == "tanh" else least_relu) * network.n_parameters
        assert reason is None or reason in reasons
        if name == "one nonzero weight" and activation == "relu":
            assert "no scale of a unit, or more than one" in reasons


def test_no_bit_of_other_weights_is_called_certain(rng):
    """Weights trained in double precision, or scaled afterwards: 0 of 100 networks."""
    for seed in range(100):
        activation = ("tanh", "relu")[seed % 2]
        network = make_network((6, 10, 2), activation=activation, output_activation="identity", random_state=seed)
        if seed % 4 > 1:
            network = rounded(network).with_parameters([1.1 * W for W in network.weights], network.biases)
            network = network.with_parameters(network.weights, [1.3 * b + 0.1 for b in network.biases])
        assert n_certain(round_network(recovered(network, rng), 24)) == 0


def test_uncertain_weights_are_fitted_again(rng):
    """A small weight whose spacing is below the error of the recovery is determined once all others are fixed."""
    network = rounded(make_network((5, 8, 1), output_activation="identity", random_state=0))
    W = [network.weights[0].copy(), network.weights[1]]
    W[0][2, 3] = np.float32(1.2345e-6).astype(float)
    network = network.with_parameters(W, network.biases)
    X = rng.standard_normal((200, 5))
    found, bits = round_to_format(recovered(network, rng, error=1e-13), "float32", X, network(X))
    assert bits.complete and found == network and "121 of 121" not in str(bits) and "57 of 57" in str(bits)


def test_a_rounded_network_that_explains_less_is_refused(rng):
    network = make_network((5, 8, 1), output_activation="identity", random_state=0)
    X = rng.standard_normal((50, 5))
    found, bits = round_to_format(rounded(network), "float32", X, network(X))
    assert bits.complete and found == rounded(network)  # as good as the given one
    other = rounded(network).with_parameters(rounded(network).weights, [b + 1e-10 for b in network.biases])
    found, bits = round_to_format(other, "float32", X, other(X))
    assert bits.certain < bits.total and str(Bits("float32", 0, 3, 0.0, ("why",))).endswith("float32; why")


@pytest.mark.parametrize("activation", MODULES)
def test_a_module_comes_back_as_a_state_dict(activation, rng):
    """The default call on a torch module: equal state dicts up to the order of the units, their signs and scales."""
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(10, 16), MODULES[activation](), torch.nn.Linear(16, 2))
    identifier = NetworkIdentifier(module, weight_dtype="float32", random_state=0).fit(rng.standard_normal((100, 10)))
    assert identifier.report_.bits.complete and "210 of 210" in str(identifier.report_)
    truth = at_standard_scale(FeedforwardNetwork.from_torch(module.double()))
    found = at_standard_scale(identifier.network_)
    order = np.argmin(np.abs(truth.weights[1][:, :1] ** 2 - found.weights[1][:, 0] ** 2), axis=0)
    signs = np.sign(truth.weights[1][order, 0] * found.weights[1][:, 0])
    assert np.array_equal(truth.weights[0][:, order] * signs, found.weights[0])
    assert np.array_equal(truth.biases[0][order] * signs, found.biases[0])
    assert np.array_equal(truth.weights[1][order] * signs[:, None], found.weights[1])
    single = identifier.network_.to_torch(dtype=torch.float32)
    assert np.array_equal(single[0].weight.detach().numpy().astype(float), identifier.network_.weights[0].T)


def test_outputs_of_single_precision_determine_no_bits(rng):
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def model(X):
        with torch.no_grad():
            return module(torch.from_numpy(X).float()).numpy()

    identifier = NetworkIdentifier(model, weight_dtype="float32", random_state=0)
    with pytest.warns(ConvergenceWarning, match="rounding"):
        identifier.fit(rng.standard_normal((100, 6)))
    bits = identifier.report_.bits
    assert bits.certain == 0 and "double precision" in bits.reasons[0] and identifier.stderr_ is not None


def test_unknown_formats_are_refused():
    with pytest.raises(ValueError, match="weight_dtype"):
        NetworkIdentifier(lambda X: X[:, 0], weight_dtype="int8").fit(np.eye(4))
