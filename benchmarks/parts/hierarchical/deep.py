"""Hierarchical targets of degree 16 and 32 without noise: how many are recovered, from how many samples."""

from __future__ import annotations

import numpy as np

import seed_ranges
from cases.hierarchical_targets import measured_networks, relative_error, timed
from common import format_table
from parts.hierarchical.unknown_widths import drawn
from registry import part
from skident import HierarchicalQuadraticNet

ROWS = [(8, (3, 2, 2), 500), (8, (3, 2, 2), 1000), (8, (3, 2, 2), 2000), (16, (3, 2, 2), 1000), (16, (3, 2, 2), 2000)]
ROWS += [(8, (3, 2, 2, 2), 2000), (8, (3, 2, 2, 2), 5000), (16, (3, 2, 2, 2), 5000)]
TRIALS, SEEDS_PER_ROW, FIRST = 10, 20, 700
RECOVERED = 1e-8  # relative squared error on held-out samples


def measured(row, k):
    """The k-th target of a row, with its widths given and not given."""
    d, widths, n = ROWS[row]
    seed = seed_ranges.HIERARCHICAL_WIDTHS.start + FIRST + SEEDS_PER_ROW * row + k
    X, y, _, held_out, held_out_y, _ = drawn(seed, d, widths, n)
    result = {"case": f"d={d}, {widths}, degree {2 ** (len(widths) + 1)}", "N": n, "seed": seed}
    for name, given in {"given": widths, "auto": "auto"}.items():
        net, spent = timed(HierarchicalQuadraticNet(given, random_state=0).fit, X, y)
        error = relative_error(net, held_out, held_out_y)
        result[name] = {"error": error, "exact": net.exact_, "widths": net.widths_, "seconds": spent}
    return result


@part("hierarchical", "deep", seeds=(seed_ranges.HIERARCHICAL_WIDTHS,))
def run(trials, quick):
    return {"rows": measured_networks("deep", measured, 1 if quick else len(ROWS), 1 if quick else trials or TRIALS)}


def tables(result):
    header, rows = ["target without noise", "N"], []
    for name in ("widths given", "widths not given"):
        header += [f"{name}: recovered", "median error", "false exact_", "maximum seconds"]
    for case, n in dict.fromkeys((r["case"], r["N"]) for r in result["rows"]):
        some = [r for r in result["rows"] if (r["case"], r["N"]) == (case, n)]
        row = [case, n]
        for name in ("given", "auto"):
            fits = [r[name] for r in some]
            row.append(f"{sum(f['error'] < RECOVERED for f in fits)} of {len(fits)}")
            row.append(float(np.median([f["error"] for f in fits])))
            row += [sum(f["exact"] and f["error"] > RECOVERED for f in fits), max(f["seconds"] for f in fits)]
        rows.append(row)
    return format_table(header, rows)
