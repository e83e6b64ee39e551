"""The three commands on real files: how they end, what they print where, and what they write."""

import json
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from skl2onnx import to_onnx
from sklearn.neural_network import MLPClassifier

import skident
from skident.cli import main
from skident.cli.tables import read_table
from skident.datasets import make_network
from skident.metrics import parameter_error
from skident.network import FeedforwardNetwork

# -- commands ----------------------------------------------------------------------------------------------------------


TOP = Path(skident.__file__).parents[1]
NETWORK = make_network((4, 5, 2), bias_scale=0.5, output_activation="identity", random_state=0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with models and data, the current one."""
    monkeypatch.chdir(tmp_path)
    NETWORK.to_onnx("model.onnx")
    NETWORK.to_onnx("single.onnx", dtype="float32")
    NETWORK.save("reference.safetensors")
    weights = [W.copy() for W in NETWORK.weights]
    weights[0][2, 3] *= 1.0 + 1e-6
    NETWORK.with_parameters(weights, NETWORK.biases).to_onnx("changed.onnx")
    X = np.random.RandomState(0).standard_normal((100, 4))
    np.savetxt("X.csv", X, delimiter=",", header="age,bmi,bp,s1", comments="")
    return tmp_path


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Texts(HTMLParser):
    """All text of a page."""

    def __init__(self, page):
        super().__init__()
        self.texts = []
        self.feed(page)

    def handle_data(self, data):
        self.texts.append(data)


# -- identify ----------------------------------------------------------------------------------------------------------


def test_identify(folder, capsys):
    arguments = "identify model.onnx --data X.csv --widths auto --activation tanh --output found.safetensors"
    assert main([*arguments.split(), "--report", "report.html"]) == 0
    printed = capsys.readouterr()
    found = FeedforwardNetwork.load("found.safetensors")
    assert parameter_error(NETWORK, found) < 1e-9
    assert printed.out.startswith("FeedforwardNetwork(4 -> 5 -> 2, tanh, output identity)\nlayer")
    assert re.search(r"^exact: relative maximum error .*e-1\d on", printed.out, flags=re.MULTILINE)
    assert "first layer (saturation): 5 of 5 units" in printed.err and "queries" not in printed.err.splitlines()[0]
    texts = "".join(Texts((folder / "report.html").read_text(encoding="utf-8")).texts)
    assert "model.onnx, identified" in texts and "total" in texts and "bmi" in texts
    assert f"{found.weights[1][0, 0]:.6f}"[:7] in texts


def test_identify_as_json_in_single_precision(folder, capsys):
    """As close as single precision lets one see: identified, with a remark, and written as ONNX."""
    assert main("identify single.onnx --data X.csv --widths 5,2 --json --output found.onnx".split()) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result["command"] == "identify" and result["identified"] and result["written"] == "found.onnx"
    assert result["layer_widths"] == [5, 2] and result["report"]["exact"] is False
    assert "the outputs carry noise or rounding" in result["warning"] and result["warning"] in printed.err
    assert parameter_error(NETWORK, FeedforwardNetwork.from_onnx("found.onnx")) < 1e-3


def test_what_is_not_identified_is_not_written(folder, capsys):
    before = files(folder)
    arguments = "identify model.onnx --data X.csv --activation sin --widths 5,2 --output found.onnx --max-seconds 20"
    assert main([*arguments.split(), "--report", "report.html"]) == 2
    assert "tanh" in capsys.readouterr().err and files(folder) == before


def test_an_input_range_is_kept(folder, capsys):
    command = "identify model.onnx --data X.csv --widths 5,2 --input-range -9 9.5 --json --quiet"
    assert main(command.split()) == 0
    low, high = json.loads(capsys.readouterr().out)["report"]["checked_range"]
    assert min(low) >= -9 and max(high) <= 9.5
    assert main("identify model.onnx --data X.csv --input-range 30 40 --quiet".split()) == 2
    assert "input_range" in capsys.readouterr().err


def test_a_budget_that_ends_before_anything_is_found(folder, capsys):
    assert main("identify model.onnx --data X.csv --max-queries 250 --json --quiet".split()) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["identified"] is False and printed.err == ""


def test_a_classifier(folder, capsys):
    X = np.loadtxt("X.csv", delimiter=",", skiprows=1)
    mlp = MLPClassifier((3,), activation="tanh", solver="lbfgs", alpha=0.1, max_iter=1000, random_state=0)
    labels = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.0])
    model = to_onnx(mlp.fit(X, labels), X[:1], options={"zipmap": False})
    onnx.save(model, "classifier.onnx")
    assert main("identify classifier.onnx --data X.csv".split()) == 2
    assert "is a classifier: its outputs are" in (error := capsys.readouterr().err)
    assert "use --response='predict_proba'" in error
    command = "identify classifier.onnx --data X.csv --response predict_proba --widths 3,3 --output logits.safetensors"
    assert main(command.split()) == 0
    assert main("audit classifier.onnx logits.safetensors --data X.csv --response predict_proba".split()) == 0


# -- audit -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["model.onnx", "single.onnx", "reference.safetensors"])
@pytest.mark.parametrize("reference", ["reference.safetensors", "model.onnx"])
def test_audit_of_the_same(model, reference, folder, capsys):
    assert main(["audit", model, reference, "--data", "X.csv"]) == 0
    assert capsys.readouterr().out.startswith("the same: ")


def test_audit_of_a_changed_one(folder, capsys):
    assert main("audit changed.onnx reference.safetensors --data X.csv".split()) == 1
    assert "weights[0][2, 3]: " in capsys.readouterr().out
    assert main("audit changed.onnx reference.safetensors --data X.csv --json".split()) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["same"] is False and result["differences"][0]["name"] == "weights[0][2, 3]"
    assert main("audit changed.onnx reference.safetensors --data X.csv --tol 1e-3".split()) == 0


def test_audit_of_a_quantized_file(folder, capsys):
    quantization = pytest.importorskip("onnxruntime.quantization")
    quantization.quantize_dynamic("single.onnx", "int8.onnx", weight_type=quantization.QuantType.QInt8)
    assert main("audit int8.onnx single.onnx --data X.csv".split()) == 1
    assert "the quantized reference (int8 weights" in capsys.readouterr().out
    (folder / "copy.onnx").write_bytes((folder / "int8.onnx").read_bytes())
    assert main("audit copy.onnx int8.onnx --data X.csv --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "identical files"
    assert main("audit single.onnx int8.onnx --data X.csv".split()) == 2  # whose weights cannot be read
    assert "cannot read node" in capsys.readouterr().err


def test_audit_of_what_was_identified(folder, capsys):
    """In double precision, from a file in single precision."""
    assert main("identify single.onnx --data X.csv --widths 5,2 --output got.onnx --quiet".split()) == 0
    capsys.readouterr()
    assert main("audit got.onnx single.onnx --data X.csv".split()) == 0
    assert "outputs: float32" in capsys.readouterr().out


@pytest.mark.parametrize("tol", ["0", "-1", "nan", "inf"])
def test_refused_tolerances(folder, capsys, tol):
    assert main(f"audit model.onnx reference.safetensors --data X.csv --tol={tol}".split()) == 2
    assert "tol must be positive and finite" in capsys.readouterr().err


def test_an_undecided_audit(folder, capsys):
    """Outputs rounded to integers; the call that is recommended runs and decides."""
    model = onnx.load("model.onnx")
    model.graph.node[-1].output[0] = "values"
    model.graph.node.append(onnx.helper.make_node("Round", ["values"], ["Y"]))
    onnx.save(model, "rounded.onnx")
    audit = "audit rounded.onnx reference.safetensors --data X.csv"
    assert main([*audit.split(), "--json"]) == 3
    result = json.loads(capsys.readouterr().out)
    assert result["same"] is None and result["verdict"] == "undecided"
    assert main(audit.split()) == 3
    tolerance = re.search(r"set (--tol \S+) if", capsys.readouterr().out)[1]
    assert main([*audit.split(), *tolerance.split()]) == 0


# -- compress ----------------------------------------------------------------------------------------------------------


def test_compress(folder, capsys):
    weights, biases = ([a.copy() for a in part] for part in (NETWORK.weights, NETWORK.biases))
    weights[0][:, 1], biases[0][1] = weights[0][:, 0], biases[0][0]  # a unit that is there twice
    NETWORK.with_parameters(weights, biases).to_onnx("wide.onnx")
    assert main("compress wide.onnx --data X.csv --tol 1e-6 --output small.safetensors".split()) == 0
    printed = capsys.readouterr()
    assert FeedforwardNetwork.load("small.safetensors").layer_widths == (4, 2)
    assert "smaller: 37 parameters before, 30 now; error" in printed.out and "widths (4, 2)" in printed.err
    assert main("compress small.safetensors --data X.csv --tol 1e-9 --json --quiet --output same.onnx".split()) == 1
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result["smaller"] is False and result["n_parameters"] == result["n_parameters_before"] == 30
    assert FeedforwardNetwork.from_onnx("same.onnx").layer_widths == (4, 2) and printed.err == ""


# -- bad input ---------------------------------------------------------------------------------------------------------


def write_bad_files(folder):
    (folder / "truncated.onnx").write_bytes((folder / "model.onnx").read_bytes()[:200])
    (folder / "pickle.onnx").write_bytes(b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR.")
    (folder / "text.safetensors").write_text("no network", encoding="utf-8")
    (folder / "bad.csv").write_text("age,bmi,bp,s1\n1,2,3,4\n1,2,n/a,4\n", encoding="utf-8")
    (folder / "wide.csv").write_text("1,2,3,4,5\n2,3,4,5,6\n", encoding="utf-8")
    model = onnx.load(folder / "model.onnx")
    tensor = model.graph.initializer[0]
    (folder.parent / "weights.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../weights.bin")
    (folder / "outside.onnx").write_bytes(model.SerializeToString())
    model = onnx.load(folder / "model.onnx")
    model.graph.node[1].domain = "com.example"
    model.opset_import.add(domain="com.example", version=1)
    onnx.save(model, folder / "custom.onnx")
    model = onnx.load(folder / "model.onnx")
    del model.graph.input[0].type.tensor_type.shape.dim[0]
    (folder / "one-row.onnx").write_bytes(model.SerializeToString())


REFUSED = [
    ("identify outside.onnx --data X.csv", "outside of the model's folder; refused, and nothing of it read"),
    ("identify truncated.onnx --data X.csv", "truncated.onnx is no ONNX model, or truncated"),
    ("identify pickle.onnx --data X.csv", "pickle.onnx is no ONNX model, or truncated"),
    ("identify custom.onnx --data X.csv", "onnxruntime cannot run custom.onnx"),
    ("identify one-row.onnx --data X.csv", "onnxruntime cannot run one-row.onnx: .* expected to have rank 2"),
    ("audit model.onnx one-row.onnx --data X.csv", r"cannot read node .* \(Gemm\): its rows have no batch axis"),
    ("identify model.pkl --data X.csv", "model.pkl must end in .safetensors or .onnx or .nnet"),
    ("identify missing.onnx --data X.csv", "there is no file missing.onnx"),
    ("identify model.onnx --data bad.csv", r"bad.csv, line 3, column 3 \(bp\): 'n/a' is not a finite number"),
    ("identify model.onnx --data wide.csv", "wide.csv has 5 columns, but the model has 4 inputs"),
    ("identify model.onnx --data missing.csv", "No such file or directory: 'missing.csv'"),
    (
        "identify model.onnx --data X.csv --activation nothing",
        "The 'activation' parameter of NetworkIdentifier must be",
    ),
    ("identify model.onnx --data X.csv --widths 5", r"write layer_widths=\(5, 2\)"),
    ("identify model.onnx --data X.csv --output found.pkl", "found.pkl must end in .safetensors or .onnx"),
    ("identify model.onnx --data X.csv --output no/found.onnx", "there is no folder no for found.onnx"),
    ("identify model.onnx --data X.csv --report report.pdf", "report.pdf must end in .html or .htm"),
    ("audit custom.onnx reference.safetensors --data X.csv", "onnxruntime cannot run custom.onnx"),
    ("audit model.onnx custom.onnx --data X.csv", "com.example.Tanh is a custom operator, not one of ONNX's own"),
    ("audit model.onnx text.safetensors --data X.csv", "text.safetensors is not a safetensors file, or damaged"),
    ("audit model.onnx outside.onnx --data X.csv", "outside of the model's folder; refused"),
    ("audit model.onnx reference.safetensors --data wide.csv", "wide.csv has 5 columns, but the model has 4 inputs"),
    ("compress outside.onnx --data X.csv --output small.onnx", "outside of the model's folder; refused"),
    ("compress model.onnx --data X.csv --tol -1", "The 'tol' parameter of NetworkCompressor must be"),
    ("compress model.onnx --data X.csv --max-seconds 0", "The 'max_seconds' parameter of NetworkCompressor must be"),
]


@pytest.mark.parametrize(("command", "message"), REFUSED)
def test_refused(command, message, folder, capsys):
    """One line of error, code 2, and nothing written."""
    write_bad_files(folder)
    before = files(folder)
    assert main([*command.split(), "--quiet"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and re.match(rf"skident {command.split()[0]}: error: .*{message}", printed.err)
    assert files(folder) == before


def code_of_exit(arguments):
    """With which code argparse ends the process."""
    try:
        main(arguments)
    except SystemExit as end:
        return end.code
    return None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["identify", "model.onnx"], "the following arguments are required: --data"),
        (
            ["identify", "model.onnx", "--data", "X.csv", "--widths", "5;1"],
            "expected auto or numbers separated by commas",
        ),
        (["identify", "model.onnx", "--data", "X.csv", "--input-range", "1"], "--input-range: expected 2 arguments"),
        (["compress", "model.onnx", "--data", "X.csv", "--metric", "none"], "invalid choice: 'none'"),
    ],
)
def test_arguments_that_are_none(arguments, message, capsys):
    assert code_of_exit(arguments) == 2 and message in capsys.readouterr().err


def test_help_names_the_exit_codes(capsys):
    assert code_of_exit(["--help"]) == 0 and "exit codes: 0 the same" in (text := capsys.readouterr().out)
    assert "3 undecided (audit)" in text


def test_version(capsys):
    assert code_of_exit(["--version"]) == 0 and capsys.readouterr().out == f"skident {skident.__version__}\n"


# -- as a process ------------------------------------------------------------------------------------------------------


def test_as_a_process(folder):
    command = "audit changed.onnx reference.safetensors --data X.csv --json"
    path = {"PYTHONPATH": str(TOP), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "skident", *command.split()], cwd=folder, capture_output=True, text=True, env=path
    )
    assert done.returncode == 1 and json.loads(done.stdout)["same"] is False and done.stderr == ""


def test_the_entry_point_leads_here():
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"skident": f"{main.__module__.rpartition('.')[0]}:main"}


# -- tables ------------------------------------------------------------------------------------------------------------


def written(folder, text, encoding="utf-8"):
    path = folder / "X.csv"
    path.write_text(text, encoding=encoding)
    return path


READABLE = [
    ("1,2\n3,4\n", None),
    ("a,b\n1,2\n3,4\n", ["a", "b"]),
    ("a;b\r\n1;2\r\n\r\n3;4", ["a", "b"]),
    ("1\t2\n3\t4\n\n", None),
    ("x 1 , y|z\n1, 2\n3 ,4e0\n", ["x 1", "y|z"]),
    ('"a, b","c"\n1,2\n3,4\n', ["a, b", "c"]),
    ("\ufeff1,2\n3,4\n", None),
    ("1,b\n1,2\n3,4\n", ["1", "b"]),
]


@pytest.mark.parametrize(("text", "names"), READABLE)
def test_read(text, names, tmp_path):
    X, found = read_table(written(tmp_path, text), 2)
    np.testing.assert_array_equal(X, [[1.0, 2.0], [3.0, 4.0]])
    assert found == names


UNREADABLE = [
    ("a,b\n1_000,2\n", "line 2, column 1 .a.: '1_000' is not a finite number"),
    ("1_000,2\n3,4\n", "line 1: '1_000' may be a name or a number; begin names with a letter"),
    ("a,b\n1,2\n3,x\n", r"X.csv, line 3, column 2 \(b\): 'x' is not a finite number"),
    ("1,2\n3,\n", "line 2, column 2: '' is not a finite number"),
    ("1,2\nnan,3\n", "line 2, column 1: 'nan' is not a finite number"),
    ("1,2\n3,inf\n", "line 2, column 2: 'inf' is not a finite number"),
    ("1,2\n\n3\n", "X.csv, line 3: 1 cells, but 2 columns"),
    ("1;2\n3,5;4\n", "line 2, column 1: '3,5' is not a finite number"),
    ("a,b\n", "X.csv has a header but no rows"),
    ("", "X.csv has no rows"),
    ("\n \n", "X.csv has no rows"),
    ("1,2,3\n4,5,6\n", "X.csv has 3 columns, but the model has 2 inputs"),
]


@pytest.mark.parametrize(("text", "message"), UNREADABLE)
def test_refused_tables(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_table(written(tmp_path, text), 2)


@pytest.mark.parametrize("n_columns", [1, 2, 4])
def test_a_header_of_numbers(n_columns, tmp_path):
    """As pandas writes columns without names: read as a header, with a warning; the row that it suggests is a row."""
    numbers, row = ([str(i) for i in range(n_columns)], ",".join(["0.5"] * n_columns))
    with pytest.warns(UserWarning, match="numbers the columns and is read as a header.* with decimals") as caught:
        X, names = read_table(written(tmp_path, f"{','.join(numbers)}\n{row}\n"))
    assert X.shape == (1, n_columns) and names == numbers
    start = re.search(r"such as ([\d.,]+)\.$", str(caught[0].message))[1]
    decimals = ",".join(f"{i}.0" for i in range(n_columns))
    assert decimals.startswith(start)
    X, names = read_table(written(tmp_path, f"{decimals}\n{row}\n"))
    assert X.shape == (2, n_columns) and names is None


def test_a_header_of_numbers_is_reported_on_stderr(folder, capsys):
    np.savetxt("X.csv", np.random.RandomState(0).standard_normal((30, 4)), delimiter=",", header="0,1,2,3", comments="")
    assert main("audit model.onnx reference.safetensors --data X.csv --quiet".split()) == 0
    assert re.match("skident audit: X.csv: the first row numbers the columns", capsys.readouterr().err)


def test_help_defines_the_error_of_a_compression(capsys):
    assert code_of_exit(["compress", "--help"]) == 0
    assert "largest root mean square error" in " ".join(capsys.readouterr().out.split())


def test_other_files(tmp_path):
    with pytest.raises(ValueError, match="is not a CSV file in UTF-8"):
        read_table(written(tmp_path, "\u00e9,b\n1,2\n", encoding="latin-1"))
    with pytest.raises(FileNotFoundError, match="missing.csv"):
        read_table(tmp_path / "missing.csv")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        read_table(tmp_path)
