"""The architecture: packages on floors, imports strictly downward, every question on its own.

Floors from the ground up: arrays; networks and training; how a network is asked; fits and what estimators share; the
questions; the displays. No question imports another, no package opens a private module of another one, skorch is known
to
one file. The sources are parsed, never run.
"""

import ast
from pathlib import Path

import pytest

import skident

ROOT = Path(skident.__file__).parent
TOP = Path(__file__).parents[1]

QUESTIONS = {"identification", "samples", "landscape", "saddle", "hierarchical", "compression", "audit"}
FLOORS = {
    "budget": -1,
    **dict.fromkeys(["linalg", "optim"], 0),
    **dict.fromkeys(["network", "training"], 1),
    **dict.fromkeys(["oracle", "datasets", "metrics"], 2),
    **dict.fromkeys(["fitting", "base"], 3),
    **dict.fromkeys(QUESTIONS, 4),
    "inspection": 5,
    "cli": 6,
}
ARRAYS_ONLY = {"budget", "linalg", "optim"}
SKORCH = "skident.training.net"
# Packages that people may do without, and the only places that import them: behind a gate.
OPTIONAL = {
    "onnx": ("skident.network.onnx_models",),
    "google": ("skident.network.onnx_models",),
    "onnxruntime": ("skident.oracle._onnx_box",),
}
UNPICKLERS = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}
# Files whose imports inside functions keep torch away from those who do not need it: what needs it is loaded there.
GATES = {
    "skident.network._conversions": {"skident.network._torch", "skident.network.onnx_models"},
    "skident.audit.quantized": {"skident.network.onnx_models", "skident.audit.quantized_module"},
    "skident.oracle._adapters": {"skident.oracle._torch_box", "skident.oracle._onnx_box"},
    "skident.identification.completion": {"skident.identification.hessians.completion_module"},
    "skident.identification.exact_bits.float32_outputs": {"skident.identification.exact_bits.torch_outputs"},
    "skident.identification.report": {"skident.inspection"},  # a report draws itself: loaded when it is drawn
}


def package_of(module):
    """The package of a dotted name: ``skident.linalg.power`` lies in ``linalg``; "" is skident itself or outside."""
    parts = module.split(".")
    return parts[1] if parts[0] == "skident" and len(parts) > 1 and parts[1] in FLOORS else ""


def is_type_checking(test):
    return "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))


def walk(node, in_function=False):
    """All nodes below and including `node` that can run, each with whether it lies in a function."""
    yield node, in_function
    in_function = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    guarded = isinstance(node, ast.If) and is_type_checking(node.test)
    for child in node.orelse if guarded else ast.iter_child_nodes(node):
        yield from walk(child, in_function)


def is_module(name):
    path = ROOT.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def imported_modules(node, module, is_package):
    """Dotted names of the modules that an import statement of `module` loads."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parents = module.split(".")
        parents = parents[: len(parents) - node.level + is_package]
        if not parents:
            raise ValueError(f"{module}, line {node.lineno}: a relative import that leaves the package.")
        base = ".".join(parents + ([base] if base else []))
    if not base.startswith("skident"):
        return [base]
    return [f"{base}.{a.name}" if is_module(f"{base}.{a.name}") else base for a in node.names]


def private_part(target):
    """The first private module in a dotted name, or None."""
    return next((part for part in target.split(".") if part.startswith("_") and part != "__init__"), None)


def internal_violation(module, target, in_function):
    package, other = package_of(module), package_of(target)
    gate = in_function and target in GATES.get(module, ())
    if private_part(target) and (other != package or not module.startswith("skident.")):
        return f"opens {target}, a private module of another package"
    if not module.startswith("skident"):
        return None
    if target == "skident" and module != "skident":
        return "imports the package itself, which may load everything; import the module instead"
    if in_function and not gate:
        return f"loads {target} inside a function; only the gates listed in this test do that"
    if package == other or not package:
        return None
    if {package, other} <= QUESTIONS:
        return f"{package} is a question and must not import another one, {other}"
    if FLOORS[other] >= FLOORS[package] and not (gate and other == "inspection"):
        return f"{package} (floor {FLOORS[package]}) must not import {other} (floor {FLOORS[other]}): strictly downward"
    return None


def external_violation(module, target, in_function):
    if not module.startswith("skident"):
        return None
    package = package_of(module)
    if target in UNPICKLERS:
        return f"{target} is not allowed anywhere: nothing in the package unpickles"
    if target in OPTIONAL and not module.startswith(OPTIONAL[target]):
        return f"{target} is optional, and imported in {OPTIONAL[target]} only"
    if target == "skorch" and module != SKORCH:
        return f"skorch is imported in {SKORCH} only"
    if target in {"torch", "sklearn", "skorch"} and package in ARRAYS_ONLY:
        return f"{package} knows arrays only, so no {target}, not even inside a function"
    if target == "torch" and in_function:
        return "torch is imported at the top of the files that need it"
    if target == "matplotlib" and not (in_function and package == "inspection"):
        return "matplotlib is imported inside functions of inspection only"
    return None


def loader_violation(node, module):
    """`torch.load` and `joblib.load` unpickle, and are reached without importing pickle."""
    owner = getattr(node.value, "id", None) if isinstance(node, ast.Attribute) and node.attr == "load" else None
    unpickles = owner in ("torch", "joblib") and module.startswith("skident")
    return f"{owner}.load unpickles a file; use safetensors" if unpickles else None


def violations(source, module, is_package=False):
    """Every breach of the rule in one module's source, as "line N: what is wrong"."""
    found = []
    for node, in_function in walk(ast.parse(source)):
        problems = [loader_violation(node, module)]
        is_import = isinstance(node, (ast.Import, ast.ImportFrom))
        for name in imported_modules(node, module, is_package) if is_import else ():
            top = name.split(".")[0]
            if top == "skident":
                problems.append(internal_violation(module, name, in_function))
            else:
                problems.append(external_violation(module, top, in_function))
        found += [f"line {node.lineno}: {problem}" for problem in problems if problem]
    return found


