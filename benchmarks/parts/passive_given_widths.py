"""Widths given, noise of 1 and 10 %: errors of `PassiveNetworkIdentifier` and coverage of its `stderr_`."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from common import Countdown, format_table
from parts.honesty.coverage import z_scores
from parts.passive import planted
from registry import part
from seed_ranges import PASSIVE_GIVEN
from skident import PassiveNetworkIdentifier

ACTIVATIONS, WIDTHS, NOISES = ("tanh", "gelu", "softplus"), ((8, 1), (6, 4, 1)), (0.01, 0.1)
NETWORKS, SEEDS_PER_ROW, PART_SECONDS = 10, 20, 3600.0
BAR, LEAST, MOST = 1.5, 0.90, 0.99
N_HELD_OUT = 4000


def _network(widths, activation, noise, seed):
    truth, X, Y, rng = planted(widths, activation, seed)
    sigma, held_out = noise * Y.std(), rng.standard_normal((N_HELD_OUT, X.shape[1]))
    noisy = Y[:, 0] + sigma * rng.standard_normal(len(Y))
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        identifier = PassiveNetworkIdentifier(truth.layer_widths, activation=activation, random_state=seed)
        identifier.fit(X, noisy)
    seconds = time.process_time() - start
    squared = float(np.mean((identifier.network_(held_out) - truth(held_out)) ** 2))
    z, undetermined = z_scores(truth, identifier.network_, identifier.stderr_)
    return {
        "seed": seed,
        "ratio": squared / (truth.n_parameters * sigma**2 / len(X)),
        "covered": int(np.sum(z <= 1.96)),
        "determined": len(z),
        "undetermined": undetermined,
        "seconds": seconds,
    }


@part("passive", "given_widths", seeds=PASSIVE_GIVEN)
def run(trials, quick):
    cases = [(a, w, noise) for w in WIDTHS for a in ACTIVATIONS for noise in NOISES]
    clock, rows = (
        Countdown(PART_SECONDS),
        [
            {"activation": activation, "widths": widths, "noise": noise, "networks": []}
            for activation, widths, noise in (cases[:1] if quick else cases)
        ],
    )
    for i in range(1 if quick else trials or NETWORKS):  # of every row one network, and so on, as far as the time goes
        for c, row in enumerate(rows):
            if clock.over and row["networks"]:
                break
            seed, widths = PASSIVE_GIVEN[SEEDS_PER_ROW * c + i], (4, 1) if quick else row["widths"]
            row["networks"].append(_network(widths, row["activation"], row["noise"], seed))
            print(_row(row), flush=True)
    return {"rows": rows}


def _row(row):
    networks = row["networks"]
    ratios = np.array([n["ratio"] for n in networks])
    determined = sum(n["determined"] for n in networks)
    coverage = sum(n["covered"] for n in networks) / max(determined, 1)
    return [
        row["activation"], str(tuple(row["widths"])), row["noise"], f"{np.sum(ratios <= BAR)} of {len(networks)}",
        float(np.median(ratios)), float(ratios.max()), determined, sum(n["undetermined"] for n in networks),
        coverage, LEAST <= coverage <= MOST, max(n["seconds"] for n in networks),
    ]  # fmt: skip


def tables(result):
    header = [
        "activation", "widths", "noise", f"within {BAR} floors", "error / (P s^2 / N), median", "max",
        "parameters determined", "undetermined", "coverage of 1.96 stderr_", f"{LEAST:g} to {MOST:g}", "s, max",
    ]  # fmt: skip
    return format_table(header, [_row(row) for row in result["rows"]])
