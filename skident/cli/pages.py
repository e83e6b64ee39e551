"""Reports as HTML pages that need nothing else."""

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
    """Write a page.

    Parameters
    ----------
    path : str
    title : str
    parts : sequence of (str, str, bool)
        Heading, content, and whether that is HTML already; other content is shown as it is.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    shown = (
        f"<h2>{escape(heading)}</h2>\n{content if is_html else f'<pre>{escape(content)}</pre>'}"
        for heading, content, is_html in parts
    )
    page = _PAGE.format(title=escape(title), body="\n".join(shown))
    Path(path).write_text(page, encoding="utf-8")
