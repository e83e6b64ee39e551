"""Sizes of an ONNX model's tensors from its shapes, before a runtime allocates anything."""

from __future__ import annotations

import math

from onnx import GraphProto, shape_inference

from .files import messages_of

__all__ = ["check_sizes"]

_MAX_ENTRIES = 2**26  # of all tensors for one row, as many as in the largest image classifiers (memory: 512 MiB)


def check_sizes(model):
    """Refuse a model with a loop, which need not end, or whose shapes make its tensors too large.

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
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # of a class that is not public: the runtime refuses what it cannot run
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
