"""Read an ONNX graph as a chain of affine maps and activations, from its input to its one real output."""

import itertools

import numpy as np
from onnx import TensorProto, checker, defs, helper, numpy_helper

from skident.budget.constants import LONGEST_MESSAGE

from ..activations import Clip, bounded
from .files import read_model
from .operators import KNOWN, apply
from .values import ENTRY, Allowance, BatchTensor, Step, joined, unreadable
from .writing import read_tables

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
_MAX_NODES = 10_000  # of a graph: networks have a few per layer (time)
_CONTROL_FLOW = ("If", "Loop", "Scan")


def read_network(source):
    """Arguments of `FeedforwardNetwork` from an ONNX model; a ValueError names a node that cannot be read."""
    return _assembled(*_read(source))


def gives_probabilities(source):
    """Whether an ONNX model ends in a softmax, or in the probabilities of two classes, which `read_network` omits."""
    found, _ = _read(source)
    return found.classes


def _read(source):
    """`BatchTensor` of the output of an ONNX model, and the step that assembles it."""
    model = read_model(source)
    graph = model.graph
    output, allowance = _output(graph), Allowance(model.ByteSize())
    inputs, rows = _inputs(graph, Step("inputs", "input", "", {}, allowance))
    _check(model)
    nodes, needed = _needed(graph, output)
    values = _constants(graph, needed)
    nodes, tables = read_tables(nodes, values)
    values |= inputs
    for node in nodes:
        step = _step(node, allowance)
        missing = [operand for operand in node.input if operand and operand not in values]
        if missing:
            raise unreadable(step, f"it reads {missing[0]!r}, which nothing before it gives")
        operands = [values[operand] if operand else None for operand in node.input]
        if step.kind == "Tabulated" and isinstance(operands[0], BatchTensor):
            values[node.output[0]] = operands[0].activated(tables[node.name], step)
        else:
            values[node.output[0]] = _applied(step, operands)
    found = values.get(output)
    found = found.settled() if isinstance(found, BatchTensor) else found
    if not isinstance(found, BatchTensor) or not (found.layers or found.maps):
        raise ValueError(f"there is no matrix product (MatMul or Gemm) between input and output {output!r}.")
    first = (found.layers[0].maps if found.layers else found.maps)[0][0]
    if rows.width not in (None, len(first)):
        raise ValueError(f"the model's input {[*inputs]} has {rows.width} entries a row, but its first matrix another.")
    return found, Step(output, "output", "", {}, allowance)


def _check(model):
    """Refuse custom operators and malformed models."""
    if len(model.graph.node) > _MAX_NODES:
        raise ValueError(f"from_onnx reads at most {_MAX_NODES} nodes, and the model has {len(model.graph.node)}.")
    functions = {(function.domain, function.name) for function in model.functions}
    for node in model.graph.node:
        if node.domain not in _DOMAINS or (node.domain, node.op_type) in functions:
            raise unreadable(_step(node), f"{node.domain}.{node.op_type} is a custom operator, not one of ONNX's own")
    newest = defs.onnx_opset_version()
    if any(one.domain in ("", "ai.onnx") and one.version > newest for one in model.opset_import):
        raise ValueError(f"the model needs a later operator set than {newest}, the last that the installed onnx knows.")
    try:
        checker.check_model(model)
    except checker.ValidationError as error:
        raise ValueError(f"the ONNX model is damaged: {' '.join(str(error).split())[:LONGEST_MESSAGE]}") from error
    except UnicodeDecodeError as error:  # of what the checker says
        raise ValueError("the ONNX model is damaged: a name in it is no text.") from error


def _step(node, allowance=None):
    """A node with its attributes as Python values."""
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    name = node.name or (node.output[0] if node.output else "?")
    return Step(name, node.op_type, node.domain, attributes, allowance)


def _applied(step, operands):
    """Value of a node; any failure is a ValueError that names it."""
    if step.kind in _CONTROL_FLOW:
        raise unreadable(step, "a loop or branch has no fixed layers")
    if step.kind not in KNOWN:
        raise unreadable(
            step,
            "networks are read as chains of MatMul, Gemm or Conv, average pooling, elementwise arithmetic with "
            "constants, one kind of activation, and what changes nothing",
        )
    try:
        with np.errstate(all="ignore"):  # what is not finite in the end is refused then
            found = apply(step, operands)
        if not isinstance(found, BatchTensor):
            step.allowance.spend(step, ENTRY * found.size)
            return _real(found, f"node {step.name!r}")
        before = [one.maps[-1] for one in operands if isinstance(one, BatchTensor) and one.maps]
        if found.maps and not any(found.maps[-1] is last for last in before):
            step.allowance.spend(step, ENTRY * found.maps[-1][0].size)
        return found
    except (TypeError, IndexError, KeyError, OverflowError) as error:  # of other inputs or attributes
        raise unreadable(step, f"its inputs are not those of this operator ({error})") from error
    except ValueError as error:
        raise error if str(error).startswith("from_onnx") else unreadable(step, str(error).rstrip(".")) from error


def _output(graph):
    """Name of the one output that holds real numbers; labels and the like are ignored."""
    names = []
    for output in graph.output:
        kind = output.type.WhichOneof("value")
        if kind == "sequence_type" or (kind == "tensor_type" and output.type.tensor_type.elem_type in _FLOATS):
            names.append(output.name)
    if len(names) != 1:
        raise ValueError(
            f"from_onnx reads models with one output of real numbers, got {len(names)}: {names} of "
            f"{[output.name for output in graph.output]}.{_extraction(graph, names)}"
        )
    return names[0]


