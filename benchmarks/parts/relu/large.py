"""50 and 100 units in as many dimensions, with an increasing number of samples."""

from __future__ import annotations

import numpy as np

import seed_ranges
from cases.relu_samples import fit_and_measure, floor, planted
from common import format_table
from registry import part

NOISE = 0.1
BAR, SECONDS = 1.5, 120.0
CASES = [  # d, m, n, order, m given, trials
    (50, 50, 100_000, 1, True, 2),
    (100, 100, 100_000, 1, True, 1),
    (50, 50, 100_000, 1, False, 1),
    (50, 50, 25_000, 1, True, 1),
    (50, 50, 12_500, 1, True, 1),
    (10, 24, 100_000, 2, True, 1),
]


def _case(d, m, n, order, given, n_trials):
    trials = []
    for seed in range(seed_ranges.RELU_LARGE.start, seed_ranges.RELU_LARGE.start + n_trials):
        data = planted(d, m, n, NOISE, seed)
        trials.append(fit_and_measure(data, n_units=m if given else None, order=order))
    return {"d": d, "m": m, "n": n, "order": order, "given": given, "floor": floor(d, m, n, NOISE), "trials": trials}


@part("relu", "large", seeds=(seed_ranges.RELU_LARGE, seed_ranges.RELU_LARGE_ROWS))
def run(trials, quick):
    cases = [(20, 16, 10_000, 1, True, 1)] if quick else CASES
    return {"cases": [_case(*case[:-1], min(trials or case[-1], case[-1])) for case in cases]}


def _row(case):
    ratios = np.array([t["error"] for t in case["trials"]]) / case["floor"]
    seconds = [t["seconds"] for t in case["trials"]]
    signs = [t["signs"] for t in case["trials"]]
    return [
        f"({case['d']}, {case['m']})", case["n"], case["n"] / (case["m"] * (case["d"] + 1)), case["given"],
        f"{np.sum(ratios <= BAR)} of {len(ratios)}", float(np.median(ratios)), float(ratios.max()),
        f"{sum(t['n_units'] == case['m'] for t in case['trials'])} of {len(ratios)}",
        f"{sum(s == 1.0 for s in signs if s is not None)} of {len(ratios)}",
        float(np.median(seconds)), float(np.max(seconds)), sum(bool(t["warnings"]) for t in case["trials"]),
    ]  # fmt: skip


def tables(result):
    header = [
        "(d, m)", "samples", "samples per parameter", "m given", f"within {BAR} floors", "error / floor, median", "max",
        "m right", "all signs right", "s, median", "max", "warned",
    ]  # fmt: skip
    return "\n".join(
        [
            f"Noise {NOISE}; errors as above, over the floor 0.01 m (d + 1) / n; seconds of the processor, one thread "
            f"(bar: {SECONDS:.0f}). (10, 24): more units than features, `order=2`.",
            "",
            format_table(header, [_row(case) for case in result["cases"]]),
        ]
    )
