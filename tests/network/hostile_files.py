"""Small files that attack a reader: sizes, depths, counts, types and names that no exporter writes.

`CRAFTED` maps a name to the suffix and the bytes of a file, none of which is a network.
"""

import json
import struct

import numpy as np
from onnx import TensorProto, helper, numpy_helper

HUGE, MOST = 2**62, 2**63 - 1
W, V, B = np.arange(12.0).reshape(4, 3) / 10, np.ones((3, 2)), np.array([0.5, 0.0, -0.5])
IMAGES = ("n", 1, 4, 4)
K = {"K": np.ones((2, 1, 3, 3)), "D": np.ones((4, 2))}


def onnx_file(nodes, constants=(), shape=("n", 4), change=None, opset=17, **graph_options):
    """Bytes of a model; `nodes` are (operator, inputs, output, attributes), changed last by `change(model)`."""
    made = [helper.make_node(kind, list(read), [name], name=name, **options) for kind, read, name, options in nodes]
    tensors = {"W": W, "V": V, "b": B} | dict(constants)
    read = {name for node in made for name in node.input}
    graph = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, shape)],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, ["n"] + [None] * (len(shape) - 1))],
        [
            tensor if isinstance(tensor, TensorProto) else numpy_helper.from_array(np.asarray(tensor), name)
            for name, tensor in tensors.items()
            if name in read
        ],
        **graph_options,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if change is not None:
        change(model)
    return model.SerializeToString()


def layer(kind="Tanh", **options):
    return [("MatMul", "xW", "z", {}), (kind, "z", "h", options)]


LAST = [("MatMul", "hV", "y", {})]
PLAIN = [*layer(), *LAST]


def image_step(kind, read="x", shape=IMAGES, constants=K, **options):
    return onnx_file([(kind, read, "y", options)], constants, shape)


def raw(name="W", dims=(4, 3), data_type=TensorProto.DOUBLE, content=b"", **fields):
    """A tensor with fields that may not fit together."""
    tensor = TensorProto(name=name, data_type=data_type, dims=dims, **fields)
    if content is not None:
        tensor.raw_data = content
    return tensor


