"""Pairs of a black box and a reference that differ by one ordinary cause, for audits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, softmax

from skident import FeedforwardNetwork
from skident.network import get_activation, leaky_relu

# Models that change from call to call may end in an error, which has to describe the cause.
DESCRIBED_BY_ERRORS = {"dropout in training mode": "dropout in training mode"}


@dataclass
class Pair:
    """A black box, the reference, samples, options of the audit, the kind of cause expected, its true numbers."""

    box: object
    reference: FeedforwardNetwork
    X: np.ndarray
    kind: str
    truth: dict = field(default_factory=dict)
    options: dict = field(default_factory=dict)
    corrected: object = None  # the function that the corrected reference should be, where it is a network

    def is_explained_by(self, cause):
        """Whether a cause has the true numbers, and its network the outputs that the corrected one should have."""
        for name, value in self.truth.items():
            given = cause.parameters.get(name)
            exact = isinstance(value, str | int) or value is None
            if given != value if exact else not np.allclose(given, value, rtol=1e-6, atol=1e-8):
                return False
        if self.corrected is None:
            return True
        wanted = self.corrected(self.X)
        return bool(np.abs(cause.network(self.X) - wanted).max() <= 1e-6 * wanted.std())


@dataclass
class Draw:
    """Random networks: 2 to 3 layers, ReLU or tanh, one to three outputs, or the three logits of a classifier."""

    rng: np.random.Generator
    classifies: bool = False
    square: bool = False
    outputs: tuple = (1, 2, 3)
    activations: tuple = ("relu", "tanh")

    def network(self):
        rng = self.rng
        D, n_hidden = int(rng.integers(4, 13)), int(rng.integers(1, 3))
        hidden = [int(rng.integers(6, 21)) for _ in range(n_hidden)]
        if self.square:
            hidden = [hidden[0], hidden[0]]
        sizes = [D, *hidden, 3 if self.classifies else int(rng.choice(self.outputs))]
        weights = [rng.standard_normal((m, n)) * np.sqrt(2.0 / m) for m, n in zip(sizes[:-1], sizes[1:], strict=True)]
        biases = [0.3 * rng.standard_normal(n) for n in sizes[1:]]
        return FeedforwardNetwork(weights, biases, str(rng.choice(self.activations)))

    def rows(self, D):
        return self.rng.standard_normal((int(self.rng.integers(150, 500)), D))


def changed(network, layer=None, W=None, b=None):
    """The network with the weights or biases of one layer replaced."""
    weights, biases = list(network.weights), list(network.biases)
    if W is not None:
        weights[layer] = W
    if b is not None:
        biases[layer] = b
    return FeedforwardNetwork(weights, biases, network.activation, network.output_activation)


def before(network, a, c):
    """The network of inputs a x + c."""
    W, b = network.weights[0], network.biases[0]
    return changed(network, 0, a[:, None] * W, b + c @ W)


def after(network, s, o):
    """s f + o."""
    last = network.n_layers - 1
    return changed(network, last, network.weights[last] * s, network.biases[last] * s + o)


def layered(network, activations, order=None):
    """The outputs with other activations of the layers, in another order."""
    layers = list(zip(network.weights, network.biases, activations, strict=True))

    def outputs(X):
        for k in order if order is not None else range(len(layers)):
            W, b, g = layers[k]
            X = g(X @ W + b)
        return X

    return outputs


def standardization(rng):
    core = Draw(rng).network()
    D = core.n_inputs
    mean, deviation = 5.0 * rng.standard_normal(D), np.exp(rng.normal(0.0, 1.0, D))
    X = Draw(rng).rows(D) * deviation + mean
    folded = before(core, 1.0 / deviation, -mean / deviation)
    if rng.random() < 0.5:
        return Pair(folded, core, X, "input maps", corrected=folded)
    return Pair(core, folded, X, "input maps", corrected=core)


def by_255(rng):
    core = Draw(rng).network()
    D = core.n_inputs
    X = rng.uniform(size=(300, D))
    box = before(core, np.full(D, 1 / 255), np.zeros(D))
    return Pair(box, core, X, "input maps", {"input_scale": np.full(D, 1 / 255)}, corrected=box)


def one_unit_of_measure(rng):
    core = Draw(rng).network()
    D = core.n_inputs
    a, c = np.ones(D), np.zeros(D)
    j = int(rng.integers(D))
    a[j], c[j] = [(0.001, 0.0), (2.54, 0.0), (1.8, 0.32), (0.4536, 0.0), (60.0, 0.0)][int(rng.integers(5))]
    box = before(core, a, c)
    return Pair(box, core, Draw(rng).rows(D), "one input map", {"input_scale": a, "input_offset": c}, corrected=box)


def swapped_columns(rng):
    core = Draw(rng).network()
    order = np.arange(core.n_inputs)
    i, j = rng.choice(core.n_inputs, 2, replace=False)
    order[[i, j]] = order[[j, i]]
    box = changed(core, 0, core.weights[0][order])
    return Pair(box, core, Draw(rng).rows(core.n_inputs), "permuted inputs", {"order": order}, corrected=box)


def columns_in_another_order(rng):
    core = Draw(rng).network()
    order = np.arange(core.n_inputs)[::-1] if rng.random() < 0.3 else rng.permutation(core.n_inputs)
    box = changed(core, 0, core.weights[0][order])
    X = Draw(rng).rows(core.n_inputs) * np.exp(0.3 * rng.standard_normal(core.n_inputs))
    return Pair(box, core, X, "permuted inputs", {"order": order}, corrected=box)


def reversed_classes(rng):
    core = Draw(rng, classifies=True).network()
    box, options = _through_softmax(changed(core, core.n_layers - 1, core.weights[-1][:, ::-1], core.biases[-1][::-1]))
    return Pair(box, core, Draw(rng).rows(core.n_inputs), "reversed outputs", {"order": np.arange(3)[::-1]}, options)


def output_units(rng):
    core = Draw(rng).network()
    s, o = np.exp(rng.normal(0, 2, core.n_outputs)), rng.standard_normal(core.n_outputs)
    box = after(core, s, o)
    truth = {"output_scale": s, "output_offset": o}
    return Pair(box, core, Draw(rng).rows(core.n_inputs), "output maps", truth, corrected=box)


def maps_in_and_out(rng):
    core = Draw(rng).network()
    D, m = core.n_inputs, core.n_outputs
    X = Draw(rng).rows(D) * np.exp(rng.standard_normal(D)) + rng.standard_normal(D)
    low, width = X.min(axis=0), np.ptp(X, axis=0)
    scale, offset = 2.0 / width, -2.0 * low / width - 1.0  # to [-1, 1], as mapminmax
    s, o = np.exp(rng.normal(0, 1, m)), rng.standard_normal(m)
    reference = after(before(core, scale, offset), s, o)
    return Pair(core, reference, X, "input maps and output maps", corrected=core)


def missing_softmax(rng):
    core = Draw(rng, classifies=True).network()
    options = {"response_method": "predict_proba"}
    return Pair(core.__call__, core, Draw(rng).rows(core.n_inputs), "missing softmax", options=options)


def doubled_softmax(rng):
    core = Draw(rng, classifies=True).network()
    box = lambda X: softmax(softmax(core(X), axis=1), axis=1)  # noqa: E731
    options = {"response_method": "predict_proba"}
    return Pair(box, core, Draw(rng).rows(core.n_inputs), "doubled softmax", options=options)


def activation_of_one_layer(rng):
    core = Draw(rng, square=True).network()
    G, k = list(core.activations), int(rng.integers(2))
    others = {"relu": ["gelu", "silu", "softplus", "elu"], "tanh": ["sigmoid", "erf", "hard_tanh", "relu"]}
    G[k] = get_activation(str(rng.choice(others[core.activation])))
    box = layered(core, G)
    return Pair(box, core, Draw(rng).rows(core.n_inputs), "activation", {"layer": k, "activation": G[k].name})


def missing_activation(rng):
    core = Draw(rng).network()
    G, k = list(core.activations), int(rng.integers(core.n_layers - 1))
    G[k] = lambda Z: Z
    truth = {"layer": k, "activation": "identity"}
    return Pair(layered(core, G), core, Draw(rng).rows(core.n_inputs), "activation", truth)


def leaky(rng):
    core = Draw(rng, activations=("relu",)).network()
    slope = float(rng.choice([0.01, 0.1, 0.2, rng.uniform(0.02, 0.3)]))
    box = FeedforwardNetwork(core.weights, core.biases, leaky_relu(slope))
    return Pair(box, core, Draw(rng).rows(core.n_inputs), "activation", {"slope": slope}, corrected=box)


def zero_biases(rng):
    core = Draw(rng).network()
    k = int(rng.integers(core.n_layers - 1))
    box = changed(core, k, b=np.zeros_like(core.biases[k]))
    return Pair(box, core, Draw(rng).rows(core.n_inputs), "zero biases", {"layer": k}, corrected=box)


def transposed(rng):
    core = Draw(rng, square=True).network()
    box = changed(core, 1, core.weights[1].T)
    return Pair(box, core, Draw(rng).rows(core.n_inputs), "transposed weights", {"layer": 1}, corrected=box)


def missing_layer(rng):
    core = Draw(rng, square=True).network()
    box = layered(core, core.activations, [0, 2])
    return Pair(box, core, Draw(rng).rows(core.n_inputs), "missing layer", {"layer": 1})


def doubled_layer(rng):
    core = Draw(rng, square=True).network()
    box = layered(core, core.activations, [0, 1, 1, 2])
    return Pair(box, core, Draw(rng).rows(core.n_inputs), "doubled layer", {"layer": 1})


def batch_normalization(rng):
    import torch

    core = Draw(rng, square=True, activations=("relu",)).network()
    D, m = core.n_inputs, core.weights[0].shape[1]
    norm = torch.nn.BatchNorm1d(m, dtype=float)
    X = Draw(rng).rows(D)
    Z = X @ core.weights[0] + core.biases[0]
    with torch.no_grad():
        norm.running_mean.copy_(torch.tensor(Z.mean(axis=0)))
        norm.running_var.copy_(torch.tensor(Z.var(axis=0)))
        norm.weight.copy_(torch.tensor(np.exp(0.3 * rng.standard_normal(m))))
    scale = norm.weight.detach().numpy() / np.sqrt(norm.running_var.numpy() + norm.eps)
    reference = changed(core, 0, core.weights[0] * scale, (core.biases[0] - Z.mean(axis=0)) * scale)
    first = changed(core, 0, core.weights[0])

    def box(U):
        H = U @ first.weights[0] + first.biases[0]
        if len(H) > 1:
            H = norm(torch.tensor(H)).detach().numpy()
        else:
            H = (H - H.mean(axis=0)) * scale
        for W, b in zip(core.weights[1:], core.biases[1:], strict=True):
            H = np.maximum(H, 0.0) @ W + b
        return H

    norm.momentum = 0.0
    return Pair(box, reference, X, "batch normalization in training mode")


def dropout(rng):
    core = Draw(rng, square=True, activations=("relu",)).network()
    draws = np.random.default_rng(int(rng.integers(2**31)))
    k, p = int(rng.integers(2)), float(rng.choice([0.1, 0.2, 0.5]))

    def box(U):
        H = U
        for layer, (W, b) in enumerate(zip(core.weights, core.biases, strict=True)):
            H = H @ W + b
            if layer < 2:
                H = np.maximum(H, 0.0)
            if layer == k:
                H = H * (draws.random(H.shape) >= p) / (1 - p)
        return H

    return Pair(box, core, Draw(rng).rows(core.n_inputs), "dropout in training mode")


def short_numbers(rng):
    import torch

    core = Draw(rng).network()
    name = str(rng.choice(["float16", "bfloat16"]))
    kind, part = getattr(torch, name), str(rng.choice(["weights", "arithmetic"]))
    if part == "weights":
        to = lambda A: torch.tensor(A).to(kind).double().numpy()  # noqa: E731
        box = FeedforwardNetwork([to(W) for W in core.weights], [to(b) for b in core.biases], core.activation)
    else:
        parameters = [
            (torch.tensor(W).to(kind), torch.tensor(b).to(kind)) for W, b in zip(core.weights, core.biases, strict=True)
        ]
        g = torch.relu if core.activation == "relu" else torch.tanh

        def box(U):
            H = torch.tensor(U).to(kind)
            for k, (W, b) in enumerate(parameters):
                H = H @ W + b
                H = g(H) if k < len(parameters) - 1 else H
            return H.float().numpy()

    return Pair(box, core, Draw(rng).rows(core.n_inputs), "number format", {"format": name, "of": part})


def int8_weights(rng):
    core = Draw(rng).network()
    axis = 0 if rng.random() < 0.5 else None
    steps = [np.abs(W).max(axis=axis, keepdims=axis is not None) / 127 for W in core.weights]
    box = FeedforwardNetwork(
        [np.rint(W / s) * s for W, s in zip(core.weights, steps, strict=True)], core.biases, core.activation
    )
    truth = {"scheme": "channel" if axis == 0 else "tensor"}
    return Pair(box, core, Draw(rng).rows(core.n_inputs), "quantized reference", truth, corrected=box)


def clipped_outputs(rng):
    core = Draw(rng).network()
    X = Draw(rng).rows(core.n_inputs)
    low, high = np.quantile(core(X), [0.1, 0.8])
    box = lambda U: np.clip(core(U), low, high)  # noqa: E731
    return Pair(box, core, X, "clipped outputs", {"low": box(X).min(), "high": box(X).max()})


def sigmoid_added(rng):
    core = Draw(rng, outputs=(1,)).network()
    X, options = Draw(rng).rows(core.n_inputs), {"response_method": "predict"}
    return Pair(lambda U: expit(core(U)), core, X, "activation", {"activation": "sigmoid"}, options)


def _through_softmax(network):
    return (lambda X: softmax(network(X), axis=1)), {"response_method": "predict_proba"}


def same(rng):
    """A pair without a difference."""
    core = Draw(rng).network()
    return Pair(core.__call__, core, Draw(rng).rows(core.n_inputs), "")


CAUSES = {
    f.__name__: f
    for f in (
        standardization, by_255, one_unit_of_measure, swapped_columns, columns_in_another_order, reversed_classes,
        output_units, maps_in_and_out, missing_softmax, doubled_softmax, activation_of_one_layer, missing_activation,
        leaky, zero_biases, transposed, missing_layer, doubled_layer, batch_normalization, dropout, short_numbers,
        int8_weights, clipped_outputs, sigmoid_added,
    )
}  # fmt: skip
