"""Benchmarks measure on seeds that no test has seen: their ranges are data, the tests' are read off the sources."""

import ast
import importlib.util
import itertools
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
BENCHMARKS = TESTS.parent / "benchmarks"
SEED_NAMES = {"random_state", "seed", "seeds"}
SEEDED_CALLS = {"RandomState", "default_rng", "manual_seed", "seed", "RNG"}


def module_from(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RANGES = module_from(BENCHMARKS / "seed_ranges.py").RANGES


def values(node, known):
    """Integers that an expression can be; `known` has the expressions that a name runs through, others count as 0."""
    match node:
        case ast.Constant(value=int() as value):
            return {value}
        case ast.Name(id=name):
            without = {other: nodes for other, nodes in known.items() if other != name}
            return set().union(*(values(node, without) for node in known.get(name, ()))) or {0}
        case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Mult() as op):
            pairs = itertools.product(values(left, known), values(right, known))
            return {a + b if isinstance(op, ast.Add) else a * b for a, b in pairs}
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return set().union(*(values(item, known) for item in items))
        case ast.Call(func=ast.Name(id="range"), args=[*bounds]):
            return {i for b in itertools.product(*(values(bound, known) for bound in bounds)) for i in range(*b)}
        case _:
            return set()


def bound(target, node):
    """Pairs of name and expression that running `target` through `node` binds."""
    if isinstance(target, str):
        yield target, node
    elif isinstance(node, (ast.List, ast.Tuple)):
        rows = [row.elts for row in node.elts if isinstance(row, (ast.List, ast.Tuple))]
        yield from ((name, cell) for row in rows for name, cell in zip(target, row))


def bindings(scope):
    """Names in a function or a module and the expressions they run through: parametrized, looped over, or a default."""
    pairs = []
    for decorator in getattr(scope, "decorator_list", ()):
        match decorator:
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[ast.Constant(value=name), node, *_]):
                pairs += bound(name, node)
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[ast.Tuple(elts=names), node, *_]):
                pairs += bound([name.value for name in names], node)
    for node in own_nodes(scope):
        if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
            pairs += bound(node.target.id, node.iter)
        elif isinstance(node, ast.Dict):
            pairs += [(getattr(key, "value", None), value) for key, value in zip(node.keys, node.values)]
    if isinstance(scope, ast.FunctionDef):
        a = scope.args
        named = [*a.posonlyargs, *a.args]
        defaults = [*zip(reversed(named), reversed(a.defaults)), *zip(a.kwonlyargs, a.kw_defaults)]
        pairs += [(argument.arg, default) for argument, default in defaults if default is not None]
    return pairs


def own_nodes(scope):
    """What stands in a scope, without what stands in the functions in it; those functions themselves are yielded."""
    stack = list(scope.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.FunctionDef):
            stack += ast.iter_child_nodes(node)


def seed_arguments(call, positions):
    """The expressions of a call that are seeds; `positions` says where functions of the same file take one."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    place = 0 if name in SEEDED_CALLS else positions.get(name)
    found = [keyword.value for keyword in call.keywords if keyword.arg in SEED_NAMES]
    return found + (call.args[place : place + 1] if place is not None else [])


def seed_positions(tree):
    """Where the functions of a file take a seed, by name."""
    positions = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        names = [a.arg for a in function.args.posonlyargs + function.args.args if a.arg not in ("self", "cls")]
        taken = [i for i, name in enumerate(names) if name in SEED_NAMES]
        positions |= {function.name: taken[0]} if taken else {}
    return positions


def seeds_of(source):
    """Every integer that seeds something in a file, with the line."""
    tree, found = ast.parse(source), set()
    positions = seed_positions(tree)

    def visit(scope, known):
        known = {name: list(nodes) for name, nodes in known.items()}
        for name, node in bindings(scope):
            known.setdefault(name, []).append(node)
            if name in SEED_NAMES:
                found.update((seed, node.lineno) for seed in values(node, known))
        for node in own_nodes(scope):
            if isinstance(node, ast.Call):
                expressions = seed_arguments(node, positions)
                found.update((seed, node.lineno) for e in expressions for seed in values(e, known))
            elif isinstance(node, ast.FunctionDef):
                visit(node, known)

    visit(tree, {})
    return found


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.relative_to(TESTS).as_posix())
def test_no_test_looks_at_a_benchmark_s_seed(path):
    seeds = seeds_of(path.read_text(encoding="utf-8"))
    taken = [(seed, line, name) for seed, line in seeds for name, numbers in RANGES.items() if seed in numbers]
    assert not taken, f"{path.name}: seeds, lines, and whose they are: {sorted(taken)}"


def test_the_ranges_are_apart():
    ordered = sorted(RANGES.values(), key=lambda numbers: numbers.start)
    assert all(a.stop <= b.start for a, b in itertools.pairwise(ordered))
    assert len(RANGES) > 15 and all(numbers.step == 1 and len(numbers) > 0 for numbers in ordered)


@pytest.mark.parametrize("path", sorted(BENCHMARKS.rglob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_takes_its_seeds_from_the_ranges(path):
    """A seed that is written out is a method's own state, below 10; `FIRST_SEED` is a range's start."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        written = seed_arguments(node, {}) if isinstance(node, ast.Call) else []
        constants = [seed.value for seed in written if isinstance(seed, ast.Constant)]
        assert all(constant in range(10) for constant in constants), ast.unparse(node)
        targets = [target for t in getattr(node, "targets", ()) for target in getattr(t, "elts", [t])]
        if any(getattr(target, "id", "") == "FIRST_SEED" for target in targets):
            assert ast.unparse(node.value) in {f"seed_ranges.{name}.start" for name in RANGES}


SOURCES = [
    ("np.random.RandomState(5)", {5}),
    ("def f(seed=3): pass\nf(7)", {3, 7}),
    ("@pytest.mark.parametrize('seed', [1, 2])\ndef f(seed):\n  make(random_state=100 + seed)", {1, 2, 101, 102}),
    ("@pytest.mark.parametrize(('D', 'seed'), [(2, 0), (3, 9)])\ndef f(D, seed):\n  rng(seed=10 * D)", {0, 9, 20, 30}),
    ("def f():\n  return [g(random_state=s) for s in range(4, 6)]", {4, 5}),
    ("for s in (8, 9): h(seed=s)", {8, 9}),
    ("def f(rng):\n  torch.manual_seed(6)", {6}),
    ("OPTIONS = {'random_state': 11, 'depth': 12}", {11}),
]


@pytest.mark.parametrize(("source", "seeds"), SOURCES)
def test_seeds_are_seen(source, seeds):
    assert {seed for seed, _ in seeds_of(source)} == seeds
