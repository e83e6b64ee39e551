"""What the site makes of the code: everything public has a page, every message and every figure of the papers a row."""

import functools
import inspect
import re
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
sys.path.insert(0, str(TOP / "docs"))
from extension import api, messages, names, reproduction, statements  # noqa: E402

PUBLIC = list(api.public_objects())


@functools.cache
def pages_of_the_code():
    return dict(api.pages())


def test_rooms_with_public_names_are_all_there():
    packages = {path.parent.name for path in (TOP / "skident").glob("*/__init__.py") if "__all__" in path.read_text()}
    assert {package for packages in api.PACKAGES.values() for package in packages} == packages


def test_everything_public_has_a_page_a_summary_and_an_example_or_a_link_to_one():
    pages = pages_of_the_code()
    assert 90 < len(PUBLIC) <= 110  # few enough to know; `__all__` of packages
    lacking = {
        "page": [f"{package}.{name}" for package, name, _ in PUBLIC if f"api/{package}/{name}.rst" not in pages],
        "summary": [f"{package}.{name}" for package, name, thing in PUBLIC if len(api.summary_of(name, thing)) < 10],
        "example": [
            f"{package}.{name}"
            for package, name, thing in PUBLIC
            if not (api.has_example(thing) or api.uses_of(package, name))
        ],
    }
    assert lacking == {"page": [], "summary": [], "example": []}
    for package in (package for packages in api.PACKAGES.values() for package in packages):
        assert all(f"{package}/{name}" in pages[f"api/{package}.rst"] for name in api.names_of(package))


def test_docstrings_are_mended():
    assert api.mended(["where n_units_ is, see [1]_"]) == [r"where n_units\_ is, see [1]"]
    assert api.mended(["``n_units_ `` [1]_", "", ".. [1] Someone"]) == ["``n_units_ `` [1]_", "", ".. [1] Someone"]


def test_types_and_terms_are_linked():
    known = {**names.OTHERS, **dict.fromkeys(names.pages())}
    text = "FeedforwardNetwork, list of int or ndarrays of shape (n,), default=None"
    named = [part[0] for part in names.pieces(text, known) if isinstance(part, tuple)]
    assert named == ["FeedforwardNetwork", "list", "int", "ndarray"]
    assert "".join(part if isinstance(part, str) else part[0] for part in names.pieces(text, known)) == text
    assert names.pieces("MyOracle, 'int', print", known) == ["MyOracle, 'int', print"]
    assert names.terms()["activation boundary"] == "term-activation-boundary" and len(names.terms()) > 35
    assert names.terms()["escape speed"] == names.terms()["escape direction"]


# -- messages ----------------------------------------------------------------------------------------------------------


def test_every_message_is_listed_with_a_cause_and_a_remedy():
    listed, found = messages.page(), list(messages.messages())
    assert len(found) > 500
    assert [text for _, _, kind, text in found if f"- {kind}: {messages.literal(text)}" not in listed] == []
    assert all(len(part) > 10 for _, _, kind, text in found for part in messages.remedy_of(kind, text))


def words_of_row(words):
    """The fixed parts of a row's words, as far as they are a message's."""
    return [part.strip() for part in re.split(r"\.\.\.|, (?=the |was |clips )", words) if len(part.strip()) > 8]


def test_troubleshooting_quotes_messages_that_exist():
    page = (TOP / "docs" / "troubleshooting.md").read_text()
    sources = " ".join(path.read_text() for path in sorted((TOP / "skident").rglob("*.py")))
    plain = re.sub(r"\s+", " ", re.sub(r'"\s+f?"', "", sources))
    rows = re.findall(r"^\| (?!words|---)(.*?) \|", page, flags=re.MULTILINE)
    assert len(rows) > 30
    known = ("Stage '", "NotFittedError", "of scikit-learn")
    parts = [re.sub(r" \(`\w+`\)$", "", part) for row in rows for part in words_of_row(row)]
    missing = [part for part in parts if part not in plain and not any(word in part for word in known)]
    assert missing == []


def test_every_warning_has_words_on_the_troubleshooting_page():
    page = (TOP / "docs" / "troubleshooting.md").read_text()
    rows = [part for row in re.findall(r"^\| (.*?) \|", page, flags=re.MULTILINE) for part in words_of_row(row)]
    warned = [
        text for _, _, kind, text in messages.messages() if kind.endswith("Warning") and re.search("[a-z]{3}", text)
    ]
    assert len(warned) > 6
    assert [text for text in warned if not any(re.sub(r" \(`\w+`\)$", "", part) in text for part in rows)] == []


