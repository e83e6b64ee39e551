"""Quantized copies of a known network: read from ONNX files and torch modules, or simulated."""

import itertools
from dataclasses import dataclass, replace

import numpy as np

from skident.network import FeedforwardNetwork
from skident.network.activations import alike
from skident.oracle.black_box import is_onnx_model, is_torch_module

KIND = "quantized reference"  # of a cause

_TIE = 2.0**-12  # steps from a tie: 255 steps, of which float32 sums and scales are off by 16 roundings, 2^-20
_ACTIVATIONS = {  # steps of those that are quantized row by row, and whether symmetric: onnxruntime, torch
    None: "none",
    (255,): "dynamic",
    (127,): "dynamic, of 7 bits",
    (127, True): "dynamic, symmetric",
}
_SAME_STEP = 1e-5  # relative difference of steps that are float32 numbers, and of products with them


@dataclass(frozen=True)
class QuantizedLayers:
    """A network whose inputs and hidden outputs are rounded to `levels` steps between 0 and the extremes of a row."""

    layers: object
    levels: int
    symmetric: bool = False

    def __getattr__(self, name):
        return getattr(self.layers, name)

    def __call__(self, X):
        return self._evaluated(X)[0]

    def certain(self, X):
        """Rows of which no value lies so near a tie that float32 may round it to the other side."""
        return self._evaluated(X)[1]

    def _evaluated(self, X):
        margin = np.full(len(X), 0.5)
        for W, b, g in zip(self.weights, self.biases, self.activations, strict=True):
            low, high = np.minimum(X.min(axis=1, keepdims=True), 0.0), np.maximum(X.max(axis=1, keepdims=True), 0.0)
            if self.symmetric:
                step, zero = np.maximum(-low, high) / self.levels, 0.0
            else:
                step, zero = (high - low) / self.levels, None
            step = np.where(step > 0.0, step, 1.0)
            zero = np.rint(-low / step) if zero is None else zero
            ticks = X / step
            margin = np.minimum(margin, np.abs(ticks - np.floor(ticks) - 0.5).min(axis=1))
            bounds = (-self.levels, self.levels) if self.symmetric else (0, self.levels)
            X = g(step * (np.clip(np.rint(ticks) + zero, *bounds) - zero) @ W + b)
        return X, margin > _TIE


def quantized_weights(layers):
    """Parameters and layers of all common ways to round the weights of `Layers` to int8."""
    for dtype, levels, axis in itertools.product((np.float32, float), (127.0, 127.5, 128.0, None), (None, 0)):
        rounded, scales, zeros = zip(*(_in_steps(W.astype(dtype), levels, axis) for W in layers.weights), strict=True)
        scheme = {"scheme": "tensor" if axis is None else "channel", "symmetric": levels is not None}
        few = replace(layers, weights=rounded)
        for activations, shown in _ACTIVATIONS.items():
            if activations is None or dtype is np.float32:  # libraries that round activations compute in float32
                parameters = {**scheme, "scales": scales, "zero_points": zeros, "activations": shown}
                parameters |= {"activation_scales": [], "one_step": 0, "changed": 0}
                yield parameters, few if activations is None else QuantizedLayers(few, *activations)


def _in_steps(W, levels, axis):
    """Weights in steps, the steps and their zero point; `levels` steps to the largest weight, None: 255 in all.

    In the precision of the weights: half a step, 127.5 steps at the largest weight, is rounded by chance.
    """
    low, high = (np.asarray(f(W, axis=axis, keepdims=True)) for f in (np.min, np.max))
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    step = (high - low) / 255.0 if levels is None else np.maximum(-low, high) / levels
    step = np.where(step > 0.0, step, 1.0)
    zero = np.rint(-low / step) if levels is None else np.zeros_like(step)
    bounds = (0, 255) if levels is None else (-128, 127)
    step, zero = step.astype(W.dtype), zero.astype(float)
    integers = np.clip(np.rint(W * (W.dtype.type(1.0) / step)) + zero, *bounds) - zero
    return integers * step.astype(float), step.ravel(), zero.ravel().astype(int)