def external(**entries):
    tensor = raw(content=None, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return onnx_file(PLAIN, {"W": tensor})


def with_tensor(*args, **options):
    return onnx_file(PLAIN, {"W": raw(*args, **options)})


def changed(change, nodes=PLAIN, **options):
    return onnx_file(nodes, change=change, **options)


def nested(depth, kind="If"):
    """A subgraph in a subgraph in a ..."""
    graph = helper.make_graph([], "g", [], [])
    for _ in range(depth):
        graph = helper.make_graph([helper.make_node(kind, ["c"], ["y"], body=graph)], "g", [], [])
    return graph


def append_node(*args, **options):
    return lambda model: model.graph.node.append(helper.make_node(*args, **options))


def set_input(**fields):
    def change(model):
        axis = model.graph.input[0].type.tensor_type.shape.dim[1]
        for name, value in fields.items():
            setattr(axis, name, value)

    return change


def two_cycle(model):
    model.graph.node[0].input[0], model.graph.node[1].input[0] = "h", "z"


def same_function(model):
    """A function of the model's own by the name of an operator of ONNX."""
    body = [helper.make_node("Neg", ["u"], ["v"])]
    model.functions.append(helper.make_function("", "Tanh", ["u"], ["v"], body, [helper.make_opsetid("", 17)]))


def twice(field):
    return lambda model: getattr(model.graph, field).append(getattr(model.graph, field)[0])


def set_fields(message, **fields):
    for name, value in fields.items():
        setattr(message, name, value)


def _attribute(**fields):
    def change(model):
        node = model.graph.node[1]
        del node.attribute[:]
        node.attribute.add(**fields)

    return change


LOOP = helper.make_graph(
    [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Identity", ["v"], ["w"])],
    "body",
    [
        helper.make_tensor_value_info(name, kind, ())
        for name, kind in [("i", TensorProto.INT64), ("c", TensorProto.BOOL), ("v", TensorProto.DOUBLE)]
    ],
    [
        helper.make_tensor_value_info("d", TensorProto.BOOL, ()),
        helper.make_tensor_value_info("w", TensorProto.DOUBLE, ()),
    ],
)
BRANCH = helper.make_graph(
    [helper.make_node("Identity", ["z"], ["w"])],
    "branch",
    [],
    [helper.make_tensor_value_info("w", TensorProto.DOUBLE, None)],
)


def control(kind, read, constants, **options):
    return onnx_file([layer()[0], (kind, read, "y", options)], constants)


def without_a_step(kind, read, constants, **options):
    """A constant that an operator makes as large as its inputs say, as a matrix."""
    nodes = [(kind, read, "M", options), ("MatMul", "xM", "y", {})]
    return onnx_file(nodes, constants)


BIG = np.array([10**6, 10**6])
ONNX = {
    # sizes of convolutions and pooling
    "conv, pads of 5,000": image_step("Conv", "xK", pads=[5000] * 4),
    "conv, pads of 100,000": image_step("Conv", "xK", pads=[100_000] * 4),
    "conv, pads of 2^62": image_step("Conv", "xK", pads=[HUGE] * 4),
    "conv, pads that sum to -2": image_step("Conv", "xK", pads=[MOST, MOST, MOST, MOST]),
    "conv, negative pads": image_step("Conv", "xK", pads=[-1, -1, 3, 3]),
    "conv, three pads": image_step("Conv", "xK", pads=[1, 1, 1]),
    "conv, strides of 0": image_step("Conv", "xK", strides=[0, 0]),
    "conv, negative strides": image_step("Conv", "xK", strides=[-1, -1]),
    "conv, one stride": image_step("Conv", "xK", strides=[2]),
    "conv, strides of 2^62 after pads": image_step("Conv", "xK", strides=[HUGE] * 2, pads=[HUGE] * 4),
    "conv, dilations of 0": image_step("Conv", "xK", dilations=[0, 0]),
    "conv, negative dilations": image_step("Conv", "xK", dilations=[-1, -1]),
    "conv, dilations of 2^62 with pads": image_step("Conv", "xK", dilations=[HUGE] * 2, pads=[HUGE] * 4),
    "conv, no group": image_step("Conv", "xK", group=0),
    "conv, negative group": image_step("Conv", "xK", group=-1),
    "conv, 2^40 groups": image_step("Conv", "xK", group=2**40),
    "conv, padding by name": image_step("Conv", "xK", auto_pad="SAME_EVERYWHERE"),
    "conv, padding by name, strides of 0": image_step("Conv", "xK", auto_pad="SAME_UPPER", strides=[0, 0]),
    "conv, another kernel_shape": image_step("Conv", "xK", kernel_shape=[HUGE, HUGE]),
    "conv, inputs of 2^20 x 2^20": image_step("Conv", "xK", shape=("n", 1, 2**20, 2**20)),
    "conv, inputs of 2^33 x 2^33": image_step("Conv", "xK", shape=("n", 1, 2**33, 2**33)),
    "conv, inputs of 1,000 x 1,000": image_step("Conv", "xK", shape=("n", 1, 1000, 1000)),
    "conv, kernel without entries": image_step("Conv", "xK", constants={"K": np.ones((2, 1, 0, 3))}),
    "conv, kernel without channels": image_step("Conv", "xK", constants={"K": np.ones((0, 1, 3, 3))}),
    "conv, 20 times": onnx_file(
        [("Conv", ["x" if i == 0 else f"c{i - 1}", "K"], f"c{i}", {"pads": [1] * 4}) for i in range(19)]
        + [("Conv", ["c18", "K"], "y", {"pads": [1] * 4})],
        {"K": np.ones((1, 1, 3, 3))},
        ("n", 1, 64, 64),
    ),
    "conv, scaled 2,000 times": onnx_file(
        [("Conv", "xK", "m0", {"pads": [1] * 4})]
        + [("Mul", [f"m{i}", "s"], f"m{i + 1}", {}) for i in range(2000)]
        + [("Tanh", ["m2000"], "y", {})],
        {"K": np.ones((1, 1, 3, 3)), "s": np.array(1.0001)},
        ("n", 1, 50, 50),
    ),
    "pool, kernel of 10^9": image_step("AveragePool", kernel_shape=[10**9, 1]),
    "pool, kernel of 2^31 x 2^33, pads": image_step("AveragePool", kernel_shape=[2**31, 2**33], pads=[HUGE] * 4),
    "pool, pads of 100,000": image_step("AveragePool", kernel_shape=[3, 3], pads=[100_000] * 4),
    "pool, kernel of 3,000 with pads": image_step("AveragePool", kernel_shape=[3000, 3000], pads=[3000] * 4),
    "pool, kernel of 0": image_step("AveragePool", kernel_shape=[0, 0]),
    "pool, negative kernel": image_step("AveragePool", kernel_shape=[-2, -2]),
    "pool, strides of 0": image_step("AveragePool", kernel_shape=[2, 2], strides=[0, 0]),
    "pool, kernel in the padding": image_step("AveragePool", kernel_shape=[1, 1], pads=[3, 3, 3, 3]),
    "pool, channels of 10^6": image_step("AveragePool", kernel_shape=[2, 2], shape=("n", 10**6, 4, 4)),
    "pool, no kernel": image_step("AveragePool"),
    "global pool, 2^12 channels of 2^12": image_step("GlobalAveragePool", shape=("n", 2**12, 64, 64)),
    "global pool, 2^40 channels": image_step("GlobalAveragePool", shape=("n", 2**40, 2**20, 4)),
    # sizes of arithmetic
    "sub, broadcast to 2^40": onnx_file([("Sub", "xu", "y", {})], {"u": np.ones((4, 1))}, ("n", 4, 2**40)),
    "scaler, broadcast to 2^40": onnx_file(
        [("Mul", "xu", "m", {}), ("Add", "mu", "y", {})], {"u": np.ones((1, 2, 1))}, ("n", 2, 2**40)
    ),
    "batch norm, 2^40 repeats": image_step(
        "BatchNormalization", "xbbbb", shape=("n", 3, 2**20, 2**20), constants={"b": np.ones(3)}
    ),
    "batch norm, negative variance": onnx_file(
        [("MatMul", "xW", "z", {}), ("BatchNormalization", "zbbbv", "y", {})], {"v": -np.ones(3)}
    ),
    "outer product of constants": without_a_step("Mul", "uv", {"u": np.ones((20000, 1)), "v": np.ones((1, 20000))}),
    "outer product of layers": onnx_file(
        [("MatMul", "xu", "a", {}), ("MatMul", "av", "m", {}), ("Tanh", "m", "h", {}), ("MatMul", "hq", "y", {})],
        {"u": np.ones((20000, 1)), "v": np.ones((1, 20000)), "q": np.ones((20000, 1))},
        ("n", 20000),
    ),
    "2 tanh of 20,000 units": onnx_file(
        [("MatMul", "xv", "z", {}), ("Tanh", "z", "h", {}), ("Mul", "hs", "y", {})],
        {"v": np.ones((1, 20000)), "s": np.array(2.0)},
        ("n", 1),
    ),
    "gemm, bias of 2^20 rows": onnx_file([("Gemm", "xWu", "y", {})], {"u": np.ones((2**10, 3))}),
    "gemm, alpha not finite": onnx_file([("Gemm", "xWb", "y", {"alpha": float("inf")})]),
    "gemm, matrix of three axes": onnx_file([("Gemm", "xu", "y", {"transB": 1})], {"u": np.ones((2, 3, 4))}),
    "constant of shape": without_a_step("ConstantOfShape", "s", {"s": BIG}),
    "expand": without_a_step("Expand", "us", {"u": np.ones(1), "s": BIG}),
    "tile": without_a_step("Tile", "us", {"u": np.ones((1, 1)), "s": BIG}),
    "range": without_a_step("Range", "uvw", {"u": np.array(0), "v": np.array(10**12), "w": np.array(1)}),
    "pad": without_a_step("Pad", "us", {"u": np.ones((1, 1)), "s": np.array([10**6] * 4)}),
    "one hot": without_a_step("OneHot", "uvw", {"u": np.array([1]), "v": np.array(10**12), "w": np.ones(2)}),
    "concat of constants": without_a_step("Concat", "u" * 1000, {"u": np.ones((4, 10_000))}, axis=1),
    "product of constants": without_a_step("MatMul", "uv", {"u": np.ones((20000, 1)), "v": np.ones((1, 20000))}),
    "zeros around constants": without_a_step("Pad", "up", {"u": np.ones((1, 1)), "p": np.array([0, 0, *BIG])}),
    "a row gathered": without_a_step("Gather", "ui", {"u": np.ones((1, 20000)), "i": np.zeros(20000, dtype=int)}),
    "slices out of nowhere": without_a_step("Slice", "uss", {"u": np.ones((4, 4)), "s": np.full(9, HUGE)}),
    "concat with itself": onnx_file([*layer(), ("Concat", "hh", "y", {"axis": HUGE})]),
    # shapes
    "reshape to 2^40": onnx_file([*layer(), ("Reshape", "hs", "y", {})], {"s": np.array([-1, 2**40, 2**40])}),
    "reshape to (-1, -1)": onnx_file([*layer(), ("Reshape", "hs", "y", {})], {"s": np.array([-1, -1])}),
    "reshape to (0, -3, -1)": onnx_file([*layer(), ("Reshape", "hs", "y", {})], {"s": np.array([0, -3, -1])}),
    "reshape to nan": onnx_file([*layer(), ("Reshape", "hs", "y", {})], {"s": np.array([np.nan, np.inf])}),
    "reshape to 10,000 axes": onnx_file([*layer(), ("Reshape", "hs", "y", {})], {"s": np.array([0, 3] + [1] * 10000)}),
    "reshape of a constant to 1,000 axes": without_a_step(
        "Reshape", "us", {"u": np.ones(1), "s": np.ones(1000, dtype=int)}
    ),
    "reshape of a constant to 2^62": without_a_step("Reshape", "us", {"u": np.ones(1), "s": np.array([HUGE, 4])}),
    "unsqueeze of 5,000 axes": onnx_file([*layer(), ("Unsqueeze", "hs", "y", {})], {"s": np.arange(1, 5001)}),
    "unsqueeze at 2^62": onnx_file([*layer(), ("Unsqueeze", "hs", "y", {})], {"s": np.array([HUGE])}),
    "squeeze of no axis": onnx_file([*layer(), ("Squeeze", "h", "y", {})]),
    "squeeze of other axes": onnx_file([*layer(), ("Squeeze", "hs", "y", {})], {"s": np.array([1])}),
    "transpose, axis twice": without_a_step("Transpose", "W", {}, perm=[0, 0]),
    "flatten from 2^62": onnx_file([*layer(), ("Flatten", "h", "y", {"axis": HUGE})]),
    "softmax over axis 2^62": onnx_file([layer()[0], ("Softmax", "z", "y", {"axis": HUGE})]),
    "clip, low above high": onnx_file([layer()[0], ("Clip", "zuv", "y", {})], {"u": np.ones(()), "v": -np.ones(())}),
    "clip at nan": onnx_file([layer()[0], ("Clip", "zuu", "y", {})], {"u": np.array(np.nan)}),
    "clip, a vector": onnx_file([layer()[0], ("Clip", "zuu", "y", {})], {"u": np.ones(3)}),
    "leaky relu, nan": onnx_file([*layer("LeakyRelu", alpha=float("nan")), *LAST]),
    "prelu without slope": onnx_file([layer()[0], ("PRelu", "zu", "h", {}), *LAST], {"u": np.ones((0,))}),
    "pow of a vector": onnx_file([layer()[0], ("Pow", "zb", "h", {}), *LAST]),
    "divided by zero": onnx_file([*layer(), ("Div", "hu", "g", {}), ("MatMul", "gV", "y", {})], {"u": 0.0}),
    "integer division by zero": without_a_step("Div", "uv", {"u": np.ones((4, 3), dtype=int), "v": np.array(0)}),
    # tensors
    "tensor of type 91": with_tensor(data_type=91, content=b"\0" * 96),
    "tensor of type 0": with_tensor(data_type=0, content=b"\0" * 96),
    "tensor of complex numbers": onnx_file(PLAIN, {"W": W + 1j}),
    "tensor of single complex numbers": onnx_file(PLAIN, {"W": (W + 1j).astype(np.complex64)}),
    "tensor of texts": with_tensor(data_type=TensorProto.STRING, content=None, string_data=[b"1.5"] * 12),
    "tensor, odd number of bytes": with_tensor(data_type=TensorProto.FLOAT16, content=b"\0" * 23),
    "tensor without numbers": with_tensor(),
    "tensor of 2^62 x 2^62": with_tensor(dims=(HUGE, HUGE), content=b"\0" * 96),
    "tensor of 2^32 x 2^32": with_tensor(dims=(2**32, 2**32), content=None),
    "tensor of -4 x -3": with_tensor(dims=(-4, -3), content=b"\0" * 96),
    "tensor of 0 x 3": with_tensor(dims=(0, 3)),
    "tensor of 1,000 axes": with_tensor(dims=(1,) * 1000, content=b"\0" * 8),
    "tensor of 4-bit numbers": with_tensor(data_type=TensorProto.INT4, dims=(HUGE, 3), content=b"\0"),
    "tensor of numbers twice": with_tensor(content=b"\0" * 96, double_data=[1.0] * 12),
    "tensor of nan": onnx_file(PLAIN, {"W": W * np.nan}),
    "tensor of 1e308, squared": onnx_file(
        [("MatMul", "xu", "a", {}), ("MatMul", "av", "z", {}), ("Tanh", "z", "h", {}), *LAST],
        {"u": np.full((4, 3), 1e308), "v": np.full((3, 3), 1e308)},
    ),
    "constant of type 91": without_a_step("Constant", "", {}, value=raw(data_type=91, content=b"\0" * 96)),
    "constant of complex numbers": without_a_step("Constant", "", {}, value=numpy_helper.from_array(W + 1j)),
    "constant of texts": without_a_step("Constant", "", {}, value_strings=["1.5"]),
    "constant of nothing": without_a_step("Constant", "", {}),
    "cast of a constant to type 91": without_a_step("Cast", "W", {}, to=91),
    "cast of a constant to complex": without_a_step("Cast", "W", {}, to=TensorProto.COMPLEX128),
    "cast of a constant to text": without_a_step("Cast", "W", {}, to=TensorProto.STRING),
    "root of negative numbers": without_a_step("Sqrt", "u", {"u": -np.ones((4, 3))}),
    # numbers in other files
    "external, no location": external(),
    "external, absolute": external(location="/etc/passwd"),
    "external, above": external(location="../weights.bin"),
    "external, a device": external(location="/dev/zero"),
    "external, a pipe": external(location="pipe"),
    "external, a folder": external(location="folder"),
    "external, a link to itself": external(location="link"),
    "external, a zero byte": external(location="a\0b"),
    "external, a long name": external(location="a" * 5000),
    "external, missing": external(location="missing.bin"),
    "external, offset below zero": external(location="weights.bin", offset=-8, length=96),
    "external, offset of 10^30": external(location="weights.bin", offset=10**30, length=96),
    "external, offset of 10,000 digits": external(location="weights.bin", offset="9" * 10000),
    "external, length of 2^62": external(location="weights.bin", length=HUGE),
    "external, no number": external(location="weights.bin", length="nan"),
    # graphs
    "a cycle of two nodes": changed(two_cycle),
    "a node that reads itself": onnx_file([("MatMul", "zW", "z", {}), ("Tanh", "z", "h", {}), *LAST]),
    "loop": control("Loop", "tcz", {"t": np.array(MOST), "c": np.array(True)}, body=LOOP),
    "if": control("If", "c", {"c": np.array(True)}, then_branch=BRANCH, else_branch=BRANCH),
    "scan": control("Scan", "z", {}, body=LOOP, num_scan_inputs=1),
    "subgraphs 20 deep": changed(append_node("If", ["c"], ["q"], body=nested(20))),
    "10,001 nodes": onnx_file(
        [layer()[0]] + [("Identity", ["z" if i == 0 else f"i{i - 1}"], f"i{i}", {}) for i in range(10000)]
    ),
    "20,000 layers without activation": onnx_file(
        [("MatMul", ["x" if i == 0 else f"i{i - 1}", "u"], f"i{i}", {}) for i in range(20000)], {"u": np.ones((1, 1))}
    ),
    "function by the name of an operator": changed(same_function),
    "initializer twice": changed(twice("initializer")),
    "input twice": changed(twice("input")),
    "output twice": changed(twice("output")),
    "node twice": changed(twice("node")),
    "no initializer": changed(lambda model: model.graph.ClearField("initializer")),
    "no nodes": changed(lambda model: model.graph.ClearField("node")),
    "no input": changed(lambda model: model.graph.ClearField("input")),
    "no output": changed(lambda model: model.graph.ClearField("output")),
    "no graph": changed(lambda model: model.ClearField("graph")),
    "no operator set": changed(lambda model: model.ClearField("opset_import")),
    "operator set 10^9": changed(lambda model: set_fields(model.opset_import[0], version=10**9)),
    "operator set -1": changed(lambda model: set_fields(model.opset_import[0], version=-1)),
    "version 2^60": changed(lambda model: set_fields(model, ir_version=2**60)),
    "version 0": changed(lambda model: model.ClearField("ir_version")),
    "operator of another domain": changed(lambda model: set_fields(model.graph.node[1], domain="a.b")),
    "operator named by 10^6 letters": changed(lambda model: set_fields(model.graph.node[1], op_type="a" * 10**6)),
    "node without outputs": changed(lambda model: model.graph.node[1].ClearField("output")),
    "node without inputs": changed(lambda model: model.graph.node[1].ClearField("input")),
    "node with empty inputs": changed(lambda model: model.graph.node[0].input.__setitem__(0, "")),
    "add of empty inputs": without_a_step("Add", ["", "W"], {}),
    "inputs of width -5": changed(set_input(dim_value=-5)),
    "inputs of width 2^62": changed(set_input(dim_value=HUGE)),
    "inputs of width 5": changed(set_input(dim_value=5)),
    "input of unknown type": changed(lambda model: model.graph.input[0].ClearField("type")),
    "output of unknown type": changed(lambda model: model.graph.output[0].ClearField("type")),
    "attribute of nothing": changed(_attribute(name="alpha")),
    "attribute by reference": changed(_attribute(name="alpha", type=1, ref_attr_name="alpha")),
    "attribute of type 77": image_step("Conv", "xK", pads=[1, 1, 1, 1]).replace(b"\xa0\x01\x07", b"\xa0\x01\x4d"),
    "attribute unknown": changed(_attribute(name="alpha", type=1, f=1.0)),
    "axis as text": onnx_file([layer()[0], ("Softmax", "z", "y", {"axis": "one"})]),
    "strides as numbers": image_step("Conv", "xK", strides=[1.5, 1.5]),
    "name that is no text": onnx_file(PLAIN).replace(b"Tanh", b"Ta\xc0h"),
    "text": b"not a network",
    "nothing": b"",
    "a pickle": b"\x80\x04N.",
    "a field of 2^40 bytes": b"\x3a" + b"\x80\x80\x80\x80\x80\x20" + b"\0" * 10,
    "messages 200 deep": b"\x3a\x7f" * 200,
}  # fmt: skip


def tensors_file(arrays=None, header=None, change=None, **metadata):
    """Bytes of a safetensors file; `header` replaces entries of the header, `change` the bytes of it."""
    arrays = {"weights.0": W, "biases.0": B, "weights.1": V, "biases.1": B[:2]} if arrays is None else arrays
    entries, content = {}, b""
    for name, array in arrays.items():
        kind = {"float64": "F64", "int64": "I64", "float32": "F32"}[array.dtype.name]
        end = len(content) + array.nbytes
        entries[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [len(content), end]}
        content += array.tobytes()
    metadata = {
        "format": "skident.FeedforwardNetwork", "format_version": "1", "activation": "tanh",
        "output_activation": "identity",
    } | metadata  # fmt: skip
    entries |= {"__metadata__": metadata} | (header or {})
    written = json.dumps({name: entry for name, entry in entries.items() if entry is not None}).encode()
    written = written if change is None else change(written)
    return struct.pack("<Q", len(written)) + written + content


def first(dtype="F64", shape=(4, 3), begin=0, end=96):
    return tensors_file(header={"weights.0": {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}})


def hidden(activation):
    return tensors_file(activation=activation)


def outputs(activation):
    return tensors_file(output_activation=activation)


SAFETENSORS = {
    "partly_linear 3,000 deep": hidden("partly_linear(" * 3000 + "tanh" + ", 1)" * 3000),
    "partly_linear 200 deep": hidden("partly_linear(" * 200 + "tanh" + ", 1)" * 200),
    "partly_linear of 10^5 brackets": hidden("partly_linear(" + "(" * 100_000 + ", 1)"),
    "partly_linear, 9 of 3 units": hidden("partly_linear(tanh, 9)"),
    "partly_linear, 3 of 2 outputs": outputs("partly_linear(tanh, 3)"),
    "partly_linear, two levels of 2 of 3 units": hidden("partly_linear(partly_linear(tanh, 2), 2)"),
    "partly_linear, no unit": hidden("partly_linear(tanh, 0)"),
    "partly_linear, 10,000 digits": hidden(f"partly_linear(tanh, {'9' * 10000})"),
    "partly_linear, negative": hidden("partly_linear(tanh, -1)"),
    "partly_linear of nothing": hidden("partly_linear(, 1)"),
    "partly_linear of bounds per unit": hidden("partly_linear(clip[[0.0, 0.0, 0.0, 0.0, 0.0], [1.0]], 1)"),
    "clip of 200,000 brackets": outputs("clip" + "[" * 200_000),
    "clip of 200,000 brackets, closed": outputs("clip" + "[" * 200_000 + "]" * 200_000),
    "clip of 200,000 braces": outputs("clip[" + '{"a":' * 200_000),
    "clip, 5 bounds of 2 outputs": outputs("clip[[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]"),
    "clip, 5 equal bounds of 2 outputs": outputs("clip[[0.0, 0.0, 0.0, 0.0, 0.0], [1.0]]"),
    "clip, three bounds": outputs("clip[[0], [1], [2]]"),
    "clip, no bounds": outputs("clip[]"),
    "clip, empty bounds": outputs("clip[[], []]"),
    "clip, texts": outputs('clip[["0"], ["1"]]'),
    "clip, objects": outputs('clip[{"a": 1}, {"b": 2}]'),
    "clip, nothing": outputs("clip[null, null]"),
    "clip, truths": outputs("clip[[false], [true]]"),
    "clip, nan": outputs("clip[[NaN], [NaN]]"),
    "clip, low above high": outputs("clip[[1], [0]]"),
    "clip, 5,000 digits": outputs(f"clip[[{'9' * 5000}], [1]]"),
    "clip of hidden units": hidden("clip[[0, 0, 0], [1, 1, 2]]"),
    "table of two lists": hidden("tabulated[[0, 1], [1]]"),
    "table without intervals": hidden("tabulated[[0], [], [0, 1], [0]]"),
    "table, 3 coefficients on 2 intervals": hidden("tabulated[[0, 1, 2], [1, 2, 3], [0, 1], [0]]"),
    "table, edges that decrease": hidden("tabulated[[1, 0], [1], [0, 1], [0]]"),
    "table, nan": hidden("tabulated[[0, 1], [NaN], [0, 1], [0]]"),
    "table, an edge of 5,000 digits": hidden(f"tabulated[[0, {'9' * 5000}], [1], [0, 1], [0]]"),
    "table, an edge of 500 digits": hidden(f"tabulated[[0, {'9' * 500}], [1], [0, 1], [0]]"),
    "table, three slopes": hidden("tabulated[[0, 1], [1], [0, 1, 2], [0]]"),
    "table of 200,000 brackets": hidden("tabulated" + "[" * 200_000),
    "table of 20,000 intervals": hidden(f"tabulated[{list(range(20_001))}, {[0] * 20_000}, [0, 1], [0]]"),
    "leaky_relu(1)": hidden("leaky_relu(1)"),
    "leaky_relu(1e999)": hidden("leaky_relu(1e999)"),
    "leaky_relu(e)": hidden("leaky_relu(e-+e)"),
    "leaky_relu, 10^6 digits": hidden(f"leaky_relu({'1' * 10**6})"),
    "unknown activation": hidden("snake"),
    "activation of 10^6 letters": hidden("a" * 10**6),
    "no activation": hidden(None),
    "other format": tensors_file(format="other"),
    "later version": tensors_file(format_version="2"),
    "header of 2^63 bytes": b"\xff" * 8 + b"{}",
    "header of 200 MB": struct.pack("<Q", 200_000_000) + b"{}",
    "header longer than the file": struct.pack("<Q", 5000) + b"{}",
    "header nested 100,000 times": tensors_file(change=lambda _: b'{"a":' * 100_000),
    "header that is no text": tensors_file(change=lambda text: text.replace(b"tanh", b"t\xff\xffh")),
    "header of a list": tensors_file(change=lambda _: b"[]"),
    "header without metadata": tensors_file(header={"__metadata__": None}),
    "metadata of numbers": tensors_file(activation=7),
    "name twice": tensors_file(change=lambda text: text.replace(b'"weights.1"', b'"weights.0"')),
    "bfloat16": first("BF16", (4, 12)),
    "float8": first("F8_E4M3", (8, 12)),
    "float8 of another kind": first("F8_E5M2", (8, 12)),
    "float4": first("F4", (8, 24)),
    "complex": first("C64", (4, 3)),
    "truths": first("BOOL", (8, 12)),
    "integers": first("I64"),
    "single precision": first("F32", (4, 6)),
    "type 91": first("X91"),
    "shape of 2^62 x 2^62": first(shape=(HUGE, HUGE)),
    "shape of 2^64": first(shape=(2**64, 1)),
    "negative shape": first(shape=(-4, -3)),
    "three axes": first(shape=(4, 3, 1)),
    "one axis": first(shape=(12,)),
    "no axis": first(shape=()),
    "transposed": first(shape=(3, 4)),
    "data before the file": first(begin=96, end=0),
    "data behind the file": first(begin=0, end=2**40),
    "overlapping data": first(begin=96, end=192),
    "a hole in the data": first(shape=(3, 3), end=72),
    "no arrays": tensors_file({}),
    "biases alone": tensors_file({"biases.0": B}),
    "other names": tensors_file({"weights.0": W, "biases.1": B}),
    "arrays without entries": tensors_file({"weights.0": W[:0], "biases.0": B}),
    "arrays of no units": tensors_file({"weights.0": W[:, :0], "biases.0": B[:0]}),
    "nan": tensors_file({"weights.0": W * np.nan, "biases.0": B}),
    "infinite": tensors_file({"weights.0": W, "biases.0": B + np.inf}),
    "layers that do not fit": tensors_file({"weights.0": W, "biases.0": B, "weights.1": W, "biases.1": B}),
    "text": b"not a network",
    "nothing": b"",
    "seven bytes": b"\0" * 7,
}  # fmt: skip
CRAFTED = {f"{name}.onnx": content for name, content in ONNX.items()} | {
    f"{name}.safetensors": content for name, content in SAFETENSORS.items()
}
