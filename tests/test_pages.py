"""The code of the README and of the site's pages runs, and prints what stands below it."""

import importlib.util
import re
import warnings
from pathlib import Path

import matplotlib
import pytest

TOP = Path(__file__).parents[1]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md")), *sorted((TOP / "docs" / "guide").glob("*.md"))]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


outputs = load(TOP / "docs" / "outputs.py")
BLOCKS = {path: outputs.blocks(path.read_text(encoding="utf-8")) for path in PAGES}
RUN = [path for path in PAGES if BLOCKS[path]]


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_blocks_print_what_stands_below_them(path, tmp_path, monkeypatch):
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    for code, expected, numbers in BLOCKS[path]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            printed = outputs.run(code, namespace)
        assert outputs.alike(printed, expected or "", numbers), f"{code}\nprinted\n{printed}"


def test_no_block_is_left_out_but_that_of_a_cluster():
    texts = {path: path.read_text(encoding="utf-8") for path in PAGES}
    assert sum(text.count("```python") for text in texts.values()) == sum(map(len, BLOCKS.values())) + 1
    assert [path.stem for path, text in texts.items() if "<!-- not run" in text] == ["identify"]


def test_code_is_as_wide_as_the_site_shows_it():
    lines = [(path.stem, line) for path, found in BLOCKS.items() for code, *_ in found for line in code.split("\n")]
    assert [found for found in lines if len(found[1]) > 88] == []


@pytest.mark.slow
def test_a_type_checker_accepts_the_code(tmp_path):
    mypy = pytest.importorskip("mypy.api")
    for path in RUN:
        code = "\n".join(re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL))
        (tmp_path / f"{path.stem}_page.py").write_text(code, encoding="utf-8")
    options = ["--strict", "--allow-untyped-defs", "--config-file", str(TOP / "pyproject.toml")]
    found, _, failed = mypy.run([*options, "--cache-dir", str(tmp_path / "cache"), *map(str, tmp_path.glob("*.py"))])
    assert not failed, found


def test_every_question_has_a_page_with_code():
    guide = [path for path in RUN if path.parent.name == "guide"]
    assert len(guide) >= 9 and TOP / "README.md" in RUN and TOP / "docs" / "getting_started.md" in RUN
    assert all("## When it fails" in path.read_text() for path in guide if path.stem not in ("index", "blocks"))
    assert all("## Cost" in path.read_text() for path in guide if path.stem not in ("index", "blocks"))


def test_outputs_are_compared():
    assert outputs.alike("a 1.00 b 2e-15", "a  1.02\nb 7e-16")
    assert not outputs.alike("a 1.00", "a 1.10") and not outputs.alike("a 1", "b 1") and not outputs.alike("1", "")
    assert outputs.alike("2,768 queries", "2,725 queries") and not outputs.alike("2,768 queries", "3,725 queries")
    assert outputs.alike("0.25 s, 3 rows", "0.75 s, 9 rows", numbers=False)
    text = (
        "```python\n1\n```\n\n<!-- not run: a cluster -->\n```python\n2\n```\n\n```python\n3\n```\n\n```text\n4\n```\n"
    )
    assert outputs.blocks(text) == [("1\n", None, True), ("3\n", "4\n", True)]


def test_pages_link_to_what_exists():
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            made = target.startswith(("generated/", "../generated/", "gallery/", "api/", "../api/"))
            assert made or (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_readme_is_short():
    assert len((TOP / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
