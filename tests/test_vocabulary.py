"""One term per idea, as in the glossary: replaced words stay out of pages, docstrings, comments, messages and names.

``python tests/test_vocabulary.py [path]`` lists the places where one of them is left.
"""

import ast
import html
import io
import os
import re
import sys
import tokenize
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]

# Replaced words, and what to write. Words in backticks and in code blocks of pages are code, and are not read.
WORDS = {
    r"(?:is|are|be|been|was|were) asked": "is queried",
    r"asks?|asking|rows? asked": "query, request",
    r"asked (?:for|at|in|far|twice|again|about)": "queried",
    r"questions?": "query",
    r"answers?|answered|answering": "output, response",
    r"kinks?": "activation boundary, critical point",
    r"misfits?": "residual",
    r"superfluous": "redundant",
    r"units? too many": "redundant unit",
    r"rows that took no part": "held-out samples",
    r"shifts?": "bias",
    r"lengths? of (?:the |its |their )?weights?": "weight norms",
    r"faint(?:er|est)?|poor(?:er)?|strong(?:er|est)? units?|too certain": "what the threshold bounds",
    r"(?:is|are|left|leaves?) open": "undetermined",
    r"not known": "unknown, undetermined",
    r"judg(?:e|es|ed|ing)": "validate",
    r"verdicts?": "validation",
    r"walk(?:s|ed|ing)?|no trace": "extend to the next unit, follow a facet",
    r"cells?": "linear region, activation pattern, saturation region",
    r"tells?": "determine, state, distinguish",
    r"looks? for|looked for|looking for": "search",
    r"comes? out": "is recovered",
    r"switch(?:es|ed|ing) sides?|switch(?:ing|ed)": "sign of the pre-activation",
    r"(?<!both )(?<!both of its )(?<!two )(?<!either )(?<!alternating )sides": "sign of the pre-activation",
    r"found|seen|told": "given, detected, recovered",
    r"theta": "params, coef",
    r"fresh (?:rows|answers|inputs|samples|outputs)": "held-out samples",
    r"(?:a|the|this|first|last|second) look|looks? at": "probe, detection, validation",
    r"stretch(?:es)?": "interval, length factor",
    r"(?:the|a|every|each|of the) house": "package, architecture",
    r"rooms?": "package",
    r"vague": "undetermined",
    r"inquir(?:y|ies)": "problem",
    r"centred?|centres|centring": "center",
    r"neighbours?|neighbouring|behaviours?|colours?|favours?": "American spelling",
    r"(?:standard|initial|regular|normal|linear|optim|factor|diagonal|penal|general|recogn|minim|maxim|summar|parametr"
    r"|vector|local|factor|real|equal|character|discret|orthogonal|symmetr)is(?:e|ed|es|ing|ations?|ers?)": "-ize",
}
# Of names of code, by their parts between underscores.
NAMES = {
    "answers",
    "answer",
    "asked",
    "ask",
    "misfit",
    "misfits",
    "kink",
    "kinks",
    "inquiry",
    "verdicts",
    "superfluous",
}
# "file": words that it may have, since it defines them or quotes others.
ALLOWED = {
    "docs/glossary.md": {"kink", "kinks", "shift"},
    # `AuditReport.verdict`
    "benchmarks/README.md": {"verdict"},
    "docs/guide/audit.md": {"verdict", "verdicts"},
    "skident/audit/report.py": {"verdict"},
    "skident/inspection/_audit.py": {"verdict"},
    "benchmarks/parts/honesty/audit.py": {"verdict", "verdicts"},
    "docs/errata.md": {"shifts"},
    "CONTRIBUTING.md": {"question", "questions"},
    "skident/identification/completion.py": {"shifts"},  # the paper's
    "skident/identification/hessians/completion_problem.py": {"shifts"},
    "skident/cli/tables.py": {"cell", "cells"},  # of tables
    "benchmarks/common.py": {"cell"},
    "tests/test_vocabulary.py": None,
}
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "docs/*.md", "docs/guide/*.md"]
# What is left to rewrite, places per package or folder; a number may only fall.
LEFT = {
    "pages": 10,  # messages of earlier versions, and a key, in the results of benchmarks
    "benchmarks": 5,  # keys of the result files
}

WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(WORDS)})(?![\w-])", flags=re.IGNORECASE)


def text_of_page(source):
    """Prose of a page by line, without code."""
    code = re.compile(r"^```.*?^```|^\$\$.*?\$\$", flags=re.DOTALL | re.MULTILINE)
    source = code.sub(lambda m: "\n" * m[0].count("\n"), source)
    return enumerate((re.sub(r"`[^`]*`|\]\([^)]*\)|\$[^$]*\$", " ", line) for line in source.split("\n")), 1)


