"""``skident export`` and ``skident labels`` on files."""

import json

import numpy as np
import pytest

from skident.cli import main
from skident.datasets import make_network
from skident.network import FeedforwardNetwork

pytest.importorskip("onnx")
NETWORK = make_network((3, 4, 1), activation="relu", output_activation="identity", random_state=0)
X = np.random.default_rng(0).standard_normal((200, 3))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a network and data, the current one."""
    monkeypatch.chdir(tmp_path)
    NETWORK.save("network.safetensors")
    np.savetxt("X.csv", X, delimiter=",")
    return tmp_path


def test_networks_are_exported_there_and_back(folder, capsys):
    assert main(["export", "network.safetensors", "--output", "network.onnx"]) == 0
    assert "written: network.onnx" in capsys.readouterr().out
    assert main(["export", "network.onnx", "--output", "again.safetensors", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layer_widths"] == [4, 1]
    modes = {path.stat().st_mode for path in (folder / "X.csv", folder / "again.safetensors", folder / "network.onnx")}
    assert len(modes) == 1
    np.testing.assert_array_equal(FeedforwardNetwork.load("again.safetensors")(X), NETWORK(X))


def test_networks_are_exported_as_source(folder):
    assert main(["export", "network.safetensors", "--output", "network.py", "--quiet"]) == 0
    assert main(["export", "network.safetensors", "--output", "network.c", "--quiet"]) == 0
    names = {}
    exec((folder / "network.py").read_text(), names)
    np.testing.assert_allclose([names["network"](row) for row in X[:5].tolist()], NETWORK(X[:5]), rtol=1e-14)
    assert "void network" in (folder / "network.c").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent.onnx", "--output", "new.safetensors"], "absent.onnx"),
        (["network.safetensors", "--output", "new.pkl"], "must end in .safetensors or .onnx or .c or .py"),
        (["network.safetensors", "--output", "nowhere/new.onnx"], "no folder nowhere"),
    ],
)
def test_what_cannot_be_exported_is_said(folder, capsys, arguments, words):
    assert main(["export", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_classifier_is_recovered_from_its_labels(folder, capsys):
    network = make_network((10, 8, 1), activation="relu", output_activation="identity", random_state=0)
    network.save("classifier.safetensors")
    np.savetxt("rows.csv", np.random.default_rng(0).standard_normal((200, 10)), delimiter=",")
    code = main(["labels", "classifier.safetensors", "--data", "rows.csv", "--output", "found.safetensors", "--quiet"])
    assert code == 0, capsys.readouterr().out
    found = FeedforwardNetwork.load("found.safetensors")
    rows = np.random.default_rng(1).standard_normal((2000, 10))
    outputs = found(rows)
    guessed = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    assert np.mean(guessed == (network(rows)[:, 0] > 0)) > 0.999


def test_labels_of_a_model_without_a_boundary_are_refused(folder, capsys):
    make_network((3, 4, 1), output_activation="sigmoid", random_state=0).save("positive.safetensors")
    assert main(["labels", "positive.safetensors", "--data", "X.csv", "--quiet"]) == 2
    assert "label" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["identify"], ["labels"], ["audit", "network.onnx"]])
def test_a_table_with_a_column_too_many_is_blamed_itself(folder, capsys, command):
    name, *reference = command
    NETWORK.to_onnx("network.onnx")
    np.savetxt("wide.csv", np.column_stack([X, X[:, 0]]), delimiter=",")
    assert main([name, "network.onnx", *reference, "--data", "wide.csv"]) == 2
    assert "wide.csv has 4 columns, but the model has 3 inputs" in capsys.readouterr().err
