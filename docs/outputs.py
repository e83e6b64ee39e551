"""Runs the code blocks of a page and compares, or writes, what they print.

    python docs/outputs.py docs/guide/audit.md      puts the outputs into the page

The ```python blocks of a page run one after the other in one namespace; the ```text block that follows a python block
is what it prints. `<!-- not run: why -->` before a block leaves it out; `<!-- numbers differ -->` before a text block,
where seconds and queries stand in it, compares its words only.
"""

import contextlib
import io
import re
import sys
import textwrap
from pathlib import Path

BLOCK = re.compile(r"(<!-- (?:not run: [^>]*|numbers differ) -->\n+)?```(python|text)\n(.*?)```", flags=re.DOTALL)
NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
NOTHING = 1e-9  # below, a number is rounding: another machine has another


def blocks(text):
    """Code and the printed text that belongs to it: (code, expected or None, whether numbers count)."""
    found = []
    for mark, kind, body in BLOCK.findall(text):
        if kind == "python":
            found.append([None if "not run" in mark else body, None, True])
        elif found and found[-1][1] is None:
            found[-1][1:] = [body, "numbers differ" not in mark]
    return [tuple(block) for block in found if block[0] is not None]


def run(code, namespace):
    """What a block prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<page>", "exec"), namespace)
    return printed.getvalue()


def alike(one, other, numbers=True):
    """Whether two printed texts agree: words to the letter, numbers to 5 %, white space not at all."""
    if NUMBER.sub("#", " ".join(one.split())) != NUMBER.sub("#", " ".join(other.split())):
        return False
    values = ([float(number.replace(",", "")) for number in NUMBER.findall(text)] for text in (one, other))
    pairs = zip(*values)
    return not numbers or all(
        abs(a - b) <= 0.05 * max(abs(a), abs(b)) or max(abs(a), abs(b)) < NOTHING for a, b in pairs
    )


def wrapped(printed, width=84):
    """Printed lines, long ones broken."""
    lines = printed.rstrip("\n").splitlines()
    return "\n".join("\n    ".join(textwrap.wrap(line, width)) if len(line) > width else line for line in lines) + "\n"


def fill(path):
    """Put into a page what its blocks print."""
    text, namespace, printed = path.read_text(encoding="utf-8"), {"__name__": "page"}, ""

    def replaced(match):
        nonlocal printed
        mark, kind, body = match.groups()
        if kind == "python":
            printed = "" if "not run" in (mark or "") else run(body, namespace)
            return match[0]
        return f"{mark or ''}```text\n{wrapped(printed)}```"

    path.write_text(BLOCK.sub(replaced, text), encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        fill(Path(name))
