"""Files that attack a reader are refused, whatever is in them, before they take memory."""

import os
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest

from skident.cli import main
from skident.cli.tables import read_table
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle
from tests.network import hostile_files
from tests.network.hostile_files import CRAFTED, ONNX, PLAIN, hidden, image_step, onnx_file, outputs, tensors_file

MEMORY = 2**30  # bytes
LONGEST_MESSAGE = 2000  # letters: no message repeats a file


def read(path):
    return FeedforwardNetwork.from_onnx(path) if path.suffix == ".onnx" else FeedforwardNetwork.load(path)


def query(path):
    return Oracle(str(path), 4).query_inputs(np.zeros((3, 4)))


@pytest.fixture
def folder(tmp_path):
    """A folder with what external data may point to."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("link")
    (tmp_path / "weights.bin").write_bytes(b"\0" * 96)
    return tmp_path


def refused(reader, path):
    """The message of a ValueError, after checking what it took to get there."""
    tracemalloc.start()
    try:
        reader(path)
        message = ""
    except ValueError as error:
        message = str(error)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert 20 < len(message) < LONGEST_MESSAGE
    return message


@pytest.mark.parametrize("name", CRAFTED)
def test_refused(name, folder):
    path = folder / f"file{Path(name).suffix}"
    path.write_bytes(CRAFTED[name])
    message = refused(read, path)
    assert "Field 'shape'" not in message  # which would refuse every model of the table


CONTROLS = {
    "onnx": {
        "plain": onnx_file(PLAIN),
        "a convolution": image_step("Conv", "xK", pads=[1] * 4),
        "pooling": image_step("AveragePool", kernel_shape=[2, 2]),
        "numbers in another file": hostile_files.external(location="weights.bin"),
    },
    "safetensors": {
        "plain": tensors_file(),
        "one linear unit": hidden("partly_linear(tanh, 1)"),
        "two levels": hidden("partly_linear(partly_linear(leaky_relu(0.5), 1), 1)"),
        "one bound": outputs("clip[[0.0], [Infinity]]"),
        "a table": hidden("partly_linear(tabulated[[0, 1, 2], [1, 2], [0.0, 1], [0]], 1)"),
        "two bounds": outputs("clip[[0.0, 1], [2.0, 3.0]]"),
    },
}


@pytest.mark.parametrize(("suffix", "name"), [(suffix, name) for suffix in CONTROLS for name in CONTROLS[suffix]])
def test_their_relatives_are_read(suffix, name, folder):
    path = folder / f"file.{suffix}"
    path.write_bytes(CONTROLS[suffix][name])
    assert read(path).n_parameters > 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("loop", "is a Loop, which need not end; it is not run"),
        ("conv, pads of 5,000", "more than 2\\^26 entries"),
        ("conv, inputs of 2^20 x 2^20", "more than 2\\^26 entries"),
        ("constant of shape", "more than 2\\^26 entries"),
        ("tile", "more than 2\\^26 entries"),
        ("a cycle of two nodes", "onnxruntime cannot run"),
        ("operator named by 10^6 letters", "onnxruntime cannot run"),
        ("tensor of type 91", "onnxruntime cannot run"),
    ],
)
def test_models_that_are_not_run(name, message, folder):
    path = folder / "file.onnx"
    path.write_bytes(ONNX[name])
    with pytest.raises(ValueError, match=message):
        query(path)
    refused(query, path)


def test_models_in_memory_are_refused_alike():
    said = {"conv, pads of 5,000": "more than 2.25", "tensor of complex numbers": "has dtype complex128"}
    said |= {"loop": "a loop or branch has no fixed layers", "a cycle of two nodes": "topologically sorted"}
    for name, message in said.items():
        with pytest.raises(ValueError, match=message):
            FeedforwardNetwork.from_onnx(onnx.load_from_string(ONNX[name]))


NETWORK = FeedforwardNetwork([[[1.0]], [[2.0]]], [[0.0], [0.5]])
PIPES = {
    "from_onnx": FeedforwardNetwork.from_onnx,
    "load": FeedforwardNetwork.load,
    "query": query,
    "read_table": read_table,
    "save": NETWORK.save,
    "to_onnx": NETWORK.to_onnx,
}


@pytest.mark.parametrize("reader", PIPES.values(), ids=PIPES)
def test_pipes_and_devices_are_not_opened(reader, tmp_path):
    pipe, zeros = tmp_path / "pipe.onnx", tmp_path / "zeros.onnx"
    os.mkfifo(pipe)
    zeros.symlink_to("/dev/zero")
    for path in (pipe, zeros):
        with pytest.raises(ValueError, match="is a pipe or a device, not a file"):
            reader(path)


@pytest.mark.parametrize(
    "command",
    [
        "identify pipe.onnx --data X.csv",
        "identify net.onnx --data pipe.onnx",
        "identify net.onnx --data X.csv --report pipe.html",
        "audit net.onnx pipe.onnx --data X.csv",
        "audit pipe.safetensors net.onnx --data X.csv",
        "compress net.onnx --data X.csv --output pipe.onnx",
        "export net.onnx --output pipe.safetensors",
        "labels pipe.onnx --data X.csv",
    ],
)
def test_commands_open_no_pipes(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    NETWORK.to_onnx("net.onnx")
    (tmp_path / "X.csv").write_text("a\n0.5\n1.5\n", encoding="utf-8")
    for suffix in ("onnx", "safetensors", "html"):
        os.mkfifo(f"pipe.{suffix}")
    assert main(command.split()) == 2
    assert "is a pipe or a device, not a file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["loop", "conv, pads of 5,000", "tensor of type 91", "external, a pipe"])
@pytest.mark.parametrize("command", ["identify", "audit", "compress", "export", "labels"])
def test_commands_refuse_hostile_models(command, name, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "file.onnx").write_bytes(ONNX[name])
    NETWORK.save("net.safetensors")
    (folder / "X.csv").write_text("a\n0.5\n1.5\n", encoding="utf-8")
    behind = {"audit": ["net.safetensors"], "export": ["--output", "out.onnx"]}.get(command, [])
    data = [] if command == "export" else ["--data", "X.csv"]
    assert main([command, "file.onnx", *behind, *data]) == 2
    assert capsys.readouterr().err.startswith(f"skident {command}: error: ")
