"""What each change to the paper's algorithm adds, and errors against the number of samples."""

from __future__ import annotations

import numpy as np

import seed_ranges
from cases.relu_samples import FIRST_SEED, fit_and_measure, floor, planted
from common import format_table
from registry import part

STEPS = {
    "literal: separate decompositions, raw moments": {"method": "literal"},
    "fit of all tensors in the span of T_2, of what the network leaves": {"polish": False},
    "+ polish": {},
}
CASES = ((10, 5, 10**4, 0.0), (10, 5, 10**5, 0.0), (10, 5, 10**6, 0.0), (20, 10, 10**5, 0.0), (10, 5, 10**5, 0.1))
ROWS = (300, 1000, 3000, 10**4, 3 * 10**4, 10**5, 3 * 10**5)
CURVES = {"literal": {"method": "literal"}, "tensors": {"polish": False}, "polished": {}}
N_TRIALS = 5


def _trials(case, options, n_trials):
    d, m, n, noise = case
    found = [
        fit_and_measure(planted(d, m, n, noise, seed), n_units=m, **options)
        for seed in range(FIRST_SEED, FIRST_SEED + n_trials)
    ]
    return {k: [t[k] for t in found] for k in ("error", "tensor_weights", "seconds")}


@part("relu", "ablation", seeds=(seed_ranges.RELU, seed_ranges.RELU_ROWS))
def run(trials, quick):
    n_trials = trials or (2 if quick else N_TRIALS)
    cases, rows = (CASES[:1], ROWS[:2]) if quick else (CASES, ROWS)
    return {
        "cases": [list(case) for case in cases],
        "steps": {name: [_trials(case, options, n_trials) for case in cases] for name, options in STEPS.items()},
        "rows": list(rows),
        "curves": {
            f"{name}, noise {noise}": [_trials((10, 5, n, noise), options, n_trials) for n in rows]
            for noise in (0.0, 0.1)
            for name, options in CURVES.items()
        },
    }


def _median(values):
    values = [v for v in values if v is not None]
    return float(np.median(values)) if values else float("nan")


def tables(result):
    cases = [f"d={d} m={m} n={n:.0e} noise {noise:g}" for d, m, n, noise in result["cases"]]
    steps = [
        [name, *(f"{_median(t['tensor_weights']):.1e} / {_median(t['error']):.0e}" for t in trials)]
        for name, trials in result["steps"].items()
    ]
    curves = [[name, *(_median(t["error"]) for t in trials)] for name, trials in result["curves"].items()]
    curves.append(["floor, noise 0.1", *(floor(10, 5, n, 0.1) for n in result["rows"])])
    return "\n\n".join(
        [
            "Largest error of a unit's direction before the polish / relative MSE of the result; medians.",
            format_table(["", *cases], steps),
            "Relative MSE against the number of rows, d = 10, m = 5; medians.",
            format_table(["rows", *map(str, result["rows"])], curves),
        ]
    )
