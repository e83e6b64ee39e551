"""What the documents name exists: functions, files, commands, versions."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest

import skident
from tests.test_architecture import FLOORS

TOP = Path(__file__).parents[1]
DOCUMENTS = [TOP / "README.md", TOP / "CHANGELOG.md", TOP / "CONTRIBUTING.md", TOP / "benchmarks" / "README.md"]
DOCUMENTS += sorted((TOP / "docs").glob("*.md")) + sorted((TOP / "docs" / "guide").glob("*.md"))
PROSE = [TOP / "CONTRIBUTING.md", TOP / "README.md"]
SUFFIXES = ("py", "md", "toml", "txt", "yaml", "yml", "json", "cfg")


def text_of(path):
    return path.read_text(encoding="utf-8")


def name_of(path):
    return path.relative_to(TOP).as_posix()


# -- names -------------------------------------------------------------------------------------------------------------


def resolve(dotted):
    """The object of a dotted name: the longest part of it that is a module, and attributes from there."""
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[n:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(dotted)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_dotted_names_can_be_imported(path):
    missing = []
    for dotted in sorted(set(re.findall(r"\bskident(?:\.[A-Za-z]\w*)+", text_of(path)))):
        try:
            resolve(dotted)
        except (ImportError, AttributeError):
            missing.append(dotted)
    assert missing == []


def test_dotted_names_that_do_not_exist_are_seen():
    assert resolve("skident.network.FeedforwardNetwork.from_torch").__name__ == "from_torch"
    with pytest.raises(AttributeError, match="nowhere"):
        resolve("skident.network.nowhere")


ESTIMATORS = sorted(name for name in skident.__all__ if hasattr(getattr(skident, name), "fit"))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_is_in_the_table_and_in_the_changelog(name):
    assert re.search(rf"^\| .*`{name}`.* \|.*\|$", text_of(TOP / "README.md"), flags=re.MULTILINE)
    assert f"**`{name}`**" in text_of(TOP / "CHANGELOG.md")


# -- files and commands ------------------------------------------------------------------------------------------------


def paths_in(text):
    """What looks like a path of the project: in backticks, or in a block of shell commands."""
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
    words = re.findall(r"`([^`\s]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    words += [word for block in blocks for line in block.splitlines() for word in line.split("#")[0].split()]
    for word in words:
        is_path = re.fullmatch(r"[\w.*-]+(/[\w.*-]+)*/?", word) and not word.startswith(".venv")
        if is_path and ("/" in word.strip(".") or word.rpartition(".")[2] in SUFFIXES) and ".." not in word:
            yield word


@pytest.mark.parametrize("path", PROSE, ids=name_of)
def test_paths_exist(path):
    found = set(paths_in(text_of(path)))
    places = (TOP, TOP / "skident", TOP / "skident" / "identification", TOP / "examples")
    assert len(found) > 2
    assert [word for word in sorted(found) if not any(list(place.glob(word)) for place in places)] == []


def test_paths_are_seen():
    text = "`a/b.py` and `c.md`, not `D (D + 1) / 2` nor `x.y`\n```bash\npython e/f.py --quick  # g/h.py\n```\n`i/`"
    assert sorted(paths_in(text)) == ["a/b.py", "c.md", "e/f.py", "i/"]


def test_the_set_up_is_the_readme_s():
    commands = re.findall(r"^python3 -m venv .*$", text_of(TOP / "CONTRIBUTING.md"), flags=re.MULTILINE)
    assert len(commands) == 1 and commands[0] in text_of(TOP / "README.md").splitlines()
    assert commands[0] in text_of(TOP / ".ci" / "run")


def test_the_table_of_packages_is_the_rule():
    rows = re.findall(r"^\| (-?\d) \| (.*) \|$", text_of(TOP / "CONTRIBUTING.md"), flags=re.MULTILINE)
    assert {name: int(floor) for floor, packages in rows for name in re.findall(r"`(\w+)`", packages)} == FLOORS


def test_guide_for_contributors_is_short():
    assert len(text_of(TOP / "CONTRIBUTING.md").splitlines()) < 220


# -- versions ----------------------------------------------------------------------------------------------------------


def test_pre_commit_has_the_ruff_that_is_pinned():
    pinned = re.search(r"^ruff==(\S+)$", text_of(TOP / "constraints.txt"), flags=re.MULTILINE)[1]
    assert re.search(r"ruff-pre-commit\n +rev: v(\S+)", text_of(TOP / ".pre-commit-config.yaml"))[1] == pinned


def test_one_version():
    project = tomllib.loads(text_of(TOP / "pyproject.toml"))["project"]
    section = re.search(r"^## \[(\S+)\] - ", text_of(TOP / "CHANGELOG.md"), flags=re.MULTILINE)[1]
    cited = re.search(r"^version: (\S+)$", text_of(TOP / "CITATION.cff"), flags=re.MULTILINE)[1]
    assert project["version"] == skident.__version__ == cited == section
