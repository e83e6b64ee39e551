"""Recovery rate and false positives of Hessians against the number of neurons."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import seed_ranges
from common import Countdown, format_table, stopwatch, unit_inputs
from registry import part
from skident import EntangledWeightExtractor
from skident.datasets import make_pyramidal_network
from skident.metrics import false_positive_rate, recovery_rate

N_INPUTS, N_OUTPUTS, N_LAYERS, CONTRACTION = 50, 10, 3, 0.5
FIRST_SEED = seed_ranges.TRANSITION.start
# Beyond the transition no start converges; the bound keeps that affordable and costs nothing before it.
MAX_ITER = 150
ROUTES = ("hessian", "saturation")


def _trial(n_neurons, route, seed):
    """Recovery, false positives, their inner layers' share, seconds."""
    network = make_pyramidal_network(
        N_INPUTS, N_LAYERS, N_OUTPUTS, n_neurons, contraction=CONTRACTION, random_state=seed
    )
    center = np.zeros(N_INPUTS)
    extractor = EntangledWeightExtractor(
        network,
        layer_widths=network.layer_widths,
        center=center,
        first_layer=route,
        max_iter=MAX_ITER,
        random_state=seed,
    )
    with warnings.catch_warnings(), stopwatch() as clock:
        warnings.simplefilter("ignore", ConvergenceWarning)
        extractor.fit(unit_inputs(N_INPUTS))
    true = network.entangled_weights(center)
    found = extractor.components_
    return {
        "recovery": recovery_rate(np.hstack(true).T, found),
        "false_positives": false_positive_rate(np.hstack(true).T, found),
        "inner_recovery": recovery_rate(true[1].T, found),
        "seconds": clock.seconds,
    }


@part("entangled_weights", "transition", seeds=seed_ranges.TRANSITION)
def run(trials=None, quick=False):
    """Increase m from 100 until fewer than half of the neurons are recovered, or the time limit is reached."""
    trials = trials or (1 if quick else 2)
    left, rows = Countdown(20 if quick else 50), []
    for route in ROUTES:
        for m in (100,) if quick else range(100, 1001, 100):
            results = []
            for t in range(trials):
                if not left.over:
                    results.append(_trial(m, route, FIRST_SEED + t))
            if not results:
                break
            row = {"route": route, "m": m, "trials": len(results)}
            row |= {key: float(np.mean([r[key] for r in results])) for key in results[0]}
            rows.append(row)
            print(f"transition: {route} m={m}: recovery {row['recovery']:.3f}, {row['seconds']:.1f} s", flush=True)
            if row["recovery"] < 0.5:
                break
        left = Countdown(20 if quick else 30)
    return {"rows": rows, "max_iter": MAX_ITER}


def tables(result):
    header = ["first layer from", "m", "recovery", "false positives", "recovery, inner layer", "seconds", "networks"]
    keys = ["route", "m", "recovery", "false_positives", "inner_recovery", "seconds", "trials"]
    return format_table(header, [[r[k] for k in keys] for r in result["rows"]])
