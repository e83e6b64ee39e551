"""ONNX models with int8 weights as models of real numbers, and the integers in them."""

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from .files import read_model

_KINDS = {"DequantizeLinear", "MatMulInteger", "QLinearMatMul", "QGemm"}
_ACTIVATIONS = {"QLinearSigmoid": "Sigmoid", "QLinearLeakyRelu": "LeakyRelu"}
_MATRICES = {"Gemm", "MatMul", "DequantizeLinear", *_KINDS}  # which leave a maximum with 0 to quantization


def dequantized(source):
    """A model with real weights, and its integers; None if the model has no int8 weights.

    The integers: ``{"matrices": [(integers less zero point, zero point, least and greatest integer), ...], "biases":
    [(value, step), ...], "activations": "static", "dynamic" or "none", "activation_scales": [(scale, zero point),
    ...]}``. A ValueError names a scale that is 0.
    """
    model = read_model(source)
    if not any(node.op_type in _KINDS for node in model.graph.node):
        return None
    graph = _Dequantized(model.graph)
    for node in model.graph.node:
        graph.add(node)
    found = ModelProto()
    found.CopyFrom(model)
    del found.graph.node[:], found.graph.initializer[:]
    found.graph.node.extend(graph.nodes)
    found.graph.initializer.extend(numpy_helper.from_array(np.asarray(A), name) for name, A in graph.arrays.items())
    return found, graph.integers


class _Dequantized:
    """Nodes and constants of real numbers, and the integers so far."""

    def __init__(self, graph):
        self.arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self.nodes, self._graph, self._dynamic = [], graph, set()
        self.integers = {"matrices": [], "biases": [], "activations": "none", "activation_scales": []}

    def add(self, node):
        """One node, or what takes its place."""
        kind, given, out = node.op_type, list(node.input), list(node.output)
        if kind == "DequantizeLinear" and given[0] in self.arrays:
            self.arrays[out[0]] = self._constant(*given, axis=_attribute(node, "axis", 1))
        elif kind == "QuantizeLinear" and given[0] not in self.arrays:
            self._quantize(given[0], out[0], *given[1:])
        elif kind == "DequantizeLinear":
            self._node("Identity", given[:1], out[0])
        elif kind == "DynamicQuantizeLinear":
            self.integers["activations"] = "dynamic"
            self._node("Identity", given, out[0])
            self._dynamic.add(out[1])
            self.arrays |= {out[1]: np.float32(1.0), out[2]: np.float32(0.0)}
        elif kind == "MatMulInteger":
            self._matrix(given[1], given[3] if len(given) > 3 else None)
            self._node("MatMul", [given[0], f"{given[1]}_real"], out[0])
        elif kind in ("QLinearMatMul", "QGemm"):
            self._matrix(given[3], given[5], self._scale(given[4]))
            operands = [given[0], f"{given[3]}_real"]
            if kind == "QGemm" and given[6]:
                self._bias(given[6], self._scale(given[1]) * self._scale(given[4]))
                operands.append(f"{given[6]}_real")
            options = {name: _attribute(node, name, 0) for name in ("transA", "transB") if kind == "QGemm"}
            self._node("MatMul" if kind == "QLinearMatMul" else "Gemm", operands, f"{out[0]}_exact", **options)
            self._quantize(f"{out[0]}_exact", out[0], *given[-2:])
        elif kind in _ACTIVATIONS:
            options = {"alpha": _attribute(node, "alpha", 0.01)} if kind == "QLinearLeakyRelu" else {}
            self._node(_ACTIVATIONS[kind], given[:1], f"{out[0]}_exact", **options)
            self._quantize(f"{out[0]}_exact", out[0], *given[-2:])
        elif kind == "QLinearAdd":
            self._bias(given[3], self._scale(given[4]), given[5])
            self._node("Add", [given[0], f"{given[3]}_real"], f"{out[0]}_exact")
            self._quantize(f"{out[0]}_exact", out[0], *given[-2:])
        else:
            if kind == "Mul" and self._dynamic.intersection(given):
                for name in self.arrays.keys() & given:
                    self._scale(name)
            self.nodes.append(node)

    def _node(self, kind, inputs, output, **options):
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **options))

    def _quantize(self, values, output, scale, zero_point=None):
        """Values are rounded, which the real model leaves out, and clipped at 0 if that is the lowest number."""
        zero = self.arrays[zero_point] if zero_point else np.uint8(0)
        self.integers["activations"] = "static"
        self.integers["activation_scales"].append((float(self._scale(scale)), int(zero)))
        made_by = {name: node.op_type for node in self.nodes for name in node.output}
        readers, names = set(), {output}
        for node in self._graph.node:
            if names.intersection(node.input):
                readers.add(node.op_type)
                names |= set(node.output) if node.op_type == "DequantizeLinear" else set()
        clips = int(zero) == np.iinfo(zero.dtype).min and made_by.get(values) in ("Gemm", "MatMul", "Add")
        inside = not names.intersection(one.name for one in self._graph.output)
        self._node("Relu" if clips and inside and readers <= _MATRICES else "Identity", [values], output)

    def _scale(self, name):
        """A scale; ValueError if it is not positive."""
        scale = np.asarray(self.arrays[name], dtype=float)
        if not np.all(scale > 0.0):
            raise ValueError(f"scale {name!r} of the quantized ONNX model must be positive, got {scale.min():g}.")
        return scale

    def _constant(self, name, scale, zero_point=None, axis=1):
        integers, scale = self.arrays[name], self._scale(scale)
        zero = self.arrays[zero_point] if zero_point else np.zeros(1)
        if integers.ndim == 2:
            shape = (-1, 1) if axis == 0 and scale.size > 1 else (1, -1)
            return self._matrix(name, zero_point, scale.reshape(shape), np.reshape(zero, shape).astype(float))
        return self._bias(name, scale, zero_point)

    def _matrix(self, name, zero_point, scale=1.0, zero=None):
        zero = np.asarray(self.arrays[zero_point] if zero_point else 0, dtype=float) if zero is None else zero
        limits, integers = np.iinfo(self.arrays[name].dtype), self.arrays[name].astype(float) - zero
        self.integers["matrices"].append((integers, zero, limits.min, limits.max))
        self.arrays[f"{name}_real"] = integers * scale
        return integers * scale

    def _bias(self, name, step, zero_point=None):
        zero = self.arrays[zero_point].astype(float) if zero_point else 0.0
        self.arrays[f"{name}_real"] = (self.arrays[name].astype(float) - zero) * step
        self.integers["biases"].append((self.arrays[f"{name}_real"], step))
        return self.arrays[f"{name}_real"]


def _attribute(node, name, default):
    return next((helper.get_attribute_value(one) for one in node.attribute if one.name == name), default)
