"""A page for every public object, grouped by room, from `__all__` and the docstrings."""

import importlib
import inspect
import re
from functools import cache
from pathlib import Path

TOP = Path(__file__).parents[2]
ROOMS = {  # every room with an `__all__`, questions first
    "Questions": ["identification", "audit", "compression", "samples", "landscape", "saddle", "hierarchical"],
    "What they stand on": ["network", "oracle", "metrics", "datasets", "inspection", "linalg", "optim", "budget"]
    + ["cli"],
}
CONSTANTS = {  # what a number or a dict cannot say of itself
    "ACTIVATIONS": "The activations by name: a dict of `Activation`.",
    "DERIVATIVES": "The ways to derivatives of a black box that `Oracle` accepts, as a tuple of names.",
    "MAX_NOISE": "Noise, relative to the standard deviation of the answers, above which a black box is refused.",
}
FOREIGN = "BaseEstimator,RegressorMixin,ClassifierMixin,TransformerMixin,ClassNamePrefixFeaturesOutMixin,NeuralNet"


def names_of(room):
    """The public names of a room, in its own order, without those that another room has as its own."""
    module = importlib.import_module(f"skident.{room}")
    return [name for name in module.__all__ if not _is_of_another(room, name, getattr(module, name))]


def _is_of_another(room, name, thing):
    home = getattr(thing, "__module__", "skident").split(".")[1:2]
    rooms = {other for part in ROOMS.values() for other in part} - {room}
    return bool(rooms & set(home)) and name in importlib.import_module(f"skident.{home[0]}").__all__


def public_objects():
    """Room, name and object of everything public."""
    for room in (room for rooms in ROOMS.values() for room in rooms):
        for name in names_of(room):
            yield room, name, getattr(importlib.import_module(f"skident.{room}"), name)


def summary_of(name, thing):
    """The first line of what is said of it."""
    if name in CONSTANTS:
        return CONSTANTS[name]
    return (inspect.getdoc(thing) or "").strip().partition("\n\n")[0].replace("\n", " ").replace("]_", "]")


@cache
def sources():
    """Texts where public objects are used, by the page that shows them."""
    found = {}
    for path in sorted((TOP / "examples").glob("plot_*.py")):
        found[f"/gallery/{path.stem}"] = path.read_text(encoding="utf-8")
    for path in sorted((TOP / "docs").glob("*.md")) + sorted((TOP / "docs" / "guide").glob("*.md")):
        page = path.relative_to(TOP / "docs").with_suffix("").as_posix()
        text = path.read_text(encoding="utf-8")
        found[f"/{page}"] = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    for room, name, thing in public_objects():
        found[f"/api/{room}/{name}"] = "\n".join(re.findall(r"(?:>>>|\.\.\.) (.*)", inspect.getdoc(thing) or ""))
    return found


@cache
def uses_of(room, name):
    """The pages whose code uses an object, its own left out; else those of objects with an example that speak of it."""
    own = f"/api/{room}/{name}"
    using = [page for page, code in sources().items() if page != own and re.search(rf"\b{name}\b", code)]
    return using or [
        f"/api/{place}/{other}"
        for place, other, thing in public_objects()
        if (place, other) != (room, name) and has_example(thing) and re.search(rf"\b{name}\b", inspect.getdoc(thing))
    ]


def has_example(thing):
    """Whether the object's own docstring has an example."""
    return ">>>" in (inspect.getdoc(thing) or "")


def directive_of(room, name, thing):
    """The lines that make autodoc write an object's page."""
    skident = importlib.import_module("skident")
    module = "skident" if name in skident.__all__ else f"skident.{room}"
    lines = [f".. currentmodule:: {module}", ""]
    if name in CONSTANTS:
        known = list(thing) if isinstance(thing, (dict, tuple, list, set, frozenset)) else thing
        return [*lines, f".. data:: {name}", "", f"   {CONSTANTS[name]}", "", f"   {known}".replace("'", "")]
    if inspect.isclass(thing):
        lines += [f".. autoclass:: {name}", "   :members:"]
        return lines + [f"   :inherited-members: {FOREIGN}"] * hasattr(thing, "get_params")
    return [*lines, f".. autofunction:: {name}"]


def page_of(room, name, thing):
    """The source of an object's page."""
    lines = [name, "=" * len(name), "", *directive_of(room, name, thing), ""]
    uses = uses_of(room, name)
    if uses:
        lines += [".. rubric:: Used in", "", *(f"- :doc:`{page}`" for page in uses), ""]
    return "\n".join(lines)


def room_page(room):
    """The source of a room's page: what it is for, and a table of what it has."""
    module = importlib.import_module(f"skident.{room}")
    title = f"skident.{room}"
    lines = [title, "=" * len(title), "", inspect.getdoc(module), "", ".. list-table::", "   :widths: 30 70", ""]
    for name in names_of(room):
        lines += [f"   * - :doc:`{name} <{room}/{name}>`", f"     - {summary_of(name, getattr(module, name))}"]
    lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {room}/{name}" for name in names_of(room)), ""]
    return "\n".join(lines)


def index_page():
    """The source of the page of all rooms."""
    lines = ["API", "===", "", "Everything public, by room. Estimators can be imported from `skident` itself.", ""]
    for title, rooms in ROOMS.items():
        lines += [title, "-" * len(title), "", ".. list-table::", "   :widths: 25 75", ""]
        for room in rooms:
            doc = inspect.getdoc(importlib.import_module(f"skident.{room}")).partition("\n\n")[0].replace("\n", " ")
            lines += [f"   * - :doc:`{room}`", f"     - {doc}"]
        lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {room}" for room in rooms), ""]
    return "\n".join(lines)


def pages():
    """All pages, by their path below docs/."""
    yield "api/index.rst", index_page()
    for room in (room for rooms in ROOMS.values() for room in rooms):
        yield f"api/{room}.rst", room_page(room)
    for room, name, thing in public_objects():
        yield f"api/{room}/{name}.rst", page_of(room, name, thing)


def mended(lines):
    """A docstring's lines with attribute_ names that reST would take for links as they are meant."""
    text = "\n".join(lines)
    known = set(re.findall(r"^\.\. \[(\w+)\]", text, flags=re.MULTILINE))
    parts = re.split(r"(``.*?``|^\s*(?:>>>|\.\.\.).*?$)", text, flags=re.DOTALL | re.MULTILINE)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"(?<![\w`*|\\])([A-Za-z]\w*)_(?=[\s,.;:)]|$)", r"\1\\_", parts[i])
        parts[i] = re.sub(r"\[(\w+)\]_", lambda m: m[0] if m[1] in known else f"[{m[1]}]", parts[i])
    return "".join(parts).split("\n")


def mend(app, what, name, thing, options, lines):
    """Mend a docstring, behind numpydoc."""
    lines[:] = mended(lines)


def skip(app, what, name, thing, skipped, options):
    """Leave out what scikit-learn brings for routing metadata and frames: the links of its texts lead nowhere here."""
    foreign = (getattr(thing, "__module__", None) or "").startswith("sklearn.")
    return True if foreign or re.fullmatch(r"set_\w+_request", name) else None
