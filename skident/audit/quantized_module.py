"""Dynamically quantized torch modules; imported when one is audited."""

import copy

import numpy as np
import torch
from torch import nn


def dequantized_module(module):
    """A module with real weights in place of int8 ones, and the integers as of ONNX models; None without such."""
    integers = {"matrices": [], "biases": [], "activations": "dynamic", "activation_scales": []}
    module = copy.deepcopy(module)
    for path, part in list(module.named_modules()):
        if not path or not callable(getattr(part, "weight", None)):
            continue
        weight, bias = part.weight(), part.bias()
        per_channel = "channel" in str(weight.qscheme())
        zero = np.asarray(weight.q_per_channel_zero_points() if per_channel else weight.q_zero_point(), dtype=float)
        scale = np.asarray(weight.q_per_channel_scales() if per_channel else weight.q_scale())
        if not np.all(scale > 0.0):
            raise ValueError(f"scales of the quantized submodule {path!r} must be positive, got {scale.min():g}.")
        integers["matrices"].append((weight.int_repr().numpy().T.astype(float) - zero, zero, -128, 127))
        linear = nn.Linear(part.in_features, part.out_features, bias=bias is not None)
        linear.load_state_dict({"weight": weight.dequantize()} | ({} if bias is None else {"bias": bias}))
        owner, _, name = path.rpartition(".")
        setattr(module.get_submodule(owner), name, linear.eval())
    return (module, integers) if integers["matrices"] else None


def in_float32(module):
    """The module as a function of rows, which quantized layers take in float32 only."""

    def outputs(X):
        with torch.no_grad():
            return module(torch.from_numpy(np.asarray(X, dtype=np.float32))).numpy()

    return outputs
