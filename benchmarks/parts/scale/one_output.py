"""Two wide ReLU layers and one output, 30-n-n-1: how far identification goes."""

from __future__ import annotations

import multiprocessing

import numpy as np

from common import format_table
from parts.scale.networks import FALSE_ERROR, SEEDS, SEEDS_PER_ROW, Row, trial
from registry import part

WIDTHS = (32, 48, 64, 96, 128)
N_NETWORKS = 3
LIMIT = 300.0  # max_seconds
FIRST, FIRST_QUICK = 700, 970  # seeds, after the first of the range


@part("scale", "one_output_curve", seeds=SEEDS)
class _Curve:
    """Networks recovered, queries and seconds by width."""

    @staticmethod
    def run(trials, quick):
        """Measure all widths, or one small network."""
        rows = []
        for i, n in enumerate(WIDTHS[:1] if quick else WIDTHS):
            first = SEEDS.start + (FIRST_QUICK if quick else FIRST + SEEDS_PER_ROW * i)
            seeds = range(first, first + (1 if quick else trials or N_NETWORKS))
            rows.append({"width": n, "trials": [_trial(n, seed) for seed in seeds]})
        return {"rows": rows}

    @staticmethod
    def tables(result):
        """One row per width and method."""
        head = ["network", "parameters", "exact", "false exact", "max error", "median queries"]
        return format_table([*head, "max s"], [_cells(row) for row in result["rows"]])


def _trial(n, seed):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        found = pool.apply(trial, (Row((30, n, n, 1), limit=LIMIT), seed))
    print(n, found, flush=True)
    return found


def _cells(row):
    trials, n = row["trials"], row["width"]
    found = [t for t in trials if "refusal" not in t]
    return [
        f"30-{n}-{n}-1",
        f"{31 * n + (n + 1) * n + n + 1:,}",
        f"{sum(t['exact'] for t in found)} of {len(trials)}",
        sum(t["exact"] and t["error"] > FALSE_ERROR for t in found),
        max((t["error"] for t in found), default=None),
        f"{int(np.median([t['queries'] for t in found])):,}" if found else "-",
        f"{max(t['seconds'] for t in trials):.3g}",
    ]
