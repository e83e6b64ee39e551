"""What a package exports is documented in numpydoc sections; every other function and class has a summary line."""

import ast
import importlib
from pathlib import Path

import pytest

import skident

ROOT = Path(skident.__file__).parent
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


def raises_itself(function):
    """Whether a raise statement stands in the function, not in one defined inside it, and names what it raises."""
    stack = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            stack += ast.iter_child_nodes(node)
    return False


def returns_value(function):
    stack, decorators = list(function.body), {getattr(d, "id", getattr(d, "attr", "")) for d in function.decorator_list}
    if decorators & {"property", "contextmanager", "setter", "cached_property"}:
        return False
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)) or (isinstance(node, ast.Return) and node.value is not None):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            stack += ast.iter_child_nodes(node)
    return False


def takes_arguments(function):
    named = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    static = any(getattr(d, "id", "") == "staticmethod" for d in function.decorator_list)
    return bool(named if static else [a for a in named if a not in ("self", "cls")])


def lacking(function, exported=True):
    """Sections that a function's docstring lacks; of an internal function only the docstring is asked for."""
    text = ast.get_docstring(function) or ""
    has = lambda *titles: any(f"\n{title}\n{'-' * len(title)}" in text for title in titles)  # noqa: E731
    wanted = [] if text else ["docstring"]
    if not exported:
        return wanted
    if takes_arguments(function) and not has("Parameters"):
        wanted.append("Parameters")
    if returns_value(function) and not has("Returns", "Yields"):
        wanted.append("Returns")
    if raises_itself(function) and not has("Raises"):
        wanted.append("Raises")
    return wanted


def public_functions(tree):
    """Public functions of a module, and public methods of its public classes but properties and `__init__`."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, node.name, node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                    yield node.name, f"{node.name}.{method.name}", method


def documented(package):
    """What every public function of a package lacks, by place."""
    exported, result = set(getattr(importlib.import_module(f"skident.{package}"), "__all__", ())), {}
    for path in sorted((ROOT / package).rglob("*.py")):
        for owner, name, node in public_functions(ast.parse(path.read_text(encoding="utf-8"))):
            result[f"{path.relative_to(ROOT).as_posix()}::{name}"] = lacking(node, owner in exported)
    return result


@pytest.mark.parametrize("package", PACKAGES)
def test_public_functions_are_documented(package):
    assert {place: sections for place, sections in documented(package).items() if sections} == {}


def test_a_missing_section_is_seen():
    source = "def f(x):\n '''What it is.\n\n Returns\n -------\n int\n '''\n if x:\n  raise ValueError\n return 1\n"
    function = ast.parse(source).body[0]
    assert lacking(function) == ["Parameters", "Raises"]
    assert lacking(function, exported=False) == []
    assert lacking(ast.parse("def f(x):\n return 1\n").body[0], exported=False) == ["docstring"]
