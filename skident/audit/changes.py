"""Ordinary changes of a network that leave nothing to be fitted: what an audit compares outputs with."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import expit, log_softmax, softmax

from skident.network import calculus
from skident.network.activations import ACTIVATIONS

from .links import Through
from .quantized import KIND, described, quantized_weights

_MANTISSAS = {"float16": 11, "bfloat16": 8, "TF32": 11}  # bits of a number
_MOST_SWAPPED = 64  # columns of which all pairs are tried (budget)
_TRIALS = 5000  # orders of columns tried (budget)


@dataclass(frozen=True)
class Layers:
    """A network whose layers may have different activations: weights (m_l, m_{l+1}), biases (m_{l+1},)."""

    weights: tuple
    biases: tuple
    activations: tuple

    @classmethod
    def of(cls, network):
        """Those of a `FeedforwardNetwork`."""
        return cls(tuple(network.weights), tuple(network.biases), tuple(network.activations))

    def __call__(self, X):
        return calculus.forward(self.weights, self.biases, self.activations, X)

    def with_layer(self, layer, W=None, b=None, activation=None):
        """Another network, with one layer changed."""
        given = zip((W, b, activation), (self.weights, self.biases, self.activations), strict=True)
        return Layers(*(old if new is None else (*old[:layer], new, *old[layer + 1 :]) for new, old in given))

    def in_order(self, order):
        """The layers of these numbers, one after the other."""
        return Layers(*(tuple(part[k] for k in order) for part in (self.weights, self.biases, self.activations)))


@dataclass(frozen=True)
class Rounded:
    """A network whose weights, inputs and hidden outputs are rounded to `bits`, and summed in higher precision."""

    layers: Layers
    bits: int
    between: bool = False  # whether products, pre-activations and outputs are rounded too
    fused: bool = True  # whether a bias is added before the product is rounded

    def __getattr__(self, name):
        return getattr(self.layers, name)

    def __call__(self, X):
        to = lambda A: rounded_to(A, self.bits)  # noqa: E731
        for W, b, g in zip(self.weights, self.biases, self.activations, strict=True):
            Z = to(X) @ to(W)
            if self.between:
                Z = to((Z if self.fused else to(Z)) + to(b))
                X = to(g(Z))
            else:
                X = g(Z + b)
        return X


@dataclass(frozen=True)
class Change:
    """What may differ between a black box and the network that is known.

    Attributes
    ----------
    kind : str
        Its name, the same for all changes of this kind.
    text : str
        One line for the report.
    layers : Layers
        The network that the black box is, if this is the change.
    link : object
        From `links`: what of its outputs is compared.
    parameters : dict
        What was fitted or chosen.
    n_fitted : int
        Numbers that were fitted.
    """

    kind: str
    text: str
    layers: Layers
    link: object
    parameters: dict
    n_fitted: int = 0


def changes_without_fit(layers, link, X, Y):
    """All ordinary changes with nothing to fit; X (n, D) and the black box's outputs Y (n, c) choose among many."""
    plain = Change("", "", layers, link, {})
    for source in (_activations, _parameters, _sequences, _number_formats):
        for kind, text, changed, parameters in source(layers):
            yield replace(plain, kind=kind, text=text, layers=changed, parameters=parameters)
    known = link.values(layers(X))
    yield from (replace(plain, kind=k, text=t, link=through) for k, t, through in _links(link, known))
    if known.shape == Y.shape and (changed := _permuted_outputs(layers, known, Y)):
        yield replace(plain, **changed)
    if known.shape == Y.shape:
        low, high = Y.min(axis=0), Y.max(axis=0)
        for a, b in ((low.min(), high.max()), (low, high)):
            clipped = Through(link, lambda values, a=a, b=b: np.clip(values, a, b), 1.0)
            text = f"outputs are clipped to [{low.min():.6g}, {high.max():.6g}]"
            yield replace(plain, kind="clipped outputs", text=text, link=clipped, parameters={"low": a, "high": b})


def _activations(layers):
    """Another activation of one layer, or of all hidden layers."""
    last = len(layers.weights) - 1
    for new in ACTIVATIONS.values():
        places = [k for k, old in enumerate(layers.activations) if old.name != new.name]
        for k in places:
            where = "of the outputs" if k == last else f"of layer {k + 1}"
            text = f"the activation {where} is {new.name} instead of {layers.activations[k].name}"
            if new.name == "identity":
                text = f"the activation {where} ({layers.activations[k].name}) is missing"
            yield "activation", text, layers.with_layer(k, activation=new), {"layer": k, "activation": new.name}
        if last > 1 and set(range(last)) <= set(places):
            changed = replace(layers, activations=(*[new] * last, layers.activations[-1]))
            text = f"the hidden activation is {new.name} instead of {layers.activations[0].name}"
            yield "activation", text, changed, {"layer": None, "activation": new.name}


