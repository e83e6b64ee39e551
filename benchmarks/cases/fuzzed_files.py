"""Model and data files with bytes or fields changed at random, read one by one within limits of memory and time.

``python -m cases.fuzzed_files FIRST LAST ROUND`` prints a JSON line per reading, of the files of these seeds in a
round; ``crafted`` instead of FIRST reads the crafted files of the tests.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import torch
from google.protobuf.message import Message
from onnx import helper, numpy_helper

from common import FOLDER
from skident.cli.tables import read_table
from skident.network import FeedforwardNetwork, clip, leaky_relu, partly_linear
from skident.oracle import Oracle

MEMORY = 2**30  # bytes of address space of one file beyond what the imports take
HUNG = 20  # seconds of processor time after which a reading is ended
NUMBERS = [0, -1, 1, 2, 3, 7, 91, 255, 65536, 2**20, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
KINDS = ["Conv", "AveragePool", "GlobalAveragePool", "Gemm", "MatMul", "Reshape", "Concat", "Expand", "Tile", "Add"]
KINDS += ["ConstantOfShape", "Loop", "If", "Flatten", "Transpose", "Clip", "Softmax", "BatchNormalization", "Squeeze"]
KINDS += ["Unsqueeze", "Mul", "Div", "Max", "PRelu", "Cast", "Identity", "Scaler", "Constant", "Range", "Pad", "Pow"]
TEXTS = ["", "x", "X", "Y", "W", "a" * 1000, "\x00", "../x", "/dev/zero", "partly_linear(tanh, 1)", "clip[[0], [1]]"]


def networks(rng):
    """A small network of a random kind with four inputs."""
    widths = (4, *rng.randint(1, 7, size=rng.randint(1, 4)))
    weights = [rng.standard_normal(pair) for pair in zip(widths, widths[1:])]
    biases = [rng.standard_normal(m) for m in widths[1:]]
    hidden = ["tanh", "relu", "sigmoid", leaky_relu(0.3), partly_linear("relu", 1), "silu", "quadratic"]
    output = ["identity", "tanh", clip(-1.0, np.arange(1.0, 1.0 + widths[-1])), "identity"]
    return FeedforwardNetwork(weights, biases, hidden[rng.randint(7)], output[rng.randint(4)])


def convolutional(rng):
    """An ONNX model of a convolution, batch norm, pooling and a matrix."""
    nodes = [
        helper.make_node("Conv", ["x", "K"], ["c"], pads=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1], group=1),
        helper.make_node("BatchNormalization", ["c", "s", "s", "s", "s"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("AveragePool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("Gemm", ["f", "W", "b"], ["y"], alpha=1.0, transB=1),
    ]
    arrays = {"K": rng.standard_normal((2, 1, 3, 3)), "s": rng.uniform(0.5, 2.0, 2), "shape": np.array([-1, 2])}
    arrays |= {"W": rng.standard_normal((3, 2)), "b": rng.standard_normal(3)}
    real = onnx.TensorProto.DOUBLE
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", real, ("n", 1, 2, 2))],
        [helper.make_tensor_value_info("y", real, ("n", 3))],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def with_other_bytes(content, rng):
    """A few bytes replaced, a piece removed, or one repeated."""
    changed, place = bytearray(content), rng.randint(max(1, len(content)))
    if rng.randint(4) == 0:
        piece = slice(place, place + rng.randint(1, 40))
        changed[piece] = changed[piece] * rng.choice([0, 2, 50])
        return bytes(changed)
    for at in rng.randint(len(content), size=rng.randint(1, 6)):
        changed[at] = rng.choice([0, 1, 127, 128, 255, rng.randint(256)])
    return bytes(changed)


def with_other_fields(model, rng):
    """One to four fields of a model replaced, removed or repeated."""
    for _ in range(rng.randint(1, 5)):
        message, field, value = _places(model)[rng.randint(len(_places(model)))]
        changed = _other(field, value, rng)
        try:
            if rng.randint(8) == 0:
                message.ClearField(field.name)
            elif isinstance(value, (Message, str, bytes, int, float)):
                if changed is not None:
                    setattr(message, field.name, changed)
            elif len(value) and rng.randint(2):
                value.extend([value[rng.randint(len(value))]] * rng.choice([1, 3, 70]))
            elif len(value) and field.message_type is None:
                value[rng.randint(len(value))] = changed
            elif len(value):
                del value[rng.randint(len(value))]
        except (ValueError, TypeError):  # what protobuf does not hold
            continue
    return model.SerializeToString()


def _places(model):
    """All fields that are set, as (message, field, value)."""
    stack, found = [model], []
    while stack:
        message = stack.pop()
        for field, value in message.ListFields():
            found.append((message, field, value))
            if field.message_type is not None:
                stack += [value] if isinstance(value, Message) else list(value)
    return found


def _other(field, value, rng):
    """Another value of a field's type; None for messages."""
    if field.message_type is not None:
        return None
    if field.name == "op_type":
        return KINDS[rng.randint(len(KINDS))]
    if field.type == field.TYPE_STRING:
        return TEXTS[rng.randint(len(TEXTS))]
    if field.type == field.TYPE_BYTES:
        return rng.bytes(rng.choice([0, 1, 7, 8, 96]))
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return float(rng.choice([0.0, -1.0, 1e308, np.nan, np.inf, 1e-320]))
    return NUMBERS[rng.randint(len(NUMBERS))]


