"""Networks that others published: which of them the default call recovers, with how many queries, in how much time."""

from __future__ import annotations

import json
import subprocess

import seed_ranges
from common import format_table, run_module
from registry import part

from .deadlines import FIRST_SEED, PUBLIC

OFFSET = 14_000  # of this part's seeds in the range of the topic
LIMIT, QUICK_LIMIT = 25.0, 3.0  # `max_seconds`
_HUNG = 3.0  # times the limit after which a fit is ended from outside


@part("everyday", "public", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    """Every network once, each in a process of its own; those that are missing are skipped."""
    limit, rows = QUICK_LIMIT if quick else LIMIT, []
    for i, path in enumerate(sorted(PUBLIC.glob("*.npz"))[: 2 if quick else trials]):
        arguments = path.stem, FIRST_SEED + OFFSET + i, limit
        try:
            done = run_module("parts.everyday.deadlines", *arguments, timeout=_HUNG * limit)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            rows.append({"model": path.stem, "processor": None, "queries": None, "outcome": "hung"})
    return {"public": {"limit": limit, "rows": rows}}


def tables(result):
    """Markdown."""
    found = result["public"]
    exact = sum(row["outcome"] == "exact" for row in found["rows"])
    columns = ("model", "outcome", "queries", "processor")
    head = f"`max_seconds={found['limit']:g}`: {exact} of {len(found['rows'])} exact"
    lines = [[str(row[c])[:60] if c == "outcome" else row[c] for c in columns] for row in found["rows"]]
    return head + "\n\n" + format_table(["network", "outcome", "queries", "seconds"], lines)
