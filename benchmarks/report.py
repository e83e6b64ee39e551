"""Write the results into README.md: everything between ``<!-- results: benchmark.part -->`` and ``<!-- end -->``.

The figure of costs is drawn too.

    python benchmarks/report.py            write
    python benchmarks/report.py --check    only check that README.md shows the current results
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from common import read_results
from parts.identification import cost
from registry import import_all_parts

README = Path(__file__).resolve().parent / "README.md"
PARTS = import_all_parts()


def section(part):
    """Table of one part ("benchmark.part") and a line with its environment."""
    one = PARTS[part]
    result = read_results(one.benchmark).get(one.name)
    if result is None:
        return "Not run yet."
    e = result["environment"]
    versions = ", ".join(f"{k} {v}" for k, v in e["versions"].items() if v)
    blas = "; ".join(e["blas"])
    load = "" if e["load_at_start"] is None else f"load {e['load_at_start']} at the start, "
    where = f"{e['date']}, {e['processor']}, {e['cores']} cores, {load}{e['system']}"
    where += f", Python {e['python']}, {versions} ({blas}); {result['seconds']:.0f} s in total"
    return f"{one.tables(result)}\n\n*{where}.*"


def render(text):
    """The README with the tables of the current results."""

    def fill(match):
        return f"{match[1]}\n{section(match[2])}\n{match[3]}"

    return re.sub(r"(<!-- results: ([\w.]+) -->)\n.*?(<!-- end -->)", fill, text, flags=re.DOTALL)


if __name__ == "__main__":
    old = README.read_text()
    new = render(old)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if new == old else "README.md does not show the current results; run python benchmarks/report.py")
    README.write_text(new)
    if "cost" in read_results("identification"):
        cost.draw(read_results("identification")["cost"])