def _parameters(layers):
    """Biases of 0, weights transposed."""
    every = range(len(layers.weights))
    for k in every:
        W, b = layers.weights[k], layers.biases[k]
        if b.any():
            yield "zero biases", f"biases[{k}] are 0", layers.with_layer(k, b=np.zeros_like(b)), {"layer": k}
        if W.shape[0] == W.shape[1]:
            text = f"weights[{k}] are transposed"
            yield "transposed weights", text, layers.with_layer(k, W=W.T), {"layer": k}
    if sum(b.any() for b in layers.biases) > 1:
        changed = replace(layers, biases=tuple(np.zeros_like(b) for b in layers.biases))
        yield "zero biases", "all biases are 0", changed, {"layer": None}


def _sequences(layers):
    """A layer missing, or applied twice."""
    every = list(range(len(layers.weights)))
    for k in every:
        before, after = every[:k], every[k + 1 :]
        if layers.weights[k].shape[0] == layers.weights[k].shape[1] and len(every) > 1:
            doubled = layers.in_order([*before, k, k, *after])
            yield "missing layer", f"layer {k + 1} is missing", layers.in_order(before + after), {"layer": k}
            yield "doubled layer", f"layer {k + 1} is applied twice", doubled, {"layer": k}


def _number_formats(layers):
    """Weights, or weights and hidden outputs, in fewer bits."""
    for name, bits in _MANTISSAS.items():
        few = Layers(
            *(tuple(rounded_to(A, bits) for A in part) for part in (layers.weights, layers.biases)), layers.activations
        )
        ways = [Rounded(layers, bits)]
        if name != "TF32":
            yield "number format", f"weights are rounded to {name}", few, {"format": name, "of": "weights"}
            ways = [Rounded(layers, bits, True, fused) for fused in (True, False)]
        for way in ways:
            yield "number format", f"the black box computes in {name}", way, {"format": name, "of": "arithmetic"}
    for parameters, few in quantized_weights(layers):
        yield KIND, f"the quantized reference ({described(parameters)})", few, parameters


def rounded_to(A, bits):
    """Numbers rounded to so many bits of their mantissas."""
    mantissa, exponent = np.frexp(A)
    return np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)


def _links(link, known):
    """Other functions of the outputs."""
    word = "doubled" if known.min() >= 0.0 and known.max() <= 1.0 else "added"
    if known.shape[1] > 1:
        yield f"{word} softmax", f"a softmax is {word}", Through(link, lambda A: softmax(A, axis=1), 1.0)
        yield "log-probabilities", "outputs are log-probabilities", Through(link, lambda A: log_softmax(A, axis=1), 2.0)
    yield f"{word} sigmoid", f"a sigmoid is {word}", Through(link, expit, 1.0)


def _permuted_outputs(layers, known, Y):
    """Outputs in another order."""
    if Y.shape[1] < 2 or layers.activations[-1].name != "identity":
        return None
    gaps = np.abs(Y[:, :, None] - known[:, None, :]).mean(axis=0)
    order = linear_sum_assignment(gaps)[1]
    if np.array_equal(order, np.arange(len(order))):
        return None
    kind = "reversed outputs" if np.array_equal(order, np.arange(len(order))[::-1]) else "permuted outputs"
    W, b = layers.weights[-1][:, order], layers.biases[-1][order]
    text = f"outputs are in another order: {_listed(order)}"
    changed = layers.with_layer(len(layers.weights) - 1, W=W, b=b)
    return {"kind": kind, "text": text, "layers": changed, "parameters": {"order": order}}


def permuted_inputs(layers, link, X, left_by):
    """Inputs in other orders: reversed, an image transposed, and the best that exchanges of two columns lead to.

    X (n, D); ``left_by(layers)`` is what a network leaves of the differences.
    """
    W, D = layers.weights[0], X.shape[1]
    for order in _named_orders(D):
        yield _with_inputs(layers, link, order)
    if not 1 < D <= _MOST_SWAPPED:
        return
    order, left = np.arange(D), left_by(layers)
    pairs = [(i, j) for i in range(D) for j in range(i)]
    for _ in range(-(-_TRIALS // len(pairs))):
        swapped = np.tile(order, (len(pairs), 1))
        for row, (i, j) in zip(swapped, pairs, strict=True):
            row[[i, j]] = row[[j, i]]
        costs = [left_by(layers.with_layer(0, W=W[row])) for row in swapped]
        if not min(costs) < left:
            break
        left, order = min(costs), swapped[np.argmin(costs)]
    if (order != np.arange(D)).any():
        yield _with_inputs(layers, link, order)


def _named_orders(D):
    """Orders (D,) that are mistakes with a name."""
    every, side = np.arange(D), int(np.sqrt(D))
    yield every[::-1]
    if side * side == D:
        yield every.reshape(side, side).T.ravel()


def _with_inputs(layers, link, order):
    moved = np.flatnonzero(order != np.arange(len(order)))
    if len(moved) == 2:
        text = f"columns {moved[0]} and {moved[1]} are exchanged"
    else:
        text = f"columns are in another order: {_listed(order)}"
    changed = layers.with_layer(0, W=layers.weights[0][order])
    return Change("permuted inputs", text, changed, link, {"order": np.asarray(order)})


def _listed(order):
    shown = ", ".join(map(str, order[:8]))
    return shown if len(order) <= 8 else f"{shown}, ..."
