"""Write networks as ONNX models: one Gemm per layer, followed by its activation."""

import itertools
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

from ..activations import ACTIVATIONS, Bounded, Clip, LeakyReLU, get_activation, is_built_in
from ..partly_linear import PartlyLinear
from ..tabulated import Tabulated, tabulated

_OPERATOR_SET = 13  # which runtimes from 2020 on know
_OPERATOR_SETS = {"gelu": 20, "gelu_tanh": 20, "mish": 18, "hardswish": 14}
_KINDS = {"gelu_tanh": "Gelu", "hardswish": "HardSwish"}  # of operators, where not the name with a capital
_IR_VERSION = 8  # file format of onnx 1.10 (2021); newer readers accept it
_GEMM = {"alpha": 1.0, "beta": 1.0, "transB": 0}  # the defaults, but some readers (OMLT) want to see them
_FEWEST = 11  # constants of a table: one of constant pieces
_ROUNDINGS = 8.0  # eps by which the constants of a table may differ: edges are rounded before their differences
_DTYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}


def network_model(network, dtype):
    """A network as an ONNX model in float64 or float32."""
    dtype = _checked_dtype(dtype)
    kind = _DTYPES[dtype.name]
    nodes, tensors, values = [], [], "X"
    for layer, (W, b, activation) in enumerate(zip(network.weights, network.biases, network.activations), 1):
        names = [f"weights_{layer}", f"biases_{layer}"]
        tensors += [_tensor(array, dtype, name) for array, name in zip((W, b), names)]
        nodes.append(helper.make_node("Gemm", [values, *names], [f"layer_{layer}"], name=f"layer_{layer}", **_GEMM))
        values = f"layer_{layer}"
        if activation.symmetry != "linear":
            added, constants = _activation_nodes(activation, values, dtype)
            nodes, tensors, values = nodes + added, tensors + constants, added[-1].output[0]
    nodes[-1].output[0] = "Y"
    inputs, outputs = (
        [helper.make_tensor_value_info(name, kind, ["n", width])]
        for name, width in (("X", network.n_inputs), ("Y", network.n_outputs))
    )
    graph = helper.make_graph(nodes, "skident.FeedforwardNetwork", inputs, outputs, tensors)
    bases = [g.base if isinstance(g, PartlyLinear) else g for g in network.activations]
    version = max(_OPERATOR_SETS.get(g.name, _OPERATOR_SET) for g in bases)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", version)], ir_version=_IR_VERSION, producer_name="skident"
    )
    checker.check_model(model)
    return model


def write_model(model, path):
    """Write a model to a file; an existing one is replaced."""
    Path(path).write_bytes(model.SerializeToString())


def _checked_dtype(dtype):
    try:
        checked = np.dtype(dtype)
    except TypeError:
        checked = None
    if checked is None or checked.name not in _DTYPES:
        raise ValueError(f"dtype must be one of {sorted(_DTYPES)}, got {dtype!r}.")
    return checked


def _tensor(array, dtype, name):
    largest = np.abs(array).max()
    if largest > np.finfo(dtype).max:
        raise ValueError(f"{name} has an entry of magnitude {largest:.1e}, too large for {dtype}; use float64.")
    return numpy_helper.from_array(np.ascontiguousarray(array, dtype=dtype), name)


def _activation_nodes(activation, values, dtype):
    """Nodes of an activation after a layer, and the constants that they need."""
    name = f"{values}_{activation.name}"
    if isinstance(activation, Clip):
        return _clip_nodes(activation, values, dtype)
    if isinstance(activation, Bounded):
        return _bounded_nodes(activation, values, dtype)
    if isinstance(activation, PartlyLinear):
        return _partly_linear_nodes(activation, values, dtype)
    if isinstance(activation, LeakyReLU):
        return _leaky_nodes(activation.negative_slope, values, name, dtype)
    if isinstance(activation, Tabulated):
        return _table_nodes(activation, values, dtype)
    if not is_built_in(activation):
        raise ValueError(f"to_onnx knows the activations {sorted(ACTIVATIONS)}, got a custom {activation.name!r}.")
    if activation.name == "quadratic":
        return [helper.make_node("Mul", [values, values], [name], name=name)], []
    if activation.name == "silu":
        gate = helper.make_node("Sigmoid", [values], [f"{name}_gate"], name=f"{name}_gate")
        return [gate, helper.make_node("Mul", [values, f"{name}_gate"], [name], name=name)], []
    if activation.name == "hard_tanh":
        bounds = [_tensor(np.array(bound), dtype, f"{name}_{bound:+.0f}") for bound in (-1.0, 1.0)]
        return [helper.make_node("Clip", [values, *(b.name for b in bounds)], [name], name=name)], bounds
    kind = _KINDS.get(activation.name, activation.name.capitalize())
    options = {"approximate": "tanh"} if activation.name == "gelu_tanh" else {}
    return [helper.make_node(kind, [values], [name], name=name, **options)], []