# -- reproduction ------------------------------------------------------------------------------------------------------


def test_every_numbered_figure_and_table_has_a_verdict():
    labels = {
        paper.split(" (")[0]: [entry.label for entry in entries] for paper, entries in reproduction.PAPERS.items()
    }
    figures = lambda n: [f"Figure {i}" for i in range(1, n + 1)]  # noqa: E731
    assert sorted(labels["Fiedler, Fornasier, Klock, Rauchensteiner"]) == sorted([*figures(9), "Table 1", "Table 2"])
    assert labels["Soltanolkotabi, Javanmard, Lee"] == figures(4)
    assert labels["Bantzis, Simon, Jacot"] == figures(6)
    assert labels["Allen-Zhu, Li"] == figures(14)
    entries = [entry for paper in reproduction.PAPERS.values() for entry in paper]
    assert all(any(word in entry.verdict for word in reproduction.OUTCOMES) for entry in entries)


def test_the_page_is_made_of_the_results():
    page = reproduction.page()
    total, *parts = reproduction.counts()
    assert total == 35 == sum(parts) and page.count("\n| Figure ") + page.count("\n| Table ") == total
    for paper in reproduction.PAPERS.values():
        for entry in paper:
            assert not entry.script or (TOP / "benchmarks" / entry.script).is_file()
            has_numbers = entry.ours is not None and reproduction.NOT_RUN not in reproduction.row_of(entry)
            assert has_numbers == reproduction.has_run(entry) and "VERDICT" not in entry.verdict


def test_what_has_not_run_is_not_made_up(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "load", lambda part: None)
    assert reproduction.counts()[1] == 0
    rows = [reproduction.row_of(entry) for paper in reproduction.PAPERS.values() for entry in paper if entry.ours]
    assert rows and all("not run yet" in row for row in rows)


ALGORITHMS = {"Fiedler": 5, "Awasthi": 6, "Allen-Zhu": 1}
ROWS = [row for rows in statements.STATEMENTS.values() for row in rows]


def test_every_algorithm_figure_and_table_of_the_papers_has_a_row():
    for paper, entries in reproduction.PAPERS.items():
        name = paper.split(" (")[0]
        found = statements.labels(statements.STATEMENTS[name])
        n_algorithms = ALGORITHMS.get(name.split(",")[0], 0)
        expected = {entry.label for entry in entries} | {f"Algorithm {i + 1}" for i in range(n_algorithms)}
        kinds = ("Figure", "Table", "Algorithm")
        assert {label for label in found if label.startswith(kinds)} == expected, name
    assert statements.table()[2:] and "\n".join(statements.table()) in reproduction.page()


def public_thing(name):
    """The object of a public name "package.Name" or "package.Name.attribute"."""
    package, name, *attribute = name.split(".")
    assert name in api.names_of(package)
    thing = next(thing for where, own, thing in PUBLIC if (where, own) == (package, name))
    described = re.findall(r"^(\w[\w, ]*) : ", inspect.getdoc(thing), re.MULTILINE)
    known = {one for names in described for one in names.split(", ")}
    assert not attribute or hasattr(thing, attribute[0]) or attribute[0] in known
    return thing


@pytest.mark.parametrize("row", [row for row in ROWS if row.computed], ids=lambda row: row.labels)
def test_statements_have_a_name_an_example_and_a_test(row):
    thing = public_thing(row.name)
    if row.example.startswith("skident."):
        thing = public_thing(row.example.removeprefix("skident."))
    assert api.has_example(thing) if not row.example or row.example.startswith("skident.") else True
    assert row.example.startswith("skident.") or not row.example or (TOP / row.example).is_file()
    path, _, function = row.test.partition("::")
    assert f"def {function}(" in (TOP / path).read_text()


def test_errata_name_tests_that_exist():
    cells = re.findall(r"\| `([^`]+)` \|$", (TOP / "docs" / "errata.md").read_text(), flags=re.MULTILINE)
    assert len(cells) >= 9
    for cell in cells:
        path, _, name = cell.split(" ")[0].partition("::")
        assert (TOP / path).is_file()
        assert not name or f"def {name}(" in (TOP / path).read_text(), cell


@pytest.mark.parametrize("name", ["index.rst", "identification.rst"])
def test_pages_of_rooms_are_made(name):
    assert pages_of_the_code()[f"api/{name}"].startswith(("API\n===", "skident.identification\n"))
