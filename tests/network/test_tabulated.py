"""Tables as activations: values, derivatives, and every form in which a network with one is kept."""

import pickle

import numpy as np
import onnxruntime
import pytest
import torch
from scipy.special import expit

from skident.network import ACTIVATIONS, FeedforwardNetwork
from skident.network.tabulated import tabulate, tabulated

TOL = 1e-13
# Function, ends of the table, slopes beyond; whether it has a second derivative everywhere.
FUNCTIONS = {
    "gelu": (ACTIVATIONS["gelu"], (-10.0, 10.0), (0.0, 1.0), True),
    "softplus and a bump": (
        lambda z: np.logaddexp(0.0, z) + 0.3 * np.exp(-0.5 * z * z), (-40.0, 40.0), (0.0, 1.0), True
    ),
    "leaky": (lambda z: 0.1 * z + 0.9 * z * expit(z), (-50.0, 50.0), (0.1, 1.0), True),
    "a bend": (lambda z: np.where(z > 0.3, z - 0.3, 0.5 * np.expm1(np.minimum(z - 0.3, 0.0))), (-40.0, 3.0), (0.0, 1.0),
               False),
}  # fmt: skip
CASES = {name: tabulate(function, *ends, slopes, TOL) for name, (function, ends, slopes, _) in FUNCTIONS.items()}
Z = np.concatenate([np.linspace(-60.0, 60.0, 4001), [-1e6, 1e6]])


def network_of(table):
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=pair) for pair in ((5, 4), (4, 3), (3, 2))]
    return FeedforwardNetwork(weights, [rng.normal(size=m) for m in (4, 3, 2)], table)


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name):
    """Values to the error, of larger numbers to rounding; slopes by central differences, which are good to 1e-8."""
    function, _, slopes, smooth = FUNCTIONS[name]
    table, h = CASES[name], 1e-4
    value, slope, bend = table.jet(Z, 2)
    assert np.all(np.abs(value - function(Z)) <= table.error + 4.0 * np.finfo(float).eps * np.abs(Z))
    z = Z[np.abs(Z - 0.3) > 0.01][:-2]  # of the bend
    slope, bend = table.jet(z, 2)[1:]
    assert np.abs(slope - (function(z + h) - function(z - h)) / (2.0 * h)).max() < 1e-7
    assert np.abs(bend - (table.jet(z + h, 1)[1] - table.jet(z - h, 1)[1]) / (2.0 * h)).max() < 1e-5
    assert table.smooth == smooth and table.error < 1e-11
    ends = table(np.array([-np.inf, np.inf, np.nan]))
    assert ends[1] == np.inf and np.isnan(ends[2]) and (ends[0] == -np.inf if slopes[0] else abs(ends[0]) < 1.0)


@pytest.mark.parametrize("name", CASES)
def test_every_form_keeps_the_network(name, tmp_path):
    network = network_of(CASES[name])
    X = 10.0 ** np.random.default_rng(1).uniform(-1, 3, (300, 1)) * np.random.default_rng(2).normal(size=(300, 5))
    outputs = network(X)
    network.save(tmp_path / "network.safetensors")
    loaded = FeedforwardNetwork.load(tmp_path / "network.safetensors")
    assert (
        loaded == network == pickle.loads(pickle.dumps(network))
        and loaded.activations[0].error == network.activations[0].error
    )
    assert hash(loaded) == hash(network) and "tabulated" in str(network) and "tabulated" in network.summary()
    module, rows = network.to_torch(), torch.tensor(X, requires_grad=True)
    assert FeedforwardNetwork.from_torch(module) == network
    made = module(rows)
    np.testing.assert_allclose(made.detach(), outputs, rtol=1e-12, atol=1e-12 * np.abs(outputs).max())
    slopes = torch.autograd.grad(made[:, 0].sum(), rows)[0]
    np.testing.assert_allclose(slopes, network.jacobian(X)[:, 0], atol=1e-11 * np.abs(network.jacobian(X)).max())
    for dtype, eps in (("float64", 1e-12), ("float32", 1e-5)):
        model = network.to_onnx(tmp_path / "network.onnx", dtype=dtype).SerializeToString()
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        made = session.run(None, {"X": X.astype(dtype)})[0]
        np.testing.assert_allclose(made, outputs, atol=eps * np.abs(outputs).max())
    network.to_onnx(tmp_path / "network.onnx", dtype="float64")
    np.testing.assert_array_equal(FeedforwardNetwork.from_onnx(tmp_path / "network.onnx")(X), network(X))


def test_other_tables_are_other_activations():
    assert CASES["gelu"] != CASES["leaky"] and CASES["gelu"] != ACTIVATIONS["gelu"]
    assert network_of(CASES["gelu"]) != network_of(CASES["leaky"])


def test_functions_without_a_table():
    noise = np.random.default_rng(0)
    assert tabulate(lambda z: noise.normal(size=len(z)), -1.0, 1.0, (0.0, 1.0), TOL) is None


@pytest.mark.parametrize(
    ("edges", "coefficients", "slopes"),
    [
        ([0.0, 1.0], [[1.0], [2.0]], (0.0, 1.0)),
        ([0.0, 0.0], [[1.0]], (0.0, 1.0)),
        ([0.0, np.inf], [[1.0]], (0.0, 1.0)),
        ([0.0, 1.0], [[np.nan]], (0.0, 1.0)),
        ([0.0, 1.0], [[1.0]], (0.0, 1.0, 2.0)),
        ([0.0, 1.0], [[]], (0.0, 1.0)),
    ],
)
def test_what_is_no_table(edges, coefficients, slopes):
    with pytest.raises(ValueError, match="a table needs"):
        tabulated(edges, coefficients, slopes)
