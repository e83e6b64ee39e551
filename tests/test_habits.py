"""Habits of the tests that a reviewer need not look for."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
EXPECTATIONS = {"raises", "warns", "deprecated_call"}


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