def module_of(path):
    """Dotted name of a file of the package, of the tests, examples or benchmarks, and whether it is a package."""
    parts = path.relative_to(TOP if TOP in path.parents else ROOT.parent).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    return ".".join(parts[:-1] if is_package else parts), is_package


INSIDE = sorted(ROOT.rglob("*.py"))
OUTSIDE = sorted(path for folder in ("tests", "examples", "benchmarks") for path in (TOP / folder).rglob("*.py"))


@pytest.mark.parametrize("path", [*INSIDE, *OUTSIDE], ids=lambda path: module_of(path)[0])
def test_file_obeys_the_rule(path):
    module, is_package = module_of(path)
    problems = violations(path.read_text(encoding="utf-8"), module, is_package)
    assert not problems, f"{module}: " + "; ".join(problems)


def test_every_room_has_a_floor_and_nothing_private_stands_in_the_hall():
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(FLOORS)
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_gates_exist_and_are_used():
    for module, targets in GATES.items():
        source = ROOT.parent.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
        nodes = [node for node, inside in walk(ast.parse(source)) if inside and isinstance(node, ast.ImportFrom)]
        assert {name for node in nodes for name in imported_modules(node, module, False)} >= targets, module


BREACHES = [
    ("skident.linalg.power", "from ..network import FeedforwardNetwork"),
    ("skident.linalg.power", "from skident.optim import levenberg_marquardt"),
    ("skident.linalg.power", "def f():\n    import torch"),
    ("skident.linalg.power", "import sklearn.utils"),
    ("skident.optim.levenberg_marquardt", "from ..network import FeedforwardNetwork"),
    ("skident.optim.levenberg_marquardt", "from torch import nn"),
    ("skident.network._io", "def f():\n    import torch.nn as nn"),
    ("skident.network._io", "class A:\n    def f(self):\n        from torch import nn"),
    ("skident.network._io", "from .. import oracle"),
    ("skident.network._io", "from skident.fitting.polish import f"),
    ("skident.network._io", "def f():\n    from ..linalg import svec"),
    ("skident.network._io", "import pickle"),
    ("skident.network._io", "import torch\ndef f(path):\n    return torch.load(path)"),
    ("skident.oracle.clipping", "from ..base.parameters import check"),
    ("skident.oracle.clipping", "from ..datasets import make_network"),
    ("skident.oracle.clipping", "import skident"),
    ("skident.oracle.clipping", "from skident.network._transformers import named_method"),
    ("skident.fitting.polish", "from skident import NetworkIdentifier"),
    ("skident.fitting.polish", "from ..base.progress import StageLog"),
    ("skident.fitting.polish", "from skident.training.net import train\nimport skorch"),
    ("skident.datasets._relu", "from ..identification.identifier import NetworkIdentifier"),
    ("skident.metrics._relu", "from ..fitting import polish"),
    ("skident.samples.ridges", "from skident.identification.piecewise.shallow.units import find_units"),
    ("skident.samples.ridges", "def f():\n    from skident.landscape.problem import QuadraticProblem"),
    ("skident.hierarchical.regressor", "from .. import compression"),
    ("skident.compression.compressor", "from skident.identification import NetworkIdentifier"),
    ("skident.saddle.analyzer", "from skident.inspection import EscapeDisplay"),
    ("skident.saddle.analyzer", "from skident.network._feedforward import FeedforwardNetwork"),
    ("skident.saddle.analyzer", "def f():\n    from skident.inspection import EscapeDisplay"),
    ("skident.identification.report", "from skident.inspection import IdentificationDisplay"),
    ("skident.inspection._identification", "import matplotlib.pyplot as plt"),
    ("skident.saddle.analyzer", "def f():\n    import matplotlib.pyplot as plt"),
    ("skident.identification.completion", "from skorch import NeuralNetRegressor"),
    ("skident.identification.completion", "def f():\n    import skorch"),
    ("skident.identification.completion", "if TYPE_CHECKING:\n    pass\nelse:\n    import skorch"),
    ("skident.training.net", "from skident.base import parameters"),
    ("skident.network._conversions", "import onnx"),
    ("skident.oracle._adapters", "def f():\n    import onnxruntime"),
    ("skident.oracle._onnx_box", "from onnx import helper"),
    ("skident.oracle.black_box", "def f():\n    from ._onnx_box import OnnxBox"),
    ("benchmarks.bench_saddle", "from skident.network._transformers import affine_map"),
    ("examples.plot_03_deep_mlp", "import skident.oracle._oracle"),
    ("tests.test_architecture", "from skident.metrics import _weights"),
]
PERMITTED = [
    ("skident", "from .identification import NetworkIdentifier"),
    ("skident.linalg.power", "from .symmetric import svec\nimport numpy as np"),
    ("skident.network._conversions", "def f():\n    from ._torch import to_torch"),
    ("skident.network._io", "if TYPE_CHECKING:\n    from skident.oracle import Oracle"),
    ("skident.network.torch_activations", "import torch"),
    ("skident.network.onnx_models.files", "from onnx import ModelProto\nfrom ..activations import LeakyReLU"),
    ("skident.oracle._onnx_box", "import onnxruntime\nfrom skident.network.onnx_models import read_model"),
    ("skident.fitting.polish", "from .. import linalg, oracle\nfrom ..oracle.black_box import resolve_response"),
    ("skident.identification.completion", "def f():\n    from .hessians.completion_module import descend"),
    ("skident.identification.report", "def f():\n    from skident.inspection import IdentificationDisplay"),
    ("skident.identification.plan", "from .saturating.first_layer import find_first_layer"),
    (
        "skident.identification.piecewise.shallow.network",
        "from skident.identification.piecewise.shallow.units import find_units",
    ),
    ("skident.training.net", "import skorch\nimport torch"),
    ("skident.inspection._identification", "from skident.landscape import phase_transition\nfrom ..metrics import m"),
    ("skident.inspection._identification", "def f():\n    import matplotlib.pyplot"),
    ("skident.datasets._relu", "from ..network import FeedforwardNetwork\nimport sklearn"),
    ("benchmarks.bench_saddle", "from skident.saddle.localized_loss import prolonged\nimport torch, matplotlib"),
    ("tests.test_architecture", "from skident.linalg.power import find_rank_one\nimport pickle"),
]


@pytest.mark.parametrize(("module", "source"), BREACHES)
def test_breaches_are_seen(module, source):
    assert violations(source, module)


@pytest.mark.parametrize(("module", "source"), PERMITTED)
def test_permitted_imports_pass(module, source):
    assert violations(source, module, is_package=module == "skident") == []


@pytest.mark.parametrize("module", sorted({module for module, _ in [*BREACHES, *PERMITTED]} | {SKORCH} | set(GATES)))
def test_modules_named_in_the_examples_exist(module):
    top, *rest = module.split(".")
    path = (ROOT.parent if top == "skident" else TOP).joinpath(top, *rest)
    assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@pytest.mark.parametrize(("module", "source"), [*BREACHES, *PERMITTED])
def test_modules_imported_in_the_examples_exist(module, source):
    nodes = [node for node, _ in walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    for node in nodes:
        for name in imported_modules(node, module, module == "skident"):
            assert not name.startswith("skident") or is_module(name), name
