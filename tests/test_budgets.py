"""Room that the package may take: code lines, numerical kernels and constants, which may only become fewer.

``python -m tests.test_budgets`` prints today's figures.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.test_constants import register
from tests.test_sizes import SOURCES, n_code_lines

LINES = {
    "__init__": 49,
    "__main__": 3,
    "audit": 1754,
    "base": 589,
    "budget": 249,
    "cli": 457,
    "compression": 305,
    "datasets": 304,
    "fitting": 2300,
    "hierarchical": 2833,
    "identification": 21248,
    "inspection": 523,
    "landscape": 2810,
    "linalg": 918,
    "metrics": 231,
    "network": 4319,
    "optim": 612,
    "oracle": 1575,
    "saddle": 1873,
    "samples": 3232,
    "training": 158,
}
# Calls of least squares, singular values and pseudo-inverses outside `linalg`, `optim` and `fitting`, their homes.
KERNELS = {
    "audit": 2,
    "compression": 1,
    "datasets": 2,
    "hierarchical": 2,
    "identification": 147,
    "landscape": 7,
    "metrics": 2,
    "network": 2,
    "saddle": 5,
    "samples": 17,
}
CONSTANTS = {"budget": 391, "design": 1837, "rounding": 194, "statistical": 235, "tuned": 33}  # by class
_HOMES = ("linalg", "optim", "fitting")
_NAMES = ("lstsq", "svd", "svdvals", "pinv")
_FREE = 0.05  # share of the room that may be free, so that not every change has to count


def n_kernels(source):
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return sum(ast.unparse(call).split(".")[-1] in _NAMES for call in calls)


def figures():
    """Code lines and kernels by package, constants by class."""
    lines, kernels = Counter(), Counter()
    for path, source in SOURCES.items():
        package = Path(path).parts[0].removesuffix(".py")
        lines[package] += n_code_lines(source)
        kernels[package] += n_kernels(source) * (package not in _HOMES)
    return lines, +kernels, Counter(one.kind for one in register())


ROOMS = dict(zip(("lines", "kernels", "constants"), zip((LINES, KERNELS, CONSTANTS), figures(), strict=True)))


@pytest.mark.parametrize("kind", ROOMS)
def test_nothing_takes_more_room(kind):
    room, used = ROOMS[kind]
    more = {name: f"{n}, room for {room.get(name, 0)}" for name, n in used.items() if n > room.get(name, 0)}
    assert not more, "a new route names what it replaces, and the old one goes in the same commit"


@pytest.mark.parametrize("kind", ROOMS)
def test_room_that_became_free_is_given_back(kind):
    room, used = ROOMS[kind]
    assert {name: n for name, n in room.items() if used[name] < (1 - _FREE) * n - 10} == {}


if __name__ == "__main__":
    for name, (_, used) in ROOMS.items():
        print(f"{name.upper()} = {dict(sorted(used.items()))}  # {sum(used.values())}")
