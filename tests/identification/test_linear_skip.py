"""Networks of units that settle, beside a linear function: linear units of the recovered network."""

import numpy as np
import pytest
import torch

from skident import NetworkCompressor, NetworkIdentifier, verify_same
from skident.datasets import make_network
from skident.identification.activation.linear_skip import far_linear_part
from skident.metrics import relative_max_error
from skident.network import FeedforwardNetwork, partly_linear, with_linear_skip
from skident.oracle import Oracle

X = np.random.RandomState(0).standard_normal((200, 5))
A = np.random.RandomState(1).standard_normal((5, 2))


def network(*widths, activation="tanh", seed=0):
    return make_network((5, *widths), activation=activation, output_activation="identity", random_state=seed)


def block(rows):
    """A residual block of tanh units and a linear layer."""
    return (rows + network(6, 5)(rows)) @ A


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.last = torch.nn.Linear(5, 6), torch.nn.Linear(6, 5), torch.nn.Linear(5, 1)

    def forward(self, x):
        return self.last(x + self.second(torch.sigmoid(self.first(x))))


@pytest.mark.parametrize(
    ("model", "options", "widths"),
    [
        (block, {}, (8, 2)),
        (lambda rows: network(6, 2)(rows) + rows @ A, {"layer_widths": (6, 2)}, (8, 2)),
        (lambda rows: (network(6, 1)(rows) + rows @ A[:, :1])[:, 0], {"activation": "tanh"}, (7, 1)),
        (lambda rows: network(6, 3, 1)(rows) + rows @ A[:, :1], {}, (7, 4, 1)),
        (Block(), {}, (7, 1)),
    ],
)
def test_a_linear_skip_is_part_of_the_network(model, options, widths):
    found = NetworkIdentifier(model, random_state=0, **options).fit(X)
    assert found.report_.exact and found.report_.determined
    assert found.layer_widths_ == widths
    rows = 3 * np.random.RandomState(2).standard_normal((500, 5))
    expected = model.double()(torch.from_numpy(rows)).detach().numpy() if isinstance(model, torch.nn.Module) else None
    expected = model(rows) if expected is None else expected
    assert relative_max_error(expected, found.predict(rows)) < 1e-12


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu", "gelu", "sin"])
def test_the_gradient_far_out(activation):
    """That of the linear part if units settle; none for units that grow, oscillate or have no linear part beside."""
    inner = network(6, 2, activation=activation)
    oracle = Oracle(lambda rows: inner(rows) + rows @ A, 5)
    found = far_linear_part(oracle, np.random.RandomState(0))
    if activation in ("tanh", "sigmoid"):
        assert np.abs(found - A).max() < 1e-13
        assert far_linear_part(Oracle(inner.__call__, 5), np.random.RandomState(0)) is None
    else:
        assert found is None


@pytest.mark.parametrize("widths", [(6, 2), (6, 4, 2)])
def test_linear_units_of_a_network(widths, tmp_path):
    inner = network(*widths)
    expected = inner(X) + X @ A
    whole = with_linear_skip(inner, A)
    assert whole.layer_widths == (*(m + 2 for m in widths[:-1]), 2)
    order = np.random.RandomState(0).permutation(6)
    W, *weights = inner.weights
    weights = [-W[:, order], -weights[0][order], *weights[1:]]
    other = with_linear_skip(inner.with_parameters(weights, [-inner.biases[0][order], *inner.biases[1:]]), A)
    for one in (whole, whole.canonical(), other.canonical(), other.align_to(whole)):
        np.testing.assert_allclose(one(X), expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(other.align_to(whole).weights[0], whole.weights[0], rtol=0, atol=1e-13)
    module = whole.to_torch()
    np.testing.assert_allclose(module(torch.from_numpy(X)).detach().numpy(), expected, rtol=0, atol=1e-13)
    assert FeedforwardNetwork.from_torch(module) == whole
    whole.save(tmp_path / "whole.safetensors")
    assert FeedforwardNetwork.load(tmp_path / "whole.safetensors") == whole
    assert whole.activation == "tanh and 2 linear"


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu", "leaky_relu"])
@pytest.mark.parametrize("widths", [(6, 2), (6, 4, 2)])
def test_linear_units_in_an_onnx_file(widths, activation, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    inner = network(*widths, activation=activation)
    path = tmp_path / "whole.onnx"
    with_linear_skip(inner, A).to_onnx(path, dtype="float64" if activation != "gelu" else "float32")
    session = onnxruntime.InferenceSession(path)
    given = session.get_inputs()[0]
    rows = X.astype("float32" if "float)" in given.type else float)
    expected = inner(X) + X @ A
    np.testing.assert_allclose(session.run(None, {given.name: rows})[0], expected, rtol=0, atol=1e-4)


def test_linear_units_in_an_audit():
    whole = with_linear_skip(network(6, 2), A)
    assert verify_same(lambda rows: whole(rows), whole, X).verdict == "the same"
    weights = [W.copy() for W in whole.weights]
    weights[1][-1, 0] *= 1.01
    changed = whole.with_parameters(weights, whole.biases)
    report = verify_same(lambda rows: changed(rows), whole, X)
    assert report.verdict == "different" and "weights[1][7, 0]" in str(report)


def test_linear_units_are_kept_by_compression():
    whole = with_linear_skip(network(30, 2, seed=1), A)
    compressor = NetworkCompressor(whole, tol=0.05, random_state=0).fit(X)
    assert compressor.network_.layer_widths[0] < 30 and compressor.network_.activation == "tanh and 2 linear"


def test_linear_units_in_a_table():
    whole = with_linear_skip(network(6, 2), A)
    assert len(whole.to_frame()) == whole.n_parameters
    assert "tanh and 2 linear" in str(whole)


def test_a_skip_of_rank_zero_adds_no_unit():
    inner = network(6, 2)
    assert with_linear_skip(inner, 0 * A) is inner
    assert partly_linear("tanh", 2) == partly_linear("tanh", 2)
