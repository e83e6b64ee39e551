"""Habits of the tests that a reviewer need not look for."""

import ast
from pathlib import Path

import pytest

from tests.conftest import SLOW_FILES

TESTS = Path(__file__).parent
EXPECTATIONS = {"raises", "warns", "deprecated_call"}
OWN_SECONDS = "own_seconds"  # the fixture that counts the seconds of this process
# Short tests whose seconds are those of other processes, which the fixture does not reach.
ELSEWHERE = {"test_time_ends_elsewhere_too"}


def is_expectation(node):
    """Whether a node is a call of pytest.raises or pytest.warns."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="pytest"), attr=name)):
            return name in EXPECTATIONS
    return False


def says_something(call):
    """Whether a message is matched, by more than wildcards if it is written there."""
    match = next((keyword.value for keyword in call.keywords if keyword.arg == "match"), None)
    text = match.value if isinstance(match, ast.Constant) else None
    empty = text == "^$"  # an interrupt says nothing
    return match is not None and (text is None or empty or sum(letter.isalnum() for letter in text) > 2)


def mute_expectations(source):
    """Lines where an error or a warning is expected, and nothing said about its message."""
    calls = [node for node in ast.walk(ast.parse(source)) if is_expectation(node)]
    return sorted(call.lineno for call in calls if not says_something(call))


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.relative_to(TESTS).as_posix())
def test_expected_errors_are_recognised_by_what_they_say(path):
    assert mute_expectations(path.read_text(encoding="utf-8")) == []


def test_mute_expectations_are_seen():
    source = "\n".join(
        [
            "with pytest.raises(ValueError): f()",
            "with pytest.raises(ValueError, match='.*'): f()",
            "with pytest.warns(UserWarning) as found: f()",
            "with pytest.raises(ValueError, match='too few rows'): f()",
            "with pytest.warns(UserWarning, match=message): f()",
        ]
    )
    assert mute_expectations(source) == [1, 2, 3]


def spends_seconds(node):
    """Whether a function passes ``max_seconds`` that may end, or asserts how long something takes."""
    for one in ast.walk(node):
        if isinstance(one, ast.keyword) and one.arg == "max_seconds" and not isinstance(one.value, ast.Name):
            return not (isinstance(one.value, ast.Constant) and one.value.value is None)
        if isinstance(one, ast.arg) and one.arg == "max_seconds":
            return True
        if isinstance(one, ast.Assert) and "perf_counter() - " in ast.unparse(one):
            return True
    return False


def load_dependent(source):
    """Short tests that depend on the load of the machine: they spend seconds, or a helper does, without the fixture."""
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    spending = {name for name, node in functions.items() if spends_seconds(node)}
    while new := {
        name
        for name, node in functions.items()
        if name not in spending and spending & {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    }:
        spending |= new
    everywhere = any(isinstance(node, ast.Assign) and OWN_SECONDS in ast.unparse(node) for node in tree.body)
    found = []
    for name in sorted(spending if not everywhere else ()):
        node = functions[name]
        marks = " ".join(map(ast.unparse, node.decorator_list))
        arguments = {one.arg for one in node.args.args}
        if name.startswith("test_") and OWN_SECONDS not in arguments and OWN_SECONDS not in marks:
            found += [] if "mark.slow" in node_marks(node) else [name]
    return found


def node_marks(node):
    """Decorators of a function that are marks themselves."""
    return [ast.unparse(one).removeprefix("pytest.") for one in node.decorator_list if isinstance(one, ast.Attribute)]


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(TESTS.rglob("test_*.py")) if path.name not in SLOW_FILES],
    ids=lambda path: path.relative_to(TESTS).as_posix(),
)
def test_short_tests_do_not_depend_on_the_load_of_the_machine(path):
    assert set(load_dependent(path.read_text(encoding="utf-8"))) <= ELSEWHERE


def test_dependence_on_the_load_is_seen():
    source = "\n".join(
        [
            "def fitted(model): return Identifier(model, max_seconds=2).fit(X)",
            "def test_helper(): fitted(1)",
            "def test_with_the_fixture(own_seconds): fitted(1)",
            "@pytest.mark.slow\ndef test_slow(): fitted(1)",
            "def test_time(): assert time.perf_counter() - began < 1.0",
            "def test_without_a_limit(): Identifier(1, max_seconds=None)",
        ]
    )
    assert load_dependent(source) == ["test_helper", "test_time"]
    assert load_dependent('pytestmark = pytest.mark.usefixtures("own_seconds")\n' + source) == []
