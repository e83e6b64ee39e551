"""Inputs that are not Gaussian: uniform, Student's t, Laplace and correlated."""

from __future__ import annotations

import numpy as np

import seed_ranges
from cases.relu_samples import N_HELD_OUT, fit_and_measure, floor
from common import format_table
from registry import part
from skident.datasets import make_relu_network

NOISE, ROWS, N_TRIALS = 0.1, 10_000, 10
BAR = 2.0


def _correlated(rng, n, d):
    A = np.random.RandomState(d).standard_normal((d, d)) / np.sqrt(d)
    return rng.uniform(-np.sqrt(3), np.sqrt(3), (n, d)) @ (A + np.eye(d))


DRAWS = {  # of variance 1, the columns of the last one correlated
    "uniform": lambda rng, n, d: rng.uniform(-np.sqrt(3), np.sqrt(3), (n, d)),
    "Student t, 5 degrees": lambda rng, n, d: rng.standard_t(5, (n, d)) * np.sqrt(3 / 5),
    "Student t, 3 degrees": lambda rng, n, d: rng.standard_t(3, (n, d)) * np.sqrt(1 / 3),
    "Laplace": lambda rng, n, d: rng.laplace(scale=np.sqrt(0.5), size=(n, d)),
    "correlated, uniform": _correlated,
}
CASES = [
    *((name, 10, 5, given) for name in DRAWS for given in (True, False)),
    ("uniform", 20, 10, True),
    ("Student t, 3 degrees", 20, 10, True),
]


def _data(name, d, m, seed):
    network = make_relu_network(1, d, m, random_state=seed)[2]
    rng = np.random.RandomState(seed)
    rng.standard_normal(4 * d * m)  # not the numbers of the network
    X, held_out = DRAWS[name](rng, ROWS, d), DRAWS[name](rng, N_HELD_OUT, d)
    values = network(X)[:, 0]
    return X, values + NOISE * values.std() * rng.standard_normal(ROWS), held_out, network(held_out)[:, 0], network


def _case(name, d, m, given, n_trials):
    seeds = range(seed_ranges.RELU_INPUTS.start, seed_ranges.RELU_INPUTS.start + n_trials)
    trials = [fit_and_measure(_data(name, d, m, seed), n_units=m if given else None) for seed in seeds]
    return {"inputs": name, "d": d, "m": m, "given": given, "floor": floor(d, m, ROWS, NOISE), "trials": trials}


@part("relu", "inputs", seeds=seed_ranges.RELU_INPUTS)
def run(trials, quick):
    n_trials = trials or (2 if quick else N_TRIALS)
    return {"cases": [_case(*case, n_trials) for case in (CASES[:2] if quick else CASES)]}


def _row(case):
    ratios = np.array([t["error"] for t in case["trials"]]) / case["floor"]
    seconds = [t["seconds"] for t in case["trials"]]
    return [
        case["inputs"], f"({case['d']}, {case['m']})", case["given"],
        f"{np.sum(ratios <= BAR)} of {len(ratios)}", float(np.median(ratios)), float(ratios.max()),
        f"{sum(t['n_units'] == case['m'] for t in case['trials'])} of {len(ratios)}",
        float(np.median(seconds)), float(np.max(seconds)), sum(bool(t["warnings"]) for t in case["trials"]),
    ]  # fmt: skip


def tables(result):
    header = [
        "inputs", "(d, m)", "m given", f"within {BAR:.0f} floors", "error / floor, median", "max", "m right",
        "s, median", "max", "warned",
    ]  # fmt: skip
    return "\n".join(
        [
            f"{ROWS} rows, noise {NOISE}; errors on held-out inputs of the same distribution, over the floor "
            "0.01 m (d + 1) / n.",
            "",
            format_table(header, [_row(case) for case in result["cases"]]),
        ]
    )
