"""No loop of an identification or a fit goes on after the deadline."""

import ast
from pathlib import Path

import pytest

from tests.loops import PACKAGE, CallGraph

PACKAGES = ("skident.identification", "skident.fitting", "skident.compression")
# (module, function): why it ends soon. This list only gets shorter.
EXCEPTIONS = {
    ("skident.identification.activation.calibration", "declared_calibration"): "estimators within an estimator: a few",
}
FACTORIZATIONS = {"cholesky", "cond", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matrix_rank", "pinv", "qr"}
FACTORIZATIONS |= {"solve", "svd", "null_space", "orth", "cho_factor"}

LOOPS = {
    "while without a check": ("while left: left = halved(left)", True),
    "while with a check": ("while left:\n  check_deadline()\n  left = halved(left)", False),
    "while with a query": ("while left: left = oracle.query(left)[0]", False),
    "while with a kernel": ("while left: left = factorized(left)", False),
    "candidates": ("for one in candidates: halved(one)", True),
    "candidates, checked": ("for one in candidates: factorized(one)", False),
    "candidates that are only read": ("for one in candidates: left[one] = 0", False),
    "layers": ("for W in layers: halved(W)", False),
    "layers, with a search for each": ("for W in layers: descent(W)", True),
    "layers in a comprehension, with a search for each": ("return [descent(W) for W in layers]", True),
    "routine of scipy": ("for W in layers: scipy.linalg.lstsq(W, W)", True),
    "factorization": ("for W in layers: lapack.lstsq(W, W)", False),
}
DEFINITIONS = """
def halved(x): return x / 2
def factorized(x):
    check_deadline()
    return x
def descent(x):
    while x > 1: x = halved(x)
"""


@pytest.fixture(scope="module")
def graph():
    return CallGraph()


def test_loops_meet_the_deadline(graph):
    assert [loop for loop in graph.unbounded(*PACKAGES) if loop[:2] not in EXCEPTIONS] == []


def test_exceptions_are_needed(graph):
    assert EXCEPTIONS.keys() <= {loop[:2] for loop in graph.unbounded(*PACKAGES)}


@pytest.mark.parametrize(("loop", "unbounded"), LOOPS.values(), ids=LOOPS)
def test_loops_are_recognized(loop, unbounded, tmp_path):
    graph = CallGraph(tmp_path)
    body = loop.replace("\n", "\n    ")
    graph.add(Path("package/kernel.py"), f"{DEFINITIONS}\ndef f(left, candidates, layers, oracle):\n    {body}\n")
    assert ("f" in {name for _, name, _ in graph.unbounded("package")}) is unbounded


@pytest.mark.parametrize("package", PACKAGES)
def test_factorizations_check_the_deadline(package):
    """One call of LAPACK cannot be interrupted: `skident.linalg.lapack` does not begin what would end too late."""
    found = []
    for path in sorted((PACKAGE.parent / package.replace(".", "/")).rglob("*.py")):
        calls = [
            node.func for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
        ]
        names = {ast.unparse(function) for function in calls}
        found += [
            (path.name, name)
            for name in sorted(names)
            if name in {f"{library}.linalg.{f}" for library in ("np", "scipy") for f in FACTORIZATIONS}
        ]
    assert found == []
