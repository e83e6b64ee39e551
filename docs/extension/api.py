"""A page for every public object, grouped by package, from `__all__` and the docstrings."""

import importlib
import inspect
import re
from functools import cache
from pathlib import Path

TOP = Path(__file__).parents[2]
PACKAGES = {  # every package with an `__all__`, tasks first
    "Tasks": ["identification", "audit", "compression", "samples", "landscape", "saddle", "hierarchical"],
    "Building blocks": ["network", "oracle", "metrics", "datasets", "inspection", "linalg", "optim", "budget"]
    + ["cli"],
}
CONSTANTS = {  # what a number or a dict cannot say of itself
    "ACTIVATIONS": "The activations by name: a dict of `Activation`.",
}
FOREIGN = "BaseEstimator,RegressorMixin,ClassifierMixin,TransformerMixin,ClassNamePrefixFeaturesOutMixin,NeuralNet"


def names_of(package):
    """The public names of a package, in its own order, without those that another package has as its own."""
    module = importlib.import_module(f"skident.{package}")
    return [name for name in module.__all__ if not _is_of_another(package, name, getattr(module, name))]


def _is_of_another(package, name, thing):
    home = getattr(thing, "__module__", "skident").split(".")[1:2]
    packages = {other for part in PACKAGES.values() for other in part} - {package}
    return bool(packages & set(home)) and name in importlib.import_module(f"skident.{home[0]}").__all__


def public_objects():
    """Package, name and object of everything public."""
    for package in (package for packages in PACKAGES.values() for package in packages):
        for name in names_of(package):
            yield package, name, getattr(importlib.import_module(f"skident.{package}"), name)


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
    for package, name, thing in public_objects():
        found[f"/api/{package}/{name}"] = "\n".join(re.findall(r"(?:>>>|\.\.\.) (.*)", inspect.getdoc(thing) or ""))
    return found


@cache
def uses_of(package, name):
    """The pages whose code uses an object, its own left out; else those of objects with an example that speak of it."""
    own = f"/api/{package}/{name}"
    using = [page for page, code in sources().items() if page != own and re.search(rf"\b{name}\b", code)]
    return using or [
        f"/api/{place}/{other}"
        for place, other, thing in public_objects()
        if (place, other) != (package, name) and has_example(thing) and re.search(rf"\b{name}\b", inspect.getdoc(thing))
    ]


def has_example(thing):
    """Whether the object's own docstring has an example."""
    return ">>>" in (inspect.getdoc(thing) or "")


def directive_of(package, name, thing):
    """The lines that make autodoc write an object's page."""
    skident = importlib.import_module("skident")
    module = "skident" if name in skident.__all__ else f"skident.{package}"
    lines = [f".. currentmodule:: {module}", ""]
    if name in CONSTANTS:
        known = list(thing) if isinstance(thing, (dict, tuple, list, set, frozenset)) else thing
        return [*lines, f".. data:: {name}", "", f"   {CONSTANTS[name]}", "", f"   {known}".replace("'", "")]
    if inspect.isclass(thing):
        lines += [f".. autoclass:: {name}", "   :members:"]
        return lines + [f"   :inherited-members: {FOREIGN}"] * hasattr(thing, "get_params")
    return [*lines, f".. autofunction:: {name}"]


def page_of(package, name, thing):
    """The source of an object's page."""
    lines = [name, "=" * len(name), "", *directive_of(package, name, thing), ""]
    uses = uses_of(package, name)
    if uses:
        lines += [".. rubric:: Used in", "", *(f"- :doc:`{page}`" for page in uses), ""]
    return "\n".join(lines)


def room_page(package):
    """The source of a package's page: what it is for, and a table of what it has."""
    module = importlib.import_module(f"skident.{package}")
    title = f"skident.{package}"
    lines = [title, "=" * len(title), "", inspect.getdoc(module), "", ".. list-table::", "   :widths: 30 70", ""]
    for name in names_of(package):
        lines += [f"   * - :doc:`{name} <{package}/{name}>`", f"     - {summary_of(name, getattr(module, name))}"]
    lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {package}/{name}" for name in names_of(package)), ""]
    return "\n".join(lines)


def index_page():
    """The source of the page of all packages."""
    lines = ["API", "===", "", "Everything public, by package. Estimators can be imported from `skident` itself.", ""]
    for title, packages in PACKAGES.items():
        lines += [title, "-" * len(title), "", ".. list-table::", "   :widths: 25 75", ""]
        for package in packages:
            doc = inspect.getdoc(importlib.import_module(f"skident.{package}")).partition("\n\n")[0].replace("\n", " ")
            lines += [f"   * - :doc:`{package}`", f"     - {doc}"]
        lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {package}" for package in packages), ""]
    return "\n".join(lines)


def pages():
    """All pages, by their path below docs/."""
    yield "api/index.rst", index_page()
    for package in (package for packages in PACKAGES.values() for package in packages):
        yield f"api/{package}.rst", room_page(package)
    for package, name, thing in public_objects():
        yield f"api/{package}/{name}.rst", page_of(package, name, thing)


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
