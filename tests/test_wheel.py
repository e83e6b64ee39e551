"""What a wheel needs is declared: example 1 of the README runs without extras, and what draws says what it lacks."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

TOP = Path(__file__).parents[1]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())
WITHOUT_EXTRAS = """
import sys

class Barred:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {extras}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Barred())
"""
DRAWING = """
from skident.inspection import WeightRecoveryDisplay
try:
    WeightRecoveryDisplay.from_networks(truth, identifier.network_)
except ImportError as error:
    print(error)
"""


def test_the_first_example_runs_without_extras_and_drawing_says_what_it_lacks():
    extras = {re.split(r"[<>=\[]", name)[0] for names in PROJECT["project"]["optional-dependencies"].values()
              for name in names}  # fmt: skip
    code = re.search(r"```python\n(.*?)```", (TOP / "README.md").read_text(), flags=re.DOTALL)[1]
    source = WITHOUT_EXTRAS.format(extras=sorted(extras)) + code + DRAWING
    printed = subprocess.run([sys.executable, "-c", source], cwd=TOP, capture_output=True, text=True, check=True).stdout
    assert "tanh, output identity) - exact: True" in printed
    assert "needs matplotlib, which is not installed; try pip install 'skident[examples]'" in printed


def test_stubs_and_the_mark_of_types_are_shipped():
    assert PROJECT["tool"]["setuptools"]["package-data"]["skident"] == ["py.typed", "**/*.pyi"]
    assert PROJECT["project"]["readme"] == "README.md"
