"""Unusual environments: no torch, no home, a terminal without UTF-8, a notebook without ipywidgets."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import skident

TOP = Path(__file__).parents[1]
ROOT = Path(skident.__file__).parent
EXAMPLE = re.search(r"```python\n(.*?)```", (TOP / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)[1]
WITHOUT_TORCH = """
import sys

class Barred:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Barred())
import skident
print(skident.__version__, skident.linalg.n_symmetric_entries(3, 2))
try:
    skident.saddle.BiasFreeMLP
except ModuleNotFoundError as error:
    print(error)
"""
IN_A_NOTEBOOK = """
import sys
import numpy as np
from skident import NetworkIdentifier
from skident.datasets import make_network

assert not any(name.startswith("tqdm") for name in sys.modules)
network = make_network((3, 4, 1), output_activation="identity", random_state=0)
X = np.random.default_rng(0).standard_normal((100, 3))
identifier = NetworkIdentifier(network, random_state=0, verbose=1).fit(X)
assert not {"tqdm.auto", "tqdm.autonotebook", "tqdm.notebook", "ipywidgets"} & set(sys.modules)
print(identifier.report_._repr_html_()[:1])
"""
BARE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii:strict"}


def run(code, *options, **changed):
    """What a process prints that runs this code."""
    environment = {**os.environ, "PYTHONPATH": str(TOP), **changed}
    command = [sys.executable, *options, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    return ended


def test_without_torch_the_package_loads_and_names_what_is_missing():
    lines = run(WITHOUT_TORCH).stdout.splitlines()
    assert lines[0] == f"{skident.__version__} 6" and "No module named 'torch" in lines[1]


def test_a_home_that_cannot_be_written_and_a_terminal_without_utf8():
    code = EXAMPLE + "print(identifier.report_)\nprint(identifier.report_._repr_html_().encode().isascii())\n"
    printed = run(code, "-W", "error", HOME="/proc/none", **BARE).stdout
    assert "exact: True" in printed and printed.isascii() and printed.endswith("True\n")


@pytest.mark.parametrize("command", [["--help"], ["identify", "--help"], ["audit", "--help"], ["compress", "--help"]])
def test_the_command_line_prints_ascii(command):
    code = f"from skident.cli import main\ntry: main({command})\nexcept SystemExit as end: assert end.code == 0"
    assert len(run(code, **BARE).stdout) > 200


def test_progress_needs_no_widgets_and_stays_on_a_line_per_stage():
    ended = run(IN_A_NOTEBOOK, "-W", "error")
    assert ended.stdout == "<\n"
    kept = [line for line in ended.stderr.split("\n") if " s, " in line]
    assert len(kept) == len({line.partition(":")[0] for line in kept}) >= 3


def test_nothing_must_be_compiled():
    assert [path for path in ROOT.rglob("*") if path.suffix in (".c", ".cpp", ".pyx", ".f90", ".so", ".pyd")] == []


def test_an_older_python_is_refused_by_the_installer():
    from packaging.specifiers import SpecifierSet

    needed = re.search(r'requires-python = "(.*)"', (TOP / "pyproject.toml").read_text(encoding="utf-8"))[1]
    assert "3.10" not in SpecifierSet(needed) and "3.11" in SpecifierSet(needed)


def test_an_older_python_is_named_when_a_checkout_is_imported(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with pytest.raises(ImportError, match=r"skident needs Python 3\.11 or newer, got "):
        exec(compile((ROOT / "__init__.py").read_text(encoding="utf-8"), "skident", "exec"), {"__name__": "older"})


NOTEBOOK = [
    "import numpy as np\nfrom skident import NetworkIdentifier\nfrom skident.datasets import make_network",
    "network = make_network((3, 4, 1), output_activation='identity', random_state=0)\n"
    "X = np.random.default_rng(0).standard_normal((100, 3))\n"
    "identifier = NetworkIdentifier(network, random_state=0).fit(X)",
    "identifier.report_",
]


def test_the_first_notebook_has_a_report_and_no_warning():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in NOTEBOOK])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = [cell.outputs for cell in notebook.cells]
    assert outputs[:2] == [[], []]
    assert "text/html" in outputs[2][0].data and "exact" in outputs[2][0].data["text/html"]