def with_another_header(content, rng):
    """A safetensors file with an entry of its header replaced."""
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    name = sorted(header)[rng.randint(len(header))]
    entry = header[name]
    key = sorted(entry)[rng.randint(len(entry))]
    values = [*NUMBERS, *TEXTS, [], [2**62, 4], [0, 0], [-1, -1], None, {}, "F16", "BF16", "C64", "partly_linear(" * 50]
    entry[key] = values[rng.randint(len(values))]
    written = json.dumps(header).encode()
    return struct.pack("<Q", len(written)) + written + content[8 + size :]


def fuzzed(seed, rounds=0):
    """Name and content of the file of a seed, the one of this round."""
    rng, kind = np.random.RandomState([seed, rounds]), seed % 5
    if kind == 4:
        lines = [",".join(f"{v:.6g}" for v in row) for row in rng.standard_normal((5, 4))]
        return "bytes.csv", with_other_bytes("\n".join(["a,b,c,d", *lines][rng.randint(2) :]).encode(), rng)
    if kind >= 2:
        path = Path(tempfile.gettempdir()) / f"fuzzed-{os.getpid()}.safetensors"
        networks(rng).save(path)
        change = with_other_bytes if kind == 2 else with_another_header
        return f"{change.__name__}.safetensors", change(path.read_bytes(), rng)
    while True:
        try:
            model = convolutional(rng) if rng.randint(2) else networks(rng).to_onnx(dtype="float32")
            break
        except ValueError:  # an activation that ONNX does not have in these operators
            continue
    if kind == 0:
        return "with_other_bytes.onnx", with_other_bytes(model.SerializeToString(), rng)
    return "with_other_fields.onnx", with_other_fields(model, rng)


def query(path):
    """Outputs of an ONNX model at three rows."""
    return Oracle(str(path), 4).query_inputs(np.zeros((3, 4)))


def outcome(reader, path):
    """How a reading ended, and its processor time."""
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, HUNG)
    try:
        reader(path)
        ended = "read"
    except ValueError:
        ended = "refused"
    except BaseException as error:  # what is counted here
        ended = f"{type(error).__name__}: {error}"[:300]
    signal.setitimer(signal.ITIMER_PROF, 0)
    return {"ended": ended, "seconds": time.process_time() - began}


def _late(*_):
    raise TimeoutError("hung")


def main(first, last, rounds=0):
    """Read files and print how each ended, after the limits are set."""
    sys.path.insert(0, str(FOLDER.parent))
    from tests.network.hostile_files import CRAFTED

    torch.set_num_threads(1)
    readers = {".onnx": [FeedforwardNetwork.from_onnx, query], ".safetensors": [FeedforwardNetwork.load]}
    readers[".csv"] = [read_table]
    with tempfile.TemporaryDirectory() as folder:
        convolution = Path(folder) / "first.onnx"
        convolution.write_bytes(convolutional(np.random.RandomState(0)).SerializeToString())
        outcome(query, convolution)  # imports the runtime
        used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        signal.signal(signal.SIGPROF, _late)
        crafted = first == "crafted"
        seeds = [] if crafted else range(int(first), int(last))
        files = CRAFTED.items() if crafted else ((seed, fuzzed(seed, int(rounds))) for seed in seeds)
        for index, file in files:
            file = (index, file) if crafted else file
            path = Path(folder) / f"file{Path(file[0]).suffix}"
            path.write_bytes(file[1])
            for reader in readers[path.suffix][: 1 if crafted else 2]:
                what = {"index": index, "file": file[0], "reader": reader.__name__}
                print(json.dumps(what | outcome(reader, path)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
