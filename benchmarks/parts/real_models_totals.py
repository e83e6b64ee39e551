"""All models of the benchmark `real_models` together, from the results of its other parts."""

from __future__ import annotations

import seed_ranges
from cases.real_models import MAX_ERROR
from common import format_table, read_results
from registry import part

_OUTCOMES = ("exact", "agrees", "warned", "refused")


@part("real_models", "totals", seeds=seed_ranges.REAL_MODELS)
def run(trials, quick):
    """Counts per part: kinds, models, outcomes, and those that are wrong without a warning."""
    found = read_results("real_models")
    return {"rows": [_counts(name, one["rows"]) for name, one in found.items() if _has_outcomes(one)]}


def _has_outcomes(one):
    return "outcome" in one.get("rows", [{}])[0].get("trials", [{}])[0]


def _counts(name, rows):
    models = [(trial, row.get("tol", MAX_ERROR)) for row in rows for trial in row["trials"]]
    silent = sum(t["outcome"] in ("exact", "agrees") and not t["error"] < tol for t, tol in models)
    outcomes = {key: sum(t["outcome"] == key for t, _ in models) for key in _OUTCOMES}
    slowest = max(t["seconds"] for t, _ in models)
    return {"part": name, "kinds": len(rows), "models": len(models)} | outcomes | {"silent": silent, "max_s": slowest}


def tables(result):
    """One line per part, and their sum."""
    keys = ("kinds", "models", *_OUTCOMES, "silent")
    rows = [[row["part"], *(row[key] for key in keys), row["max_s"]] for row in result["rows"]]
    total = ["all", *(sum(row[key] for row in result["rows"]) for key in keys), max(row[-1] for row in rows)]
    return format_table(["table", "kinds", "models", *_OUTCOMES, "wrong in silence", "max s"], [*rows, total])