def text_of_code(source):
    """Docstrings, messages and comments of a module by line, without what stands in backticks or examples."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"`[^`]*`", " ", token.string)
        elif token.type in (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            text = re.sub(r"``[^`]*``|`[^`]*`", lambda m: "\n" * m[0].count("\n"), token.string)
            if re.match(r"[rR]?[fF]", text):  # what is filled in are names of code
                text = re.sub(r"\{[^{}\n]*\}", "{}", text)
            text = re.sub(
                r"^ *\*{0,2}\w+(, \w+)* :(?= )", "", text, flags=re.MULTILINE
            )  # numpydoc's names of parameters
            for i, line in enumerate(text.split("\n")):
                if " " in line.strip() and not line.strip().startswith((">>>", "...")):
                    yield token.start[0] + i, line


def names_of_code(source):
    """Names that a module defines, by line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def places(path):
    """Line and word of everything replaced in a file."""
    name, source = path.relative_to(TOP).as_posix(), path.read_text(encoding="utf-8")
    allowed = ALLOWED.get(name, set())
    if allowed is None:
        return []
    lines = text_of_code(source) if path.suffix == ".py" else text_of_page(source)
    found = [(line, match) for line, text in lines for match in WORD.findall(text) if match.lower() not in allowed]
    if path.suffix == ".py":
        parts = ((line, name) for line, name in names_of_code(source))
        found += [(line, name) for line, name in parts if NAMES & set(re.split(r"_|(?=[A-Z])", name.lower()))]
    return sorted(set(found))


def files_of(part):
    """Files of a package, of a folder beside it, or the pages."""
    if part == "pages":
        return sorted(path for pattern in PAGES for path in TOP.glob(pattern))
    return sorted(path for path in (TOP / part).rglob("*.py") if "gallery" not in path.parts)


PACKAGES = sorted(path.parent.relative_to(TOP).as_posix() for path in TOP.glob("skident/*/__init__.py"))


@pytest.mark.parametrize("part", ["pages", "examples", "benchmarks", "docs", *PACKAGES])
def test_replaced_words_stay_out(part):
    found = [f"{path.relative_to(TOP)}:{line} {word}" for path in files_of(part) for line, word in places(path)]
    assert len(found) <= LEFT.get(part, 0), found


# On the built pages: citations of papers, the glossary's own synonyms, and `AuditReport.verdict`.
CITED = {"errata.html": {"shifts"}, "glossary.html": {"kink", "shift"}, "NetworkCompletion.html": {"shifts"}}
CITED |= {"AuditReport.html": {"verdict"}, "genindex.html": {"verdict"}, "audit.html": {"verdict", "verdicts"}}
SITE = Path(os.environ.get("SKIDENT_SITE", TOP / "build" / "docs"))


def text_of_built_page(source):
    """Prose of an HTML page: its article without code, formulas, names of parameters and tags."""
    article = re.search(r"<article.*?</article>", source, flags=re.DOTALL)
    text = re.sub(
        r"<(pre|code|script|style|math|svg|dt)\b.*?</\1>", " ", article[0] if article else "", flags=re.DOTALL
    )
    return html.unescape(re.sub(r"<[^>]*>", " ", text))


@pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="needs a built site: see CONTRIBUTING.md")
def test_replaced_words_stay_out_of_the_built_pages():
    found = []
    for path in sorted(SITE.rglob("*.html")):
        words = {match.lower() for match in WORD.findall(text_of_built_page(path.read_text(encoding="utf-8")))}
        found += [(path.name, word) for word in sorted(words - CITED.get(path.name, set()))]
    assert found == []


def test_replaced_words_are_seen(tmp_path):
    assert [text.strip() for _, text in text_of_page("The `kink` here\n```\nkinks\n```\nanswers") if text.strip()] == [
        "The   here",
        "answers",
    ]
    source = 'def answers_of(x):\n    """Ask twice at the centre."""\n    return x  # fresh rows\n'
    words = [word for _, text in text_of_code(source) for word in WORD.findall(text)]
    assert words == ["Ask", "centre", "fresh rows"] and list(names_of_code(source)) == [(1, "answers_of"), (1, "x")]


def test_terms_are_in_the_glossary():
    glossary = (TOP / "docs" / "glossary.md").read_text(encoding="utf-8").lower()
    terms = ["activation boundary", "query", "bias", "redundant unit", "residual", "held-out samples", "undetermined"]
    terms += ["activation profile", "activation pattern", "facet", "tail", "wall"]
    assert [term for term in terms if f"\n{term}\n:" not in glossary] == []


if __name__ == "__main__":
    for root in sys.argv[1:] or ["skident"]:
        for path in [Path(root).resolve()] if Path(root).is_file() else sorted(Path(root).resolve().rglob("*.py")):
            for line, word in places(path):
                print(f"{path.relative_to(TOP)}:{line} {word}")
