"""What `import skident` costs, and what it makes available: rooms and estimators are loaded when first used."""

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import skident

TOP = Path(skident.__file__).parents[1]
HEAVY = {"numpy", "scipy", "sklearn", "torch", "skorch", "matplotlib", "pandas"}
WITHOUT_TORCH = [
    "EntangledWeightExtractor",
    "NetworkCompletion",
    "NetworkCompressor",
    "NetworkIdentifier",
    "NetworkVerifier",
    "PassiveNetworkIdentifier",
    "TensorReLURegressor",
]
ROOMS = [name for name in skident.__all__ if (TOP / "skident" / name).is_dir()]


def python(*arguments):
    """Run a fresh interpreter next to the package."""
    return subprocess.run([sys.executable, *arguments], cwd=TOP, capture_output=True, text=True, check=True)


def loaded_by(statement):
    """Top-level packages that a statement loads in a fresh interpreter."""
    source = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    return set(json.loads(python("-c", source).stdout))


def import_microseconds(*modules):
    """What importing every module takes, one after the other in one fresh interpreter, what they load included."""
    lines = python("-X", "importtime", "-c", f"import {', '.join(modules)}").stderr.splitlines()
    columns = [line.removeprefix("import time:").split("|") for line in lines if line.startswith("import time:")]
    taken = {name[1:]: cumulative for _, cumulative, name in columns}  # deeper imports stand further to the right
    return [int(taken[module]) for module in modules]


def test_the_package_alone_loads_nothing():
    assert "skident" in loaded_by("import skident")
    assert loaded_by("import skident; dir(skident)") & HEAVY == set()


def test_estimators_without_torch_do_not_load_it():
    loaded = loaded_by(f"from skident import {', '.join(WITHOUT_TORCH)}")
    assert "sklearn" in loaded and loaded & {"torch", "skorch", "matplotlib"} == set()


def test_importing_costs_less_than_scikit_learn():
    ours, theirs = import_microseconds("skident", "sklearn")
    assert ours < theirs  # by a factor of two hundred: once is enough


@pytest.mark.parametrize("name", skident.__all__)
def test_every_public_name_can_be_fetched(name):
    assert getattr(skident, name) is not None
    assert name in dir(skident)


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_of_a_room_can_be_fetched(room):
    module = importlib.import_module(f"skident.{room}")
    assert module.__all__ and set(module.__all__) <= set(dir(module))
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="nothing"):
        skident.nothing  # noqa: B018


def test_misspelled_names_are_corrected():
    with pytest.raises(AttributeError, match="Did you mean: 'NetworkIdentifier'"):
        skident.NetworkIdentifer  # noqa: B018


def test_help_of_the_command_line_loads_nothing():
    statement = "import contextlib, io\nfrom skident.cli import main\nwith contextlib.suppress(SystemExit), "
    statement += "contextlib.redirect_stdout(io.StringIO()): main(['--help'])"
    assert loaded_by(statement) & HEAVY == set()


def test_a_folder_with_the_name_of_the_package_hides_nothing(tmp_path):
    """An editable install puts the checkout on the path, behind which a folder without `__init__.py` comes last."""
    (tmp_path / "skident").mkdir()
    source = "import sys; sys.path.insert(0, ''); from skident import NetworkIdentifier"
    subprocess.run([sys.executable, "-c", source], cwd=tmp_path, check=True, capture_output=True, text=True)


def test_version_is_that_of_the_project():
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert skident.__version__ == project["version"]
