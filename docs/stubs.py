"""Writes the type stubs of packages from signatures and docstrings; those of network, oracle and metrics are by hand.

python docs/stubs.py

A type of a docstring becomes an annotation where it has one ("int, default=3", "list of ndarray"), else `Any`.
"""

import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1] / "skident"
PACKAGES = ("audit", "budget", "compression", "datasets", "hierarchical", "identification", "inspection", "landscape",
            "linalg", "optim", "saddle", "samples")  # fmt: skip
BY_HAND = ("network", "oracle", "metrics")
PLAIN = {"int", "float", "bool", "str", "object", "None", "dict", "tuple"}
NAMES = {
    "array-like": "ArrayLike", "array-likes": "ArrayLike", "ndarray": "Array", "ndarrays": "Array", "callable": "Call",
    "RandomState": "RandomState", "numpy.random.RandomState": "RandomState", "Generator": "Generator",
    "torch.nn.Module": "Module", "dict": "dict[Any, Any]", "tuple": "tuple[Any, ...]", "ints": "int",
}  # fmt: skip
HEADER = """from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import ArrayLike, NDArray
from torch.nn import Module

"""
ALIASES = "Array: TypeAlias = NDArray[Any]\nCall: TypeAlias = Callable[..., Any]\n"


@cache
def homes():
    """Package of every public class, by name."""
    found = {}
    for package in (*BY_HAND, *PACKAGES):
        module = importlib.import_module(f"skident.{package}")
        found.update({name: package for name in module.__all__ if inspect.isclass(getattr(module, name))})
    return found


# -- types of docstrings -----------------------------------------------------------------------------------------------


def documented(thing, section):
    """Types of a docstring's section, by name."""
    text = inspect.getdoc(thing) or ""
    found = re.search(rf"(?:^|\n){section}\n-+\n(.*?)(?=\n\n?\S[^\n]*\n---|\Z)", text, flags=re.DOTALL)
    entries = re.findall(r"(?m)^([\w*, ]+?) : (.*)$", found[1]) if found else []
    return {name.strip(" *"): kind for names, kind in entries for name in names.split(",")}


def returned(thing):
    """Annotation of what a function returns: one value of a type, or several."""
    text = inspect.getdoc(thing) or ""
    found = re.search(r"\n(?:Returns|Yields)\n-+\n(.*?)(?=\n\n|\Z)", text, flags=re.DOTALL)
    if not found:
        return "Any"
    lines = [line for line in found[1].splitlines() if line and not line.startswith(" ")]
    kinds = [annotation(line.partition(" : ")[2] or line) for line in lines]
    kind = kinds[0] if len(kinds) == 1 else f"tuple[{', '.join(kinds)}]"
    return f"AbstractContextManager[{kind}]" if "\nYields\n" in text else kind


def split(text):
    """Alternatives of a type: parts between commas and "or", outside brackets and quotes."""
    parts, depth = [""], 0
    for token in re.findall(r"\bor\b|[(){}\[\],]|\"[^\"]*\"|[^\s(){}\[\],]+|\s+", text):
        depth += (token in "({[") - (token in ")}]")
        if depth == 0 and token in (",", "or"):
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts if part.strip()]


def single(part):
    """Annotation of one alternative."""
    if match := re.fullmatch(r"\{(.*)\}", part):
        return f"Literal[{match[1]}]"
    if re.fullmatch(r'"[^"]*"', part):
        return f"Literal[{part}]"
    if match := re.fullmatch(r"(list|sequence|tuple) of (?:[A-Z0-9] )?(.*)", part):
        inner = single(match[2].removesuffix("s") if match[2] in ("ints", "ndarrays", "arrays") else match[2])
        return {"list": f"list[{inner}]", "sequence": f"Sequence[{inner}]", "tuple": f"tuple[{inner}, ...]"}[match[1]]
    if part in NAMES:
        return NAMES[part]
    return part if part in PLAIN or part in homes() or part == "Self" else "Any"


def annotation(text):
    """Annotation of the type that a docstring states."""
    text = re.sub(r",?\s*default[ =:].*$", "", text)
    text = re.sub(r",? (?:of )?shape \([^()]*(?:\([^()]*\)[^()]*)*\)(?: or \([^()]*\))*", "", text)
    text = text.replace("of length D", "").replace("RandomState instance", "RandomState").strip()
    kinds = ["Self"] if text == "self" else list(dict.fromkeys(map(single, split(text))))
    return "Any" if "Any" in kinds or not kinds else " | ".join(kinds)


# -- stubs of functions and classes ------------------------------------------------------------------------------------


def with_none(kind, default):
    return f"{kind} | None" if default is None and "None" not in kind and kind != "Any" else kind


def parameters(function, types, bound=False):
    """Parameters with annotations; the first of a method has none."""
    found, starred = [], False
    for i, (name, p) in enumerate(inspect.signature(function).parameters.items()):
        if p.kind is p.KEYWORD_ONLY and not starred:
            found.append("*")
        starred |= p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        kind = annotation(types[name]) if name in types and not stars else "Any"
        entry = stars + name if bound and i == 0 else f"{stars}{name}: {with_none(kind, p.default)}"
        found.append(entry if p.default is p.empty else f"{entry} = ...")
    return ", ".join(found)


def summary(thing, indent=""):
    """First line of a docstring as a line of code: editors show it."""
    line = (inspect.getdoc(thing) or "").partition("\n")[0].replace("\\", "\\\\")
    return [f'{indent}    """{line}"""'] if line else [f"{indent}    ..."]


