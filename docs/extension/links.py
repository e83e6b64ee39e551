"""Links that nobody writes: from types of parameters to their pages, from a page's first use of a term to the glossary.

Pages of other projects are listed here rather than read from their inventories: the build opens no connection.
"""

import re
from functools import cache
from pathlib import Path

from docutils import nodes

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
UNLINKED = (nodes.reference, nodes.title, nodes.literal, nodes.table, nodes.math, nodes.rubric)


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


def link_types(app, doctree, page):
    """Link the names in types of parameters, attributes and results."""
    known = {**OTHERS, **dict.fromkeys(pages())}
    for node in list(doctree.findall(nodes.classifier)):
        parts = pieces(node.astext(), known)
        node.children = []
        for part in parts:
            node += nodes.Text(part) if isinstance(part, str) else _type_link(app, page, part[0])


def _type_link(app, page, name):
    target = OTHERS.get(name) or app.builder.get_relative_uri(page, pages()[name])
    return nodes.reference(name, name, refuri=target, internal=name not in OTHERS)


def link_terms(app, doctree, page):
    """Give the glossary's terms their anchors; link the first use of each in a guide."""
    if page == "glossary":
        for node in doctree.findall(nodes.term):
            node["ids"].append(id_of(node.astext()))
    if not page.startswith("guide/"):
        return
    left = dict(terms())
    for paragraph in list(doctree.findall(nodes.paragraph)):
        for text in [child for child in paragraph.findall(nodes.Text) if not _is_unlinked(child)]:
            _link_first_uses(app, page, text, left)


def _is_unlinked(text):
    parent = text.parent
    while parent is not None:
        if isinstance(parent, UNLINKED):
            return True
        parent = parent.parent
    return False


def _link_first_uses(app, page, text, left):
    """Put links into a text, and take the terms that have one now out of those that are left."""
    made, rest = [], text.astext()
    while found := re.search(rf"(?i)\b({'|'.join(map(re.escape, left)) or '(?!)'})(?=s?\b)", rest):
        target = f"{app.builder.get_relative_uri(page, 'glossary')}#{left.pop(found[1].lower())}"
        made += [nodes.Text(rest[: found.start()])]
        made += [nodes.reference(found[1], found[1], refuri=target, internal=True, classes=["term"])]
        rest = rest[found.end() :]
    if made:
        text.parent.replace(text, [*made, nodes.Text(rest)])


def setup(app):
    """Link when references are resolved."""
    app.connect("doctree-resolved", link_types)
    app.connect("doctree-resolved", link_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
