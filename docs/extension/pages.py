"""Writes the pages that are made, not written: before Sphinx reads its sources."""

from pathlib import Path

from extension import api, messages, reproduction

HERE = Path(__file__).parents[1]


def all_pages():
    """Every generated page: its path below docs/, and its text."""
    yield from api.pages()
    yield from messages.pages()
    yield from reproduction.pages()


def write(app):
    """Write what changed, and take away what no longer belongs."""
    wanted = dict(all_pages())
    for folder in ("api", "generated"):
        for old in (HERE / folder).rglob("*.*"):
            if old.is_file() and old.relative_to(HERE).as_posix() not in wanted:
                old.unlink()
    for name, text in wanted.items():
        path = HERE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app):
    """Write before sources are collected; mend docstrings where reST reads them otherwise than they are meant."""
    app.connect("builder-inited", write, priority=100)
    app.connect("autodoc-process-docstring", api.mend, priority=900)
    app.connect("autodoc-skip-member", api.skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
