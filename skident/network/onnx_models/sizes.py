"""Sizes of an ONNX model's tensors from its shapes, before a runtime allocates anything."""

import math

from onnx import GraphProto, defs, shape_inference

from .files import messages_of

_MAX_ENTRIES = 2**26  # of all tensors for one row, as many as in the largest image classifiers (memory: 512 MiB)


def check_sizes(model):
    """Refuse a model with a loop, a gap among inputs of one kind, or shapes that make its tensors too large.

    A loop need not end, and a gap ends the process of onnxruntime 1.20.

    Parameters
    ----------
    model : onnx.ModelProto

    Raises
    ------
    ValueError
        It names the node or the tensor.
    """
    for graph in messages_of(model, GraphProto):
        for node in graph.node:
            if node.op_type == "Loop":
                raise ValueError(f"node {node.name!r} of the ONNX model is a Loop, which need not end; it is not run.")
            if "" in node.input and defs.has(node.op_type, node.domain) and _is_variadic(node):
                raise ValueError(
                    f"node {node.name!r} ({node.op_type}) of the ONNX model lacks an input; it is not run."
                )
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except (shape_inference.InferenceError, ValueError, RuntimeError, MemoryError):  # the runtime refuses the model
        return
    total = 0
    for graph in messages_of(inferred, GraphProto):
        for value in (*graph.value_info, *graph.output):
            axes = [axis.dim_value for axis in value.type.tensor_type.shape.dim if axis.dim_value > 0]
            total += math.prod(axes)
            if total > _MAX_ENTRIES:
                raise ValueError(
                    f"the tensors of the ONNX model, up to {value.name!r} with axes {axes}, have more than 2^26 "
                    "entries for one row; it is not run."
                )


def _is_variadic(node):
    """Whether the operator takes any number of inputs."""
    inputs = defs.get_schema(node.op_type, node.domain).inputs
    return bool(inputs) and inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
