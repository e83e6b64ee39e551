"""Every benchmark can be imported, has a quick version, and looks at the results only when it is not quick."""

import importlib
import sys
import types
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
SCRIPTS = [name for name in NAMES if name.startswith("bench_")]


@pytest.fixture
def load(monkeypatch):
    """Imports a file of the benchmarks, which import each other by their plain names."""
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", NAMES)
def test_imports(name, load):
    assert Path(load(name).__file__).parent == FOLDER


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_part_can_be_run_and_shown(name, load):
    module = load(name)
    for part in getattr(module, "PARTS", {name: module}).values():
        assert callable(part.run) and callable(part.tables)


@pytest.mark.parametrize("quick", [True, False])
def test_quick_writes_nothing(quick, load, monkeypatch, tmp_path, capsys):
    common = load("_common")
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench_one.py", *(["--quick"] if quick else [])])
    part = types.SimpleNamespace(run=lambda trials, quick: {"rows": [[1, quick]]}, tables=lambda result: str(result))
    common.run_parts("one", {"part": part}, "One?")
    assert f"'rows': [[1, {quick}]]" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ([] if quick else ["one.json"])


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_the_common_command_line(name):
    """`run_parts` is what gives it ``--quick``, and a script's parts must take it."""
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert source.rstrip().splitlines()[-1].strip().startswith("run_parts(") and "--quick" in source.split('"""')[1]


def test_the_report_shows_the_results_as_they_are(load):
    report = load("report")
    text = report.README.read_text(encoding="utf-8")
    assert report.render(text) == text
