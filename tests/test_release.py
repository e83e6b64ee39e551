"""What a release is made of: the source archive holds what its tests read, and the workflows are safe."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
WORKFLOWS = sorted((TOP / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MADE_BY_SETUPTOOLS = {"LICENSE", "README.md", "pyproject.toml", "MANIFEST.in", "skident"}
NOT_SHIPPED = {".git", ".gitignore", ".venv", "build", "dist", "PKG-INFO", "setup.cfg", "skident.egg-info"}
CACHES = re.compile(r"\..*_cache|__pycache__|\.hypothesis|\.coverage.*|\w+\.png")  # with pictures that examples save


def jobs(text):
    """Text of every job of a workflow, by name."""
    parts = re.split(r"^  ([\w-]+):.*\n", text.split("\njobs:\n")[1], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def test_the_source_archive_holds_every_file_of_the_checkout():
    listed = set()
    for line in (TOP / "MANIFEST.in").read_text(encoding="utf-8").splitlines():
        if line.startswith(("include", "graft")):
            listed.update(line.split()[1:])
    there = {path.name for path in TOP.iterdir() if not CACHES.fullmatch(path.name)} - NOT_SHIPPED
    assert there == listed | MADE_BY_SETUPTOOLS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_few_rights_and_end(path):
    text = path.read_text(encoding="utf-8")
    assert "\npermissions:\n  contents: read\n" in text
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")
    assert all("timeout-minutes: " in job for job in jobs(text).values())
    assert all("@" in use for use in re.findall(r"uses: (\S+)", text))


def test_only_publishing_may_write_and_only_on_tags():
    release = (TOP / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert 'on:\n  push:\n    tags: ["v*"]\n' in release
    writing = [name for path in WORKFLOWS for name, job in jobs(path.read_text()).items() if ": write" in job]
    assert writing == ["publish"] and "id-token: write" in release


def test_a_release_names_its_repository():
    spec = importlib.util.spec_from_file_location("name_repository", TOP / ".ci" / "name_repository.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    address = "https://github.com/someone/skident"
    text = {name: (TOP / name).read_text(encoding="utf-8") for name in ("README.md", "pyproject.toml", "CITATION.cff")}
    readme = script.absolute(text["README.md"], address, "v1")
    assert re.findall(r"\]\((?!https://)[^)]*\)", readme) == []
    assert f"]({address}/raw/v1/docs/diagram.svg)" in readme and f"]({address}/blob/v1/docs/install.md)" in readme
    urls = tomllib.loads(script.with_urls(text["pyproject.toml"], address, "v1"))["project"]["urls"]
    assert urls["Source"] == address and urls["Changelog"] == f"{address}/blob/v1/CHANGELOG.md" and len(urls) == 4
    assert f'\nrepository-code: "{address}"\n' in script.cited(text["CITATION.cff"], address)


def test_workflows_run_the_lowest_and_the_newest_versions():
    tests = jobs((TOP / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    assert {"test", "lowest", "newest", "slow"} <= set(tests)
    pythons = re.findall(r'"(3\.\d+)"', tests["test"])
    named = [line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)]
    assert pythons == named and PROJECT["requires-python"] == f">={pythons[0]}"


def test_what_the_lowest_job_installs_has_lower_bounds():
    job = jobs((TOP / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))["lowest"]
    extras = re.search(r"\.\[([\w,]+)\]", job)[1].split(",")
    named = [name for extra in extras for name in PROJECT["optional-dependencies"][extra]]
    assert [name for name in PROJECT["dependencies"] + named if ">=" not in name] == []