def function_stub(name, function, indent="", bound=False, mark=""):
    inner = parameters(function, documented(function, "Parameters"), bound)
    lines = [f"{indent}@{mark}"] if mark else []
    return [*lines, f"{indent}def {name}({inner}) -> {returned(function)}:", *summary(function, indent)]


def method_stubs(thing, names, types):
    """Stubs of methods and properties of a class."""
    for name in names:
        member = inspect.getattr_static(thing, name)
        if isinstance(member, classmethod | staticmethod):
            kind = type(member).__name__
            yield from function_stub(name, member.__func__, "    ", kind == "classmethod", kind)
        elif callable(member) and hasattr(member, "__code__"):
            yield from function_stub(name, member, "    ", True)
        elif isinstance(member, property):
            kind = annotation(types.get(name, ""))
            kind = returned(member.fget) if kind == "Any" else kind
            yield from ("    @property", f"    def {name}(self) -> {kind}: ...")
        else:  # methods that exist under a condition, cached properties, defaults of the class
            yield f"    {name}: {annotation(types[name]) if name in types else 'Any'}"


def bases_of(thing):
    """Public bases of a class: those of scikit-learn, Python and the stubs themselves."""
    mro = thing.__mro__[1:-1]
    outside = ("sklearn.base", "builtins", "torch.nn.modules.module")
    known = [b for b in mro if b.__module__ in outside or homes().get(b.__name__)]
    known = [b for b in known if not b.__name__.startswith("_") and b is not tuple]
    return [b for b in known if not any(issubclass(other, b) and other is not b for other in known)]


def class_stub(name, thing):
    types = {**documented(thing, "Parameters"), **documented(thing, "Attributes")}
    bases, is_data, is_tuple = bases_of(thing), dataclasses.is_dataclass(thing), hasattr(thing, "_fields")
    written = ["NamedTuple"] if is_tuple else ["dict[Any, Any]" if b is dict else b.__name__ for b in bases]
    inherited = {n for b in (*bases, *((tuple,) if is_tuple else ()), object) for n in dir(b)}
    own = [n for n in dir(thing) if not n.startswith("_") and n not in inherited]
    own += [n for n in ("fit", "predict", "score", "transform", "__call__") if n in vars(thing) and n not in own]
    frozen = is_data and thing.__dataclass_params__.frozen
    lines = [f"@dataclass(frozen={frozen})"] if is_data else []
    lines += [f"class {name}({', '.join(written)}):" if written else f"class {name}:"]
    lines += [*summary(thing), ""]
    fields = [f.name for f in dataclasses.fields(thing)] if is_data else list(getattr(thing, "_fields", ()))
    described = [n for n in types if n.isidentifier() and not n.startswith("_") and n not in fields]
    skipped = set(described) & {n for n in own if isinstance(inspect.getattr_static(thing, n), property)}
    defaults = inspect.signature(thing).parameters if fields else {}
    for n in fields:
        default = defaults[n].default if n in defaults else inspect.Parameter.empty
        end = "" if default is inspect.Parameter.empty else " = ..."
        lines.append(f"    {n}: {with_none(annotation(types.get(n, '')), default)}{end}")
    given = getattr(thing.__init__, "__code__", None) and inspect.signature(thing).parameters
    given = {n: p.default for n, p in (given or {}).items()}
    attributes = [n for n in described if n not in skipped and n not in dir(thing)]
    lines += [f"    {n}: {with_none(annotation(types[n]), given.get(n, ''))}" for n in attributes]
    own_init = {n for c in thing.__mro__ if c not in (*bases, object) and c.__module__ != "builtins" for n in vars(c)}
    if not fields and "__init__" in own_init:
        inner = parameters(thing.__init__, documented(thing, "Parameters"), bound=True)
        lines.append(f"    def __init__({inner}) -> None: ...")
    lines += method_stubs(thing, [n for n in dict.fromkeys(own) if n not in fields], types)
    return lines


def stub(package):
    """Text of a package's stub."""
    module = importlib.import_module(f"skident.{package}")
    names, body = sorted(module.__all__), []
    for name in names:
        thing = getattr(module, name)
        body += class_stub(name, thing) if inspect.isclass(thing) else function_stub(name, thing)
    body, text = "\n".join(body), HEADER
    used = set(re.findall(r"\w+", body))
    for other in sorted({homes()[n] for n in used & set(homes()) if homes()[n] != package}):
        text += f"from skident.{other} import {', '.join(sorted(n for n in used if homes().get(n) == other))}\n"
    mixins = sorted(n for n in used if n.endswith("Mixin") or n == "BaseEstimator")
    text += f"from sklearn.base import {', '.join(mixins)}\n" if mixins else ""
    return f"{text}\n{ALIASES}\n__all__ = {names}\n\n{body}\n"


def formatted(text):
    """Text without unused imports, in the project's format."""
    command = [sys.executable, "-m", "ruff"]
    options = ["--stdin-filename", str(ROOT / "__init__.pyi"), "-"]
    for task in (["check", "--fix", "--quiet", "--select", "F401,I"], ["format", "--quiet"]):
        text = subprocess.run([*command, *task, *options], input=text, capture_output=True, text=True).stdout
    return text


if __name__ == "__main__":
    for one in PACKAGES:
        (ROOT / one / "__init__.pyi").write_text(formatted(stub(one)), encoding="utf-8")
