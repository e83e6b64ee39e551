"""The import rule of the package: every module imports from its own or lower levels only.

``linalg`` <- ``network``, ``optim``, ``modules`` <- ``oracle`` <- ``recovery`` <- estimators (the modules at the
package's top), with ``datasets``, ``metrics``, ``inspection`` beside the estimators. The sources are parsed, never run.
"""

import ast
from pathlib import Path

import pytest

import skident

ROOT = Path(skident.__file__).parent
LEVELS = {"linalg": 0, "network": 1, "optim": 1, "modules": 1, "oracle": 2, "recovery": 3}
BESIDE = {"datasets", "metrics", "inspection"}
PRIVATE = {"_validation", "_skorch"}
UNPICKLERS = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}

# What a unit may import besides itself. "estimators" are all public modules at the package's top.
_BELOW_ORACLE = {"linalg", "network", "optim", "modules"}
ALLOWED = {
    "linalg": set(),
    "optim": {"linalg"},  # knows arrays only, so no network and no torch module
    "network": {"linalg", "optim", "modules"},
    "modules": {"linalg", "network", "optim"},
    "oracle": _BELOW_ORACLE | {"_validation"},
    "recovery": _BELOW_ORACLE | {"oracle", "_validation"},
    "_validation": {"linalg", "network"},
    "_skorch": _BELOW_ORACLE | {"_validation"},
    **{unit: _BELOW_ORACLE | BESIDE for unit in BESIDE},
    "estimators": set(LEVELS) | BESIDE | PRIVATE,
}
NEVER = {"linalg": {"torch", "sklearn", "skorch"}, "optim": {"torch", "sklearn", "skorch"}}
TORCH_IN_FUNCTIONS = {"network", "oracle", "recovery"}


def unit_of(module):
    """The unit of a dotted name inside the package: a subpackage, a private module, "estimators" or "" (the root)."""
    parts = module.split(".")[1:]
    if not parts:
        return ""
    return parts[0] if parts[0] in set(LEVELS) | BESIDE | PRIVATE else "estimators"


def is_type_checking(test):
    return "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))


def walk(node, in_function=False):
    """All nodes below and including `node` that can run, each with whether it lies in a function."""
    yield node, in_function
    in_function = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    guarded = isinstance(node, ast.If) and is_type_checking(node.test)
    for child in node.orelse if guarded else ast.iter_child_nodes(node):
        yield from walk(child, in_function)


def imported_names(node, module, is_package):
    """Absolute dotted names that an import statement of `module` may load."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parents = module.split(".")
        parents = parents[: len(parents) - node.level + is_package]
        if not parents:
            raise ValueError(f"{module}, line {node.lineno}: a relative import that leaves the package.")
        base = ".".join(parents + ([base] if base else []))
    if base == "skident":  # `from skident import linalg` names units, `from skident import NetworkIdentifier` does not
        return [f"skident.{a.name}" if is_unit(a.name) else "skident" for a in node.names]
    return [base]


def is_unit(name):
    known = set(LEVELS) | BESIDE | PRIVATE
    return name in known or (ROOT / f"{name}.py").is_file() or (ROOT / name / "__init__.py").is_file()


def internal_violation(unit, target):
    if unit in ("", target):
        return None
    if target == "":
        return "imports the package root, which imports everything; import the submodule instead"
    if target not in ALLOWED[unit]:
        return f"{unit} must not import {target}; it may import {sorted(ALLOWED[unit]) or 'nothing of skident'}"
    return None


def external_violation(module, unit, target, in_function):
    if target in UNPICKLERS:
        return f"{target} is not allowed anywhere: nothing in the package unpickles"
    if target == "skorch" and module != "skident.training.net":
        return "skorch is imported in skident/_skorch.py only"
    if target in NEVER.get(unit, ()):
        return f"{unit} must not import {target}, not even inside a function"
    if target == "torch" and unit in TORCH_IN_FUNCTIONS and not in_function:
        return f"{unit} imports torch only inside functions"
    if target == "matplotlib" and not in_function:
        return "matplotlib is imported only inside functions"
    return None


def loader_violation(node):
    """`torch.load` and `joblib.load` unpickle, and are reached without importing pickle."""
    owner = getattr(node.value, "id", None) if isinstance(node, ast.Attribute) and node.attr == "load" else None
    return f"{owner}.load unpickles a file; use safetensors" if owner in ("torch", "joblib") else None


def violations(source, module, is_package=False):
    """Every breach of the rule in one module's source, as "line N: what is wrong"."""
    unit, found = unit_of(module), []
    for node, in_function in walk(ast.parse(source)):
        problems = [loader_violation(node)]
        is_import = isinstance(node, (ast.Import, ast.ImportFrom))
        for name in imported_names(node, module, is_package) if is_import else ():
            top = name.split(".")[0]
            if top == "skident":
                problems.append(internal_violation(unit, unit_of(name)))
            else:
                problems.append(external_violation(module, unit, top, in_function))
        found += [f"line {node.lineno}: {problem}" for problem in problems if problem]
    return found


