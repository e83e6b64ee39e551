"""Hierarchical targets with unknown widths and noise: R^2 against the noise-free target, and spread over starts."""

from __future__ import annotations

import numpy as np

import seed_ranges
from cases.hierarchical_references import r2_from_the_truth
from cases.hierarchical_targets import relative_error, timed
from common import format_table
from registry import part
from skident import HierarchicalQuadraticNet
from skident.datasets import make_hierarchical_target

NOISE = 0.3  # standard deviations of the targets
SHAPES = [(d, widths, multiple) for multiple in (3, 10) for widths in ((3,), (3, 2)) for d in (10, 20, 30)]
TRIALS = {3: 8, 10: 1}  # per row, by samples per weight: fits of the larger ones take a minute
N_STARTS_COMPARED = 2  # values of random_state for the same samples
SEEDS_PER_ROW = 20


def _weights_of(d, widths):
    """Number of weights of the true network with one or two hidden layers."""
    return 2 * d * widths[0] + sum(k * (d + before) for before, k in zip(widths, widths[1:]))


def drawn(seed, d, widths, n):
    """Samples, noise-free targets, noise of unit variance, held-out samples with targets, and the target."""
    rng = np.random.RandomState(seed)
    target = make_hierarchical_target(d, widths, random_state=rng)
    X, held_out = target.sample(n, rng), target.sample(20_000, rng)
    return X, target(X), rng.standard_normal(n), held_out, target(held_out), target


def measured(row, k):
    """The k-th network of a row of `SHAPES`."""
    d, widths, multiple = SHAPES[row]
    n = multiple * _weights_of(d, widths)
    seed = seed_ranges.HIERARCHICAL_WIDTHS.start + SEEDS_PER_ROW * row + k
    X, y, noise, held_out, held_out_y, target = drawn(seed, d, widths, n)
    sd = NOISE * y.std()
    y = y + sd * noise
    scores, seconds = [], []
    for start in range(N_STARTS_COMPARED):
        net, spent = timed(HierarchicalQuadraticNet("auto", random_state=start).fit, X, y)
        scores.append(1.0 - relative_error(net, held_out, held_out_y))
        seconds.append(spent)
    given, _ = timed(HierarchicalQuadraticNet(widths, random_state=0).fit, X, y)
    least_squares, posterior = r2_from_the_truth(target, X, y, sd, held_out, held_out_y)
    result = {"case": f"d={d}, {widths}, N = {multiple} P", "N": n, "seed": seed, "scores": scores}
    result |= {"seconds": max(seconds), "given": 1.0 - relative_error(given, held_out, held_out_y)}
    return result | {"least_squares": least_squares, "attainable": posterior}


@part("hierarchical", "unknown_widths", seeds=(seed_ranges.HIERARCHICAL_WIDTHS,))
def run(trials, quick):
    results = []
    for row, (_, _, multiple) in enumerate(SHAPES[:1] if quick else SHAPES):
        for k in range(1 if quick else trials or TRIALS[multiple]):
            results.append(measured(row, k))
            print(f"unknown_widths: {results[-1]}", flush=True)
    return {"noisy": results}


def _share(scores):
    """How many scores are at least 0.9."""
    return f"{sum(s >= 0.9 for s in scores)} of {len(scores)}"


def tables(result):
    header = ["target", "N", "R^2 median", "worst", "at least 0.9", "worst spread over starts", "widths given, median"]
    header += ["from the truth: least squares, median", "posterior mean, median", "worst", "at least 0.9"]
    rows = []
    for name in dict.fromkeys(r["case"] for r in result["noisy"]):
        some = [r for r in result["noisy"] if r["case"] == name]
        scores, attainable = [r["scores"][0] for r in some], [r["attainable"] for r in some]
        row = [name, some[0]["N"], float(np.median(scores)), min(scores), _share(scores)]
        row += [max(float(np.ptp(r["scores"])) for r in some), float(np.median([r["given"] for r in some]))]
        row += [float(np.median([r["least_squares"] for r in some])), float(np.median(attainable)), min(attainable)]
        rows.append([*row, _share(attainable), max(r["seconds"] for r in some)])
    return format_table([*header, "maximum seconds"], rows)
