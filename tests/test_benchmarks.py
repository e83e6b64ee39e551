"""Every benchmark can be imported, has a quick version, and looks at the results only when it is not quick."""

import importlib
import re
import sys
import types
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(".".join(path.relative_to(FOLDER).with_suffix("").parts) for path in FOLDER.rglob("*.py"))
SCRIPTS = [name for name in NAMES if name.startswith("bench_")]


@pytest.fixture
def load(monkeypatch):
    """Import a module of the benchmarks, which import each other relative to their folder."""
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module
    ours = {name.partition(".")[0] for name in NAMES}
    for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
        del sys.modules[name]


@pytest.mark.parametrize("name", NAMES)
def test_imports(name, load):
    assert Path(load(name).__file__) == (FOLDER / name.replace(".", "/")).with_suffix(".py")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_registered_parts_that_run_and_have_tables(name, load):
    load(name)
    parts = load("registry").parts_of(name.removeprefix("bench_"))
    assert parts and all(callable(part.run) and callable(part.tables) for part in parts.values())


def test_every_registered_part_draws_from_its_seed_ranges(load):
    """Every range of `seed_ranges` belongs to a part, or to a figure of the main README."""
    parts, ranges = load("registry").import_all_parts(), load("seed_ranges").RANGES
    assert len(parts) > 60
    assert all(part.seeds and all(seeds in ranges.values() for seeds in part.seeds) for part in parts.values())
    unused = [name for name, seeds in ranges.items() if not any(seeds in part.seeds for part in parts.values())]
    assert unused == ["UNKNOWN_WIDTHS"]


def test_a_script_imports_every_part_of_its_benchmark(load):
    parts = load("registry").import_all_parts()
    for name in SCRIPTS:
        source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        for part in parts.values():
            if f"bench_{part.benchmark}" == name:
                assert re.search(rf"\b{part.module.rpartition('.')[2]}\b", source.split('"""')[2]), part


def test_parts_of_a_benchmark_have_different_names(load):
    registry = load("registry")
    cases = types.SimpleNamespace(run=None, tables=None)
    registry.part("one", "part", seeds=range(3))(cases)
    with pytest.raises(ValueError, match="'one' has two parts 'part'"):
        registry.part("one", "part", seeds=range(3))(cases)


@pytest.mark.parametrize("quick", [True, False])
def test_quick_writes_nothing(quick, load, monkeypatch, tmp_path, capsys):
    registry = load("registry")
    monkeypatch.setattr(load("common"), "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench_one.py", *(["--quick"] if quick else [])])
    cases = types.SimpleNamespace(run=lambda trials, quick: {"rows": [[1, quick]]}, tables=lambda result: str(result))
    registry.part("one", "part", seeds=range(3))(cases)
    registry.run_parts("one", "One part.")
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
