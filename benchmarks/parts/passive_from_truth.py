"""The networks of `passive.given_widths`: least squares initialized at the truth, without a prior and with it."""

from __future__ import annotations

import numpy as np

from common import format_table
from parts.passive import planted
from parts.passive_given_widths import ACTIVATIONS, BAR, N_HELD_OUT, NETWORKS, NOISES, SEEDS_PER_ROW, WIDTHS
from registry import part
from seed_ranges import PASSIVE_GIVEN
from skident.fitting.batched_fits import BatchedNetworkFits, PenalizedNetworkFits, Prior, network_of, parameters_of
from skident.network import Architecture
from skident.optim import Ending, batched_levenberg_marquardt
from skident.samples.passive.whitened_table import Table

KINDS = ("ratio", "penalized")


def _network(widths, activation, noise, seed):
    truth, X, Y, rng = planted(widths, activation, seed)
    sigma, held_out = noise * Y.std(), rng.standard_normal((N_HELD_OUT, X.shape[1]))
    table = Table(X, Y + sigma * rng.standard_normal(Y.shape), None, True)
    rows, architecture = table.rows(slice(None)), Architecture.of(truth)
    prior = Prior.broad(architecture, rows.n_inputs, float((sigma / table.unit[0]) ** 2))
    start, values, errors = parameters_of(table.in_whitened(truth))[None], truth(held_out), {}
    for kind, fits in zip(
        KINDS, (BatchedNetworkFits(architecture, rows), PenalizedNetworkFits(architecture, rows, prior)), strict=True
    ):
        x = batched_levenberg_marquardt(fits, start, Ending(max_iter=500, ftol=1e-9)).x[0]
        found = table.in_inputs(network_of(x, rows.n_inputs, architecture))
        squared = float(np.mean((found(held_out) - values) ** 2))
        errors[kind] = squared / (truth.n_parameters * sigma**2 / len(X))
    return {"seed": seed, **errors}


@part("passive", "from_truth", seeds=PASSIVE_GIVEN)
def run(trials, quick):
    cases, rows = [(a, w, noise) for w in WIDTHS for a in ACTIVATIONS for noise in NOISES], []
    for c, (activation, widths, noise) in enumerate(cases[:1] if quick else cases):
        seeds = PASSIVE_GIVEN[SEEDS_PER_ROW * c : SEEDS_PER_ROW * c + (1 if quick else trials or NETWORKS)]
        networks = [_network((4, 1) if quick else widths, activation, noise, seed) for seed in seeds]
        rows.append({"activation": activation, "widths": widths, "noise": noise, "networks": networks})
        print(_row(rows[-1]), flush=True)
    return {"rows": rows}


def _row(row):
    cells = [row["activation"], str(tuple(row["widths"])), row["noise"]]
    for kind in KINDS:
        ratios = np.array([n[kind] for n in row["networks"]])
        cells += [f"{np.sum(ratios <= BAR)} of {len(ratios)}", float(np.median(ratios)), float(ratios.max())]
    return cells


def tables(result):
    header = [
        "activation", "widths", "noise", f"least squares from the truth within {BAR} floors", "median", "max",
        "with the prior", "median", "max",
    ]  # fmt: skip
    return format_table(header, [_row(row) for row in result["rows"]])
