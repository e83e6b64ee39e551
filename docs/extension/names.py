"""Names that pages link to: public names, terms of the glossary, and names of other projects.

Pages of other projects are listed here rather than read from their inventories: the build opens no connection.
"""

import re
from functools import cache
from pathlib import Path

from extension import api

GLOSSARY = Path(__file__).parents[1] / "glossary.md"
NUMPY = "https://numpy.org/doc/stable"
PYTHON = "https://docs.python.org/3/library"
SKLEARN = "https://scikit-learn.org/stable"
OTHERS = {
    **dict.fromkeys(["int", "float"], f"{PYTHON}/stdtypes.html#numeric-types-int-float-complex"),
    **{name: f"{PYTHON}/stdtypes.html#{name}" for name in ("str", "dict", "list", "tuple")},
    "bool": f"{PYTHON}/stdtypes.html#boolean-type-bool",
    "callable": f"{PYTHON}/functions.html#callable",
    "array-like": f"{NUMPY}/glossary.html#term-array_like",
    "ndarray": f"{NUMPY}/reference/generated/numpy.ndarray.html",
    "RandomState": f"{NUMPY}/reference/random/legacy.html#numpy.random.RandomState",
    "numpy.random.RandomState": f"{NUMPY}/reference/random/legacy.html#numpy.random.RandomState",
    "Generator": f"{NUMPY}/reference/random/generator.html#numpy.random.Generator",
    "torch.nn.Module": "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
    "onnx.ModelProto": "https://onnx.ai/onnx/api/classes.html#modelproto",
    "Axes": "https://matplotlib.org/stable/api/_as_gen/matplotlib.axes.Axes.html",
    "matplotlib Axes": "https://matplotlib.org/stable/api/_as_gen/matplotlib.axes.Axes.html",
    "estimator": f"{SKLEARN}/glossary.html#term-estimator",
}


@cache
def pages():
    """Page of every public name."""
    return {name: f"api/{package}/{name}" for package, name, _ in api.public_objects()}


@cache
def terms():
    """Id of every term of the glossary, the longest first, in lower case."""
    lines = re.findall(r"^(\w.*)\n: ", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {term.strip().lower(): id_of(line) for line in lines for term in line.split(",")}
    return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))


def id_of(term):
    """Anchor of a term on the glossary's page."""
    return "term-" + re.sub(r"\W+", "-", term.lower()).strip("-")


def pieces(text, names):
    """A text in parts: strings, and tuples of a name that is known."""
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    parts = re.split(rf"(?<![\w.\-\"'])({words})(?=s?(?![\w\-]))", text)
    return [part if i % 2 == 0 else (part,) for i, part in enumerate(parts) if part]