def _extraction(graph, names):
    """A sentence with the call that keeps the first of several outputs."""
    inputs = [value.name for value in graph.input if value.name not in {tensor.name for tensor in graph.initializer}]
    call = f"onnx.utils.extract_model('model.onnx', 'one.onnx', {inputs}, {names[:1]})"
    return f" Keep one, with {call}." if len(names) > 1 else ""


def _needed(graph, output):
    """The nodes that the output depends on, in order, and the names that these read."""
    nodes, needed = [], {output}
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(node.input)
    return nodes[::-1], needed


def _constants(graph, needed):
    """Arrays of the initializers that are needed, by name."""
    sparse = [tensor.values.name for tensor in graph.sparse_initializer if tensor.values.name in needed]
    if sparse:
        raise ValueError(f"from_onnx cannot read sparse tensors, got {sparse[0]!r}.")
    arrays = {}
    for tensor in graph.initializer:
        if tensor.name in needed:
            try:
                arrays[tensor.name] = numpy_helper.to_array(tensor)
            except (TypeError, ValueError, KeyError) as error:
                raise ValueError(f"tensor {tensor.name!r} of the ONNX model is damaged: {error}") from error
            _real(arrays[tensor.name], f"tensor {tensor.name!r}")
    return arrays


def _real(array, name):
    """The array; ValueError unless it holds real numbers or truth values."""
    if array.dtype.kind in "cOSU":
        raise ValueError(f"from_onnx reads real numbers, and {name} of the ONNX model has dtype {array.dtype}.")
    return array


def _inputs(graph, step):
    """`BatchTensor` of every input by name, and of all: there may be one input per column."""
    given = {tensor.name for tensor in graph.initializer}
    values = [value for value in graph.input if value.name not in given]
    parts = [_input(value) for value in values]
    if not parts or len(parts) > 1 and any(part.dims != (1,) or part.batch != parts[0].batch for part in parts):
        raise ValueError(
            f"from_onnx reads models with one input, or one per column, of shape (n, 1), got {len(values)}: "
            f"{[value.name for value in values]}."
        )
    rows = parts[0] if len(parts) == 1 else BatchTensor((len(parts),), parts[0].batch)
    columns = [rows] if len(parts) == 1 else [rows.selected(np.array([i]), (1,), step) for i in range(len(parts))]
    return {value.name: column for value, column in zip(values, columns, strict=True)}, rows


def _input(value):
    """An input; without a batch axis, which it lacks if it has one axis of fixed length, its batch is 0."""
    name, kind = value.name, value.type.tensor_type
    if kind.elem_type not in _FLOATS:
        raise ValueError(f"the model's input {name!r} must be a tensor of real numbers.")
    dims = tuple(axis.dim_value or axis.dim_param or None for axis in kind.shape.dim)
    if len(dims) == 1 and isinstance(dims[0], int):
        return BatchTensor(dims, 0)
    later = tuple(axis if isinstance(axis, int) else None for axis in dims[1:])
    if len(dims) < 2 or (len(dims) > 2 and None in later):
        shape = dims if kind.HasField("shape") else "unknown"
        raise ValueError(
            f"the model's input {name!r} must have a batch axis followed by axes of fixed length, such as (n, D); "
            f"its shape is {shape}."
        )
    return BatchTensor(later, dims[0] if isinstance(dims[0], int) else None)


def _assembled(rows, step):
    """Weights, biases and the two activations of a chain."""
    done, rest = rows.layers, rows.maps
    last = done[-1].activation if done and not rest else "identity"
    if not rest and not rows.plain and len(done) > 1 and last != done[-2].activation and _is_bounded(last, rows.scale):
        last = bounded(last.name, *(np.asarray(rows.scale * limit + rows.offset) for limit in last.limits))
    elif not rest and not rows.plain:  # something like 2 tanh(...): a layer of its own
        width = len(done[-1].maps[-1][1])
        step.allowance.spend(step, entries=width * width)
        rest = ((np.diag(np.broadcast_to(rows.scale, width)), np.broadcast_to(rows.offset, width)),)
    output = last if not rest else "identity"
    hidden = done if rest else done[:-1]
    for one, other in itertools.pairwise(hidden):
        if one.activation != other.activation:
            raise unreadable(
                other.step,
                f"all hidden layers must have the same activation, and it differs from that of {one.step.name!r}",
            )
    if hidden and isinstance(hidden[0].activation, Clip):
        raise unreadable(hidden[0].step, "bounds other than those of relu and hard_tanh are read at the outputs only")
    groups = [layer.maps for layer in done] + ([rest] if rest else [])
    if not hidden:  # no activation inside: every matrix is a linear layer
        layers = list(groups[0])
        return [W for W, _ in layers], [b for _, b in layers], "identity", output
    layers = [joined(maps, step) for maps in groups]
    return [W for W, _ in layers], [b for _, b in layers], hidden[0].activation, output


def _is_bounded(activation, scale):
    """Whether outputs behind an activation, multiplied by `scale`, lie between two bounds."""
    return activation.name in ("tanh", "sigmoid", "erf") and bool(np.all(scale > 0.0))
