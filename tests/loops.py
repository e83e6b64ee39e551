"""Which loops of the package meet the deadline: `check_deadline`, a query, or a kernel that does one of them."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cached_property
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "skident"
# Names that check the deadline themselves: the budget's, those of an oracle, and of objects that are called like one.
CHECKS = {"check_deadline", "late", "out_of_time", "spent"}
QUERIES = {"query", "query_inputs", "query_precise", "query_twice", "query_in_parallel", "derivatives_at_inputs"}
ORACLES = {"oracle", "probe", "labels", "outputs"}
# Numerical routines of scipy, which do not check it. Those of `skident.linalg.lapack` do.
SCIPY = {"lstsq", "qr", "svd", "eigh", "null_space", "orth", "linprog", "lsq_linear", "least_squares", "lsqr"}
SCIPY |= {"minimize", "minimize_scalar", "linear_sum_assignment"}
SEARCHES = ("starts", "candidates", "attempts", "guesses", "trials", "tries", "choices", "product", "permutations")
LOOPS = (ast.While, ast.For, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_HOPS = 5  # modules through which a name is imported, at most


class CallGraph:
    """Functions of a package by (module, qualified name), and which functions a call may run."""

    def __init__(self, folder=PACKAGE):
        self.functions, self.methods, self.names, self.imports = {}, defaultdict(set), {}, {}
        self._known_facts = {}
        for path in sorted(folder.rglob("*.py")):
            self.add(path.relative_to(folder.parent), path.read_text(encoding="utf-8"))

    def add(self, path, source):
        """Read a file."""
        parts = path.with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        self.names[module], self.imports[module] = defaultdict(set), {}
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                above = module.split(".")
                above = above[: len(above) - node.level + is_package] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                for name in node.names:
                    self.imports[module][name.asname or name.name] = base, name.name
        self._define(tree, module, "")

    def _define(self, node, module, prefix):
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}."
                self.names[module][child.name].add(name[:-1])
            if isinstance(child, ast.FunctionDef):
                self.functions[module, name[:-1]] = child
                self.methods[child.name].add((module, name[:-1]))
            self._define(child, module, name)

    def named(self, module, name, hops=0):
        """Functions that a name in a module may stand for; of a class, what its construction runs."""
        own = self.names.get(module, {}).get(name, ())
        ends = ("", ".__init__", ".__post_init__")
        found = {(module, one + end) for one in own for end in ends} & self.functions.keys()
        if not own and hops < _HOPS and name in self.imports.get(module, {}):
            return self.named(*self.imports[module][name], hops + 1)
        return found

    def called(self, module, call):
        """The name by which a call is made, and the functions that it may run."""
        match call.func:
            case ast.Name(id=name):
                return name, self.named(module, name)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in self.imports[module]:
                return name, self.named(".".join(self.imports[module][owner]), name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return name, {key for key in self.methods[name] if key[0] == module} or self.methods[name]
            case ast.Attribute(attr=name):
                return name, self.methods[name]
        return "", set()

    def meets(self, module, node, known=None):
        """Whether a node checks the deadline, or calls what does so, whichever function of that name is run."""
        checks, _, functions = self._facts(module, node)
        known = self.meeting if known is None else known
        return checks or any(some <= known for some in functions)

    def takes_long(self, module, node, known=None):
        """Whether a node calls scipy's routines, loops without a bound, or calls what does so."""
        _, long, functions = self._facts(module, node)
        known = self.long if known is None else known
        return long or any(some <= known for some in functions)

    def _facts(self, module, node):
        """Whether a node checks the deadline itself, and takes long itself; and the functions of each of its calls."""
        if node not in self._known_facts:
            checks, long, functions = False, False, []
            for one in ast.walk(node):
                checks |= isinstance(one, ast.Attribute) and one.attr in CHECKS
                long |= isinstance(one, ast.While)
                if isinstance(one, ast.Call):
                    name, some = self.called(module, one)
                    checks |= name in CHECKS | QUERIES | ORACLES or _owner(one) == "lapack"
                    long |= name in SCIPY and not some and _owner(one) in ("", "scipy.linalg", "scipy.optimize")
                    functions += [some] if some else []
            self._known_facts[node] = checks, long, functions
        return self._known_facts[node]

    @cached_property
    def meeting(self):
        """Functions that meet the deadline."""
        return self._closed(self.meets)

    @cached_property
    def long(self):
        """Functions that can take long."""
        return self._closed(self.takes_long)

    def _closed(self, holds):
        found = set()
        while new := {k for k, f in self.functions.items() if k not in found and holds(k[0], f, found)}:
            found |= new
        return found

    def unbounded(self, *packages):
        """Loops that need the deadline and do not meet it: (module, function, what is looped over)."""
        found = []
        for (module, name), function in self.functions.items():
            if module.startswith(packages):
                found += [
                    (module, name, over) for loop, over in _loops(function) if self._is_unbounded(module, loop, over)
                ]
        return sorted(found)

    def _is_unbounded(self, module, loop, over):
        """Whether a loop that has no bound, tries candidates or starts, or takes long, does not meet the deadline.

        A loop over candidates that calls nothing only reads arrays.
        """
        if isinstance(loop, ast.While):
            needed = True
        elif isinstance(loop, ast.For):
            body = ast.Module(loop.body, [])
            calls = any(isinstance(node, ast.Call) for node in ast.walk(body))
            needed = (calls and any(word in over.lower() for word in SEARCHES)) or self.takes_long(module, body)
        else:
            needed = self.takes_long(module, loop)
        return needed and not self.meets(module, loop)


def _owner(call):
    """What a call is an attribute of; empty for a plain name."""
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _loops(function):
    """Loops of a function, not of those defined in it, and what they run over."""
    stack = list(ast.iter_child_nodes(function))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        stack += ast.iter_child_nodes(node)
        if isinstance(node, LOOPS):
            first = node.generators[0] if hasattr(node, "generators") else node
            over = first.test if isinstance(node, ast.While) else first.iter
            yield node, ast.unparse(over)
