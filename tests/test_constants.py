"""Numerical constants stand one per line, each with its unit and its reason in a comment.

``python tests/test_constants.py [path below skident]`` lists those that do not; ``--register`` lists all, with class.
"""

import ast
import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "skident"
# What is left to mend, constants per package; a number may only fall.
LEFT = {}
MOST = 3263  # constants of all packages; may only fall


def is_number(node):
    """Whether an expression is a number, or arithmetic or a sequence of numbers."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
    if isinstance(node, (ast.UnaryOp, ast.BinOp)):
        return all(is_number(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
    if isinstance(node, (ast.Tuple, ast.List)):
        return bool(node.elts) and all(is_number(child) for child in node.elts)
    if isinstance(node, ast.Call):
        return bool(node.args) and all(is_number(child) for child in node.args)
    if isinstance(node, (ast.Attribute, ast.Name)):
        return ast.unparse(node) in ("np.pi", "np.inf", "np.e", "math.pi", "math.inf", "EPS", "_EPS")
    return isinstance(node, ast.expr) and "finfo" in ast.unparse(node)


def is_constant(name):
    return re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name) is not None


def without_reason(source):
    """Lines of constants that share a line with others, and of constants without a comment, with their names."""
    lines, tree = source.split("\n"), ast.parse(source)
    fields = [n for c in tree.body if isinstance(c, ast.ClassDef) and "Tolerances" in c.name for n in c.body]
    shared, silent = [], []
    for node in (*tree.body, *fields):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            names = [ast.unparse(e) for e in node.targets[0].elts]
            shared += [(node.lineno, name) for name in names if is_constant(name)]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and is_number(node.value):
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            after = "".join(lines[node.lineno - 1 : node.end_lineno]).partition("#")[2]
            before = lines[node.lineno - 2].strip() if node.lineno > 1 else ""
            if (is_constant(name) or node in fields) and not after.strip() and not before.startswith("#"):
                silent.append((node.lineno, name))
    return shared, silent


def found(package):
    """Places of both kinds in a package or file."""
    root, places = ROOT / package, []
    for path in sorted([root] if root.is_file() else root.rglob("*.py")):
        for kind, entries in zip(("shared line", "no reason"), without_reason(path.read_text(encoding="utf-8"))):
            places += [f"{path.relative_to(ROOT).as_posix()}:{line} {name}: {kind}" for line, name in entries]
    return places


@pytest.mark.parametrize("package", sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
def test_constants_have_a_line_and_a_reason(package):
    places = found(package)
    assert len(places) <= LEFT.get(package, 0), places


# Classes of constants; the words of their reasons decide, in this order.
CLASSES = {
    "tuned": r"tuned",
    "budget": r"budget|memory|\bMB\b|at a time|at once|seconds|\btime\b",
    "rounding": r"rounding|\beps\b|float64|roots? of eps",
    "statistical": r"statistics|standard (error|deviation)|false alarm|chance|probabilit|signific|confidence|quantile",
    "design": r"",
}


@dataclass(frozen=True)
class Constant:
    """An entry of the register: file below skident, name without underscore, value, its reason with the unit."""

    path: str
    name: str
    value: str
    reason: str

    @property
    def kind(self):
        return next(kind for kind, words in CLASSES.items() if re.search(words, self.reason))


@functools.cache
def register():
    """Every module constant that is a number."""
    entries = []
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        lines = source.split("\n")
        for node in ast.parse(source).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and is_number(node.value):
                name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
                after = "".join(lines[node.lineno - 1 : node.end_lineno]).partition("#")[2].strip()
                reason = after or lines[node.lineno - 2].strip("# ")
                if is_constant(name):
                    place = path.relative_to(ROOT).as_posix()
                    entries.append(Constant(place, name.lstrip("_"), ast.unparse(node.value), reason))
    return entries


def test_classes_of_constants():
    reasons = ["of the largest (budget)", "500 eps", "standard errors", "tuned on relu/large", "of a step"]
    kinds = [Constant("", "", "", reason).kind for reason in reasons]
    assert kinds == ["budget", "rounding", "statistical", "tuned", "design"]


def test_a_constant_has_one_home():
    homes = {}
    for one in register():
        homes.setdefault((one.name, one.value), []).append(one.path)
    assert {key: paths for key, paths in homes.items() if len(paths) > 1} == {}
    assert sum(map(len, homes.values())) <= MOST


def test_constants_without_a_reason_are_seen():
    source = (
        "_A, _B = 1, 2\n_TOL = 1e-9\n_STEPS = 20  # budget\n# Rounding of one output.\n_EPS = 2e-16\n_NAMES = ('a',)\n"
    )
    assert without_reason(source) == ([(1, "_A"), (1, "_B")], [(2, "_TOL")])
    assert without_reason("class Tolerances:\n    rank: float = 1e-8\n")[1] == [(2, "rank")]


if __name__ == "__main__" and "--register" in sys.argv:
    for one in register():
        print(one.path, one.name, one.value, one.kind, one.reason, sep="\t")
elif __name__ == "__main__":
    print("\n".join(found(sys.argv[1] if len(sys.argv) > 1 else ".")))