def described(parameters):
    """One line on a scheme."""
    symmetric = "symmetric" if parameters["symmetric"] else "asymmetric"
    weights = f"int8 weights, {symmetric}, a scale per {parameters['scheme']}"
    return f"{weights}; activations: {parameters['activations']}"


def quantized_copy(black_box, network):
    """What a model with int8 weights on file is beside a known network, and the model as it can be queried.

    The first: text, parameters, network and whether its weights are those that its scales make of the network's, or the
    next step, and biases and activations are the network's; None of other models.
    """
    found, read = None, FeedforwardNetwork.from_onnx
    if is_onnx_model(black_box):
        from skident.network.onnx_models import dequantized

        found = dequantized(black_box)
    elif is_torch_module(black_box):
        from .quantized_module import dequantized_module, in_float32

        found, read = dequantized_module(black_box), FeedforwardNetwork.from_torch
        black_box = black_box if found is None else in_float32(black_box)
    if found is None:
        return None, black_box
    try:
        copied = read(found[0])
    except ValueError:  # it has operations beside layers
        return None, black_box
    matrices = _ordered(found[1]["matrices"], copied.weights)
    if matrices is None or [W.shape for W in copied.weights] != [W.shape for W in network.weights]:
        return None, black_box
    return _compared(copied, network, matrices, found[1]), black_box


def _ordered(matrices, weights):
    """The integers of every layer, in the orientation of its weights; None if they are others."""
    ordered = []
    for W in weights:
        turned = ((Q, *rest) for one, *rest in matrices for Q in (one, one.T))
        fits = (one for one in turned if one[0].shape == W.shape and np.array_equal(np.sign(one[0]), np.sign(W)))
        ordered += [one for one in [next(fits, None)] if one is not None]
    return ordered if len(ordered) == len(weights) == len(matrices) else None


def _compared(copied, network, matrices, integers):
    """The first that `quantized_copy` gives."""
    away, scales, biases = [], [], True
    parts = zip(matrices, copied.weights, network.weights, copied.biases, network.biases, strict=True)
    for (Q, zero, least, greatest), V, W, c, b in parts:
        place = np.abs(Q).argmax(axis=0)[None]
        largest, value = (np.take_along_axis(A, place, 0)[0] for A in (Q, V))
        steps = np.divide(value, largest, out=np.zeros_like(value), where=largest != 0.0)
        steps = np.where(largest == 0.0, steps.max(), steps)
        wanted = np.clip(np.rint(W / steps) + zero, least, greatest) - zero
        away.append(np.abs(wanted - Q))
        scales.append(steps if np.ptp(steps) > _SAME_STEP * steps.max() else steps[:1])
        known = [step for one, step in integers["biases"] if np.shape(one) == c.shape and np.allclose(one, c)]
        allowed = 1.5 * np.max(known[0]) if known else 0.0
        biases &= bool(np.all(np.abs(c - b) <= allowed + _SAME_STEP * np.abs(b).max()))
    one, more = (sum(int(np.sum(part)) for part in parts) for parts in ([A == 1 for A in away], [A > 1 for A in away]))
    zeros = [np.unique(zero).astype(int) for _, zero, *_ in matrices]
    parameters = {
        "scheme": "tensor" if all(len(part) == 1 for part in scales) else "channel",
        "symmetric": all(np.isin(zero, (0, 128)).all() for zero in zeros),
        "scales": scales, "zero_points": zeros, "activations": integers["activations"],
        "activation_scales": integers["activation_scales"], "one_step": one, "changed": more,
    }  # fmt: skip
    scheme = described(parameters)
    if not more and biases and all(map(alike, copied.activations, network.activations)):
        return f"the quantized reference ({scheme}); {one} weights differ by one step", parameters, copied, True
    what = f"{more} weights differ by more than one step" if more else "biases" if not biases else "activations"
    what += "" if more else " differ"
    return f"a quantized copy ({scheme}) of another network: {what}", parameters, copied, False
