"""Stub files say what the code is: the same names, parameters and defaults; mypy checks the rest in CI."""

import ast
import importlib
import importlib.util
import inspect
from pathlib import Path

import pytest

import skident

ROOT = Path(skident.__file__).parent
STUBS = sorted(ROOT.rglob("*.pyi"))
GENERATED = sorted({path.parent.name for path in STUBS} - {"network", "oracle", "metrics", "skident"})
ANNOTATED = ["network", "oracle", "metrics", *GENERATED]


def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path):
    return importlib.import_module(".".join(("skident", *path.relative_to(ROOT).parent.parts)))


def exported(tree):
    """The names that a stub gives to users."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return ast.literal_eval(node.value)
    return [alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]


def declared(node):
    """Names of a function's parameters, and of those that have a default."""
    arguments = node.args
    starred = [a.arg for a in (arguments.vararg, arguments.kwarg) if a]
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)] + starred
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    keywords = [a.arg for a, value in zip(arguments.kwonlyargs, arguments.kw_defaults) if value is not None]
    return names, set(positional[len(positional) - len(arguments.defaults) :] + keywords)


def real(function):
    """The same of a function that runs: names with stars last."""
    parameters = inspect.signature(function).parameters.values()
    parameters = sorted(parameters, key=lambda p: p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return [p.name for p in parameters], {p.name for p in parameters if p.default is not p.empty}


def functions(tree):
    """Functions of a stub, and those of its classes, by dotted name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{name}", method) for name, method in functions(node))


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.parent.name)
def test_stubs_export_what_rooms_do(path):
    assert set(exported(tree_of(path))) == set(module_of(path).__all__)


@pytest.mark.parametrize("package", ANNOTATED)
def test_stubs_have_the_parameters_of_the_code(package):
    path = ROOT / package / "__init__.pyi"
    for name, node in functions(tree_of(path)):
        owner, _, method = name.rpartition(".")
        place = getattr(module_of(path), owner) if owner else module_of(path)
        thing = inspect.getattr_static(place, method) if owner else getattr(place, method)
        if isinstance(thing, property):
            assert [d.id for d in node.decorator_list] == ["property"], name
            continue
        bound = isinstance(thing, classmethod)
        assert bound == ("classmethod" in [getattr(d, "id", "") for d in node.decorator_list]), name
        names, defaults = declared(node)
        assert real(thing.__func__ if bound else thing) == (names, defaults), name


@pytest.mark.parametrize("package", ANNOTATED)
def test_everything_in_stubs_is_annotated(package):
    tree = tree_of(ROOT / package / "__init__.pyi")
    described = dict(functions(tree))
    for name, node in described.items():
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        assert node.returns is not None and all(a.annotation for a in parameters if a.arg not in ("self", "cls")), name
    assigned = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert {name for name in described if "." not in name} | classes | assigned >= set(exported(tree))


@pytest.mark.parametrize("package", ANNOTATED)
def test_public_methods_are_in_the_stubs(package):
    path = ROOT / package / "__init__.pyi"
    for node in (node for node in tree_of(path).body if isinstance(node, ast.ClassDef)):
        thing = getattr(module_of(path), node.name)
        bases = {base.value.id if isinstance(base, ast.Subscript) else base.id for base in node.bases}
        known = {name for base in thing.__mro__ if base.__name__ in bases for name in dir(base)}
        known |= set(dir(tuple)) if "NamedTuple" in bases else set()
        known |= {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
        known |= {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
        assert {name for name in dir(thing) if not name.startswith("_")} <= known, node.name


@pytest.mark.parametrize("package", GENERATED)
def test_stubs_are_those_that_docstrings_make(package):
    spec = importlib.util.spec_from_file_location("stubs", ROOT.parent / "docs" / "stubs.py")
    stubs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stubs)
    written = (ROOT / package / "__init__.pyi").read_text(encoding="utf-8")
    assert stubs.formatted(stubs.stub(package)) == written, "run python docs/stubs.py"


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "py.typed").is_file()