def _table_nodes(activation, values, dtype):
    """A table: the interval by comparisons with its edges, Horner's rule, and the lines beyond the ends."""
    edges, columns, name = activation.jet.edges, activation.jet.coefficients.T, f"{values}_table"
    nodes, tensors = [], []

    def constant(array, kind=dtype):
        array = np.asarray(array)
        tensors.append(numpy_helper.from_array(array.astype(kind), f"{name}_{len(tensors)}"))
        return tensors[-1].name

    def node(kind, *operands, **options):
        output = f"{name}_{kind.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(kind, list(operands), [output], name=output, **options))
        return output

    low, high, last = constant(edges[0]), constant(edges[-1]), constant([-1], np.int64)
    inside = node("Clip", values, low, high)
    above = node("GreaterOrEqual", node("Unsqueeze", inside, last), constant(edges[1:-1]))
    count = node("ReduceSum", node("Cast", above, to=_DTYPES[dtype.name]), last, keepdims=0)
    place = node("Cast", count, to=TensorProto.INT64)
    center = node("Gather", constant(0.5 * (edges[1:] + edges[:-1])), place)
    x = node("Mul", node("Sub", inside, center), node("Gather", constant(2.0 / np.diff(edges)), place))
    value = node("Gather", constant(columns[-1]), place)
    for column in columns[-2::-1]:
        value = node("Add", node("Mul", value, x), node("Gather", constant(column), place))
    for kind, end, slope in zip(("Min", "Max"), (low, high), activation.jet.slopes, strict=True):
        beyond = node(kind, node("Sub", values, end), constant(0.0))
        value = node("Add", value, node("Mul", beyond, constant(slope)))
    return nodes, tensors


def read_tables(nodes, arrays):
    """Nodes in which one takes the place of each table by `network_model`, and the tables by the name of that node."""
    tables, rest = {}, []
    for node in nodes:
        values, mark, _ = str(node.name).partition("_table_")
        if not mark:
            rest.append(node)
            continue
        group = [one for one in nodes if str(one.name).startswith(f"{values}_table_")]
        if node is group[-1]:
            table = _table_of(group, values, arrays)
            if table is None:
                rest += group
            else:
                tables[f"{values}_table"] = table
                rest.append(helper.make_node("Tabulated", [values], [node.output[0]], name=f"{values}_table"))
    return rest, tables


def _table_of(group, values, arrays):
    """The table of nodes by `_table_nodes`, None if they are not such nodes."""
    names = itertools.takewhile(arrays.__contains__, (f"{values}_table_{i}" for i in itertools.count()))
    given = [arrays[name] for name in names]
    if len(given) < _FEWEST or any(part.ndim > 1 for part in given) or given[0].dtype.name not in _DTYPES:
        return None
    edges = np.hstack([given[0], given[3], given[1]])
    if any(part.shape != given[6].shape for part in given[7:-4]) or given[-1].ndim or given[-3].ndim:
        return None
    table = tabulated(edges, np.column_stack(given[-5:5:-1]), (given[-3], given[-1]))
    own, tensors = _table_nodes(table, values, given[0].dtype)
    written = [numpy_helper.to_array(tensor) for tensor in tensors]
    tol = _ROUNDINGS * np.finfo(given[0].dtype).eps
    same = all(a.shape == b.shape and np.allclose(a, b, tol, tol) for a, b in zip(given, written, strict=True))
    own[-1].output[0] = group[-1].output[0]
    return table if same and own == group else None


def _clip_nodes(activation, values, dtype):
    """A clip: Max with the lower bounds, then Min with the upper ones, if there are any."""
    nodes, tensors = [], []
    for kind, bound in (("Max", activation.low), ("Min", activation.high)):
        if np.isfinite(bound).any():
            # The operators take infinite entries; the check of magnitudes is for finite ones.
            limit = np.clip(bound, -np.finfo(dtype).max, np.finfo(dtype).max)
            name = f"{values}_{kind.lower()}"
            tensors.append(_tensor(limit, dtype, f"{name}_bound"))
            nodes.append(helper.make_node(kind, [values, f"{name}_bound"], [name], name=name))
            values = name
    return nodes or [helper.make_node("Identity", [values], [f"{values}_clip"], name=f"{values}_clip")], tensors


def _bounded_nodes(activation, values, dtype):
    """An activation between other limits: a factor and a summand after it."""
    base = get_activation(activation.base)
    nodes, tensors = _activation_nodes(base, values, dtype)
    low, high = np.array([activation.low, activation.high])
    factor = (high - low) / (base.limits[1] - base.limits[0])
    for kind, operand in (("Mul", factor), ("Add", low - factor * base.limits[0])):
        name = f"{values}_{kind.lower()}"
        tensors.append(_tensor(operand, dtype, f"{name}_operand"))
        nodes.append(helper.make_node(kind, [*nodes[-1].output, f"{name}_operand"], [name], name=name))
    return nodes, tensors


def _partly_linear_nodes(activation, values, dtype):
    """An activation of all columns but the last ones: two slices, and their concatenation."""
    names, end = [f"{values}_units", f"{values}_linear"], np.array([-activation.n_linear])
    bounds = {"start": np.array([0]), "end": end, "last": np.array([np.iinfo(np.int64).max]), "axis": np.array([1])}
    tensors = [numpy_helper.from_array(bound, f"{values}_{name}") for name, bound in bounds.items()]
    start, end, last, axis = (tensor.name for tensor in tensors)
    nodes = [
        helper.make_node("Slice", [values, *ends, axis], [name], name=name)
        for name, ends in zip(names, ((start, end), (end, last)))
    ]
    inner, constants = _activation_nodes(activation.base, names[0], dtype)
    joined = f"{values}_beside_linear"
    last_node = helper.make_node("Concat", [inner[-1].output[0], names[1]], [joined], name=joined, axis=1)
    return [*nodes, *inner, last_node], [*tensors, *constants]


def _leaky_nodes(slope, values, name, dtype):
    """A leaky ReLU: LeakyRelu, or max(z, s z) in float64, since that operator's slope is single precision."""
    if dtype == np.float32:
        return [helper.make_node("LeakyRelu", [values], [name], name=name, alpha=slope)], []
    kind, scaled = "Max" if slope < 1.0 else "Min", f"{name}_scaled"
    nodes = [
        helper.make_node("Mul", [values, f"{name}_slope"], [scaled], name=scaled),
        helper.make_node(kind, [values, scaled], [name], name=name),
    ]
    return nodes, [_tensor(np.array(slope), dtype, f"{name}_slope")]
