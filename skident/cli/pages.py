"""Write reports as self-contained HTML pages."""

from __future__ import annotations

from html import escape
from pathlib import Path

__all__ = ["write_page"]

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>body {{ font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}
pre {{ overflow-x: auto; background: #f4f4f4; padding: 1em }}</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def write_page(path, title, parts):
    """Write a page; `parts` are (heading, content, whether the content is HTML)."""
    shown = (
        f"<h2>{escape(heading)}</h2>\n{content if is_html else f'<pre>{escape(content)}</pre>'}"
        for heading, content, is_html in parts
    )
    page = _PAGE.format(title=escape(title), body="\n".join(shown))
    Path(path).write_text(page, encoding="utf-8")