SOURCES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=[path.relative_to(ROOT).as_posix() for path in SOURCES])
def test_module_obeys_the_import_rule(path):
    parts = ["skident", *path.relative_to(ROOT).with_suffix("").parts]
    is_package = parts[-1] == "__init__"
    module = ".".join(parts[:-1] if is_package else parts)
    problems = violations(path.read_text(encoding="utf-8"), module, is_package)
    assert not problems, f"{module}: " + "; ".join(problems)


def test_every_subpackage_has_a_level():
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders <= set(LEVELS) | BESIDE, "give the new subpackage a level in this test"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("skident.linalg.power", "from ..network import FeedforwardNetwork"),
        ("skident.linalg.power", "def f():\n    import torch"),
        ("skident.linalg.power", "import sklearn.utils"),
        ("skident.optim.lm", "from ..network import FeedforwardNetwork"),
        ("skident.optim.lm", "from torch import nn"),
        ("skident.network.io", "import torch.nn as nn"),
        ("skident.network.io", "class A:\n    import torch"),
        ("skident.network.io", "try:\n    import torch\nexcept ImportError:\n    torch = None"),
        ("skident.network.io", "from .. import oracle"),
        ("skident.network.io", "from skident.recovery.edges import f"),
        ("skident.network.io", "def f():\n    from ..extraction import EntangledWeightExtractor"),
        ("skident.network.io", "import pickle"),
        ("skident.network.io", "def f(path):\n    import torch\n    return torch.load(path)"),
        ("skident.network.io", "from .._validation import check"),
        ("skident.oracle.asking", "from ..recovery import edges"),
        ("skident.oracle.asking", "import skident"),
        ("skident.fitting.polish", "from skident import NetworkIdentifier"),
        ("skident.fitting.polish", "from .. import completion"),
        ("skident.fitting.polish", "from .._skorch import build"),
        ("skident.datasets.planted", "from ..identification import NetworkIdentifier"),
        ("skident.metrics.rates", "from ..recovery import edges"),
        ("skident.inspection.display", "import matplotlib.pyplot as plt"),
        ("skident.completion", "from skorch import NeuralNetRegressor"),
        ("skident.completion", "def f():\n    import skorch"),
        ("skident.completion", "if TYPE_CHECKING:\n    pass\nelse:\n    import skorch"),
    ],
)
def test_breaches_are_seen(module, source):
    assert violations(source, module)


@pytest.mark.parametrize(
    ("module", "is_package", "source"),
    [
        ("skident", True, "from .extraction import EntangledWeightExtractor"),
        ("skident.linalg", True, "from .power import find\nfrom . import symmetric"),
        ("skident.linalg.power", False, "from .symmetric import svec\nimport numpy as np"),
        ("skident.network.io", False, "def f():\n    import torch\n    from ..modules import Sin"),
        ("skident.network.io", False, "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("skident.modules.layers", False, "import torch"),
        ("skident.recovery.edges", False, "from .. import linalg, oracle\nfrom .._validation import check"),
        ("skident.completion", False, "import torch\nfrom . import _skorch, metrics\nfrom .extraction import E"),
        ("skident.training.net", False, "import skorch\nimport torch"),
        ("skident.inspection.display", False, "def f():\n    import matplotlib.pyplot\n    from ..metrics import m"),
        ("skident.datasets.planted", False, "from ..network import FeedforwardNetwork\nimport sklearn"),
    ],
)
def test_permitted_imports_pass(module, is_package, source):
    assert violations(source, module, is_package) == []
