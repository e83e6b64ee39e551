"""Which loops of the package meet the deadline: `check_deadline`, a query, or a kernel that does one of them."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cached_property
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "skident"
# What checks the deadline itself: the budget, and every query of an oracle, also through objects that wrap one.
CHECKS = {"check_deadline", "late", "out_of_time", "spent", "query_in_parallel"}
QUERIES = {"query", "query_inputs", "query_precise", "query_twice", "jacobian_of", "derivatives_at_inputs"}
ORACLES = {"oracle", "probe", "labels", "outputs"}  # called like a function
SCIPY = {"lstsq", "qr", "svd", "eigh", "null_space", "orth", "linprog", "lsq_linear", "least_squares", "lsqr"}
SCIPY |= {"minimize", "minimize_scalar", "linear_sum_assignment"}
SEARCHES = {"start", "candidate", "choice", "attempt", "guess", "trial", "tries", "product", "permutations", "signs"}
LOOPS = ast.While | ast.For | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class CallGraph:
    """Functions of the package by (module, qualified name), and what their calls resolve to."""

    def __init__(self, folder=PACKAGE):
        self.functions, self.methods, self.local, self.imports = {}, defaultdict(set), {}, {}
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            module, is_package = ".".join(p for p in parts if p != "__init__"), parts[-1] == "__init__"
            self.local[module], self.imports[module] = {}, {}
            self._read(ast.parse(path.read_text(encoding="utf-8")), module, "", is_package)

    def _read(self, node, module, prefix, is_package):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    parts = module.split(".")
                    kept = parts[: len(parts) - child.level + is_package]
                    base = ".".join([*kept, base] if base else kept)
                for name in child.names:
                    self.imports[module][name.asname or name.name] = (base, name.name)
            inner = prefix
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = f"{prefix}{child.name}."
                self.local[module].setdefault(child.name, set()).add(f"{prefix}{child.name}")
            if isinstance(child, ast.FunctionDef):
                key = (module, f"{prefix}{child.name}")
                self.functions[key] = child
                self.methods[child.name].add(key)
            self._read(child, module, inner, is_package)

    def named(self, module, name, depth=0):
        """Functions that a plain name in a module stands for; constructors of a class."""
        keys = set()
        for qualified in self.local.get(module, {}).get(name, ()):
            for key in (qualified, f"{qualified}.__init__", f"{qualified}.__post_init__"):
                keys |= {(module, key)} & self.functions.keys()
        if not keys and depth < 5 and name in self.imports.get(module, {}):
            return self.named(*self.imports[module][name], depth + 1)
        return keys

    def called(self, module, call):
        """Functions that a call may run, and the name by which it is called."""
        if isinstance(call.func, ast.Name):
            return self.named(module, call.func.id), call.func.id
        if isinstance(call.func, ast.Attribute):
            owner, name = call.func.value, call.func.attr
            if isinstance(owner, ast.Name):
                base = ".".join(filter(None, self.imports[module].get(owner.id, ())))
                if base in self.local:
                    return self.named(base, name), name
                if owner.id == "self":
                    own = {key for key in self.methods[name] if key[0] == module}
                    return own or self.methods[name], name
            return self.methods[name], name
        return set(), ""

    def calls(self, module, node):
        for one in ast.walk(node):
            if isinstance(one, ast.Call):
                yield self.called(module, one)
            elif isinstance(one, ast.Attribute) and one.attr in CHECKS:
                yield set(), one.attr

    @cached_property
    def meeting(self):
        """Functions that meet the deadline."""
        found = set()
        while new := {
            key for key, node in self.functions.items() if key not in found and self.meets(key[0], node, found)
        }:
            found |= new
        return found

    def meets(self, module, node, found=None):
        """Whether a node checks the deadline, or calls something that does whatever of its name is run."""
        found = self.meeting if found is None else found
        for keys, name in self.calls(module, node):
            if name in CHECKS | QUERIES | ORACLES or (name == "svd" and keys) or (keys and keys <= found):
                return True
            if any(key[0] == "skident.linalg.lapack" for key in keys):
                return True
        for one in ast.walk(node):
            if (
                isinstance(one, ast.Call)
                and isinstance(one.func, ast.Attribute)
                and ast.unparse(one.func).startswith("lapack.")
            ):
                return True
        return False

    @cached_property
    def long(self):
        """Functions that can take long: they factorize, or search in a loop that needs the deadline."""
        found = set()
        while new := {
            key for key, node in self.functions.items() if key not in found and self.takes_long(key[0], node, found)
        }:
            found |= new
        return found

    def takes_long(self, module, node, found):
        for one in ast.walk(node):
            if isinstance(one, ast.While):
                return True
            if isinstance(one, ast.Call):
                keys, name = self.called(module, one)
                exact = not isinstance(one.func, ast.Attribute) or len(keys) == 1
                if (
                    keys & found
                    and (exact or keys <= found)
                    or (name in SCIPY and ast.unparse(one.func).startswith(("scipy.", name)))
                ):
                    return True
        return False
