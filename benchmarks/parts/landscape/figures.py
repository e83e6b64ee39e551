"""Figures 2 to 4 of Soltanolkotabi et al. (2017): success of training from every start, and random labels."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

import seed_ranges
from common import format_table
from registry import part
from skident.datasets import make_planted_shallow
from skident.landscape import TrainingTrials, phase_transition
from skident.landscape.phase_transitions import TRAINING, train_shallow_batch
from skident.network import get_activation

FIRST_SEED = seed_ranges.LANDSCAPE_FIGURES.start
SOFTPLUS, QUADRATIC = {"activation": "softplus", "sharpness": 10.0}, {"activation": "quadratic"}
PANELS = {  # sizes, activation, the paper's half-point, bar
    "2a: softplus, n=100, d=10, k": (lambda x: (100, 10, x), range(8, 16), SOFTPLUS, 11.40, (10.1, 12.7)),
    "2b: softplus, n=100, k=10, d": (lambda x: (100, x, 10), range(8, 16), SOFTPLUS, 10.70, (9.4, 12.0)),
    "3a: quadratic, n=100, d=20, k": (lambda x: (100, 20, x), range(3, 10), QUADRATIC, 5.5, (4.2, 6.8)),
    "3b: quadratic, n=100, k=5, d": (lambda x: (100, x, 5), range(18, 31, 2), QUADRATIC, 25.40, (22.5, 25.0)),
}
STEPS = {"coarse": 120, "fine": 300}
# Figure 4: inputs and labels random, output weights fixed. With v = 1, as the paper has it, outputs are never negative,
# so labels from N(0, 1) are out of reach at any size: one size shows that, the others have v = +1 and -1 at random.
RANDOM_LABELS = {
    "softplus, v = +1, -1": (10, SOFTPLUS, "mixed", (0.5, 1.0, 1.5, 2.0, 3.0)),
    "softplus, v = 1": (10, SOFTPLUS, "positive", (3.0,)),
    "quadratic, v = +1, -1": (20, QUADRATIC, "mixed", (0.5, 1.0, 1.5, 2.0, 3.0)),
    "quadratic, v = 1": (20, QUADRATIC, "positive", (3.0,)),
}


def _panels(name, n_trials, n_starts, steps):
    sizes, values, options, paper, bar = PANELS[name]
    start = time.process_time()
    found = phase_transition(
        *sizes(values),
        **options,
        trials=TrainingTrials(n_trials=n_trials, n_starts=n_starts, max_iter=STEPS[steps]),
        random_state=FIRST_SEED,
    )
    row = {"panel": name, "steps": steps, "paper": paper, "half_point": found.half_point, "interval": found.interval}
    row |= {"seconds": time.process_time() - start, "bar": bar, "met": bool(bar[0] <= found.half_point <= bar[1])}
    row |= {"values": found.values, "probabilities": found.probabilities, "start_rates": found.start_rates}
    print(f"figures: {name}, {steps}: {found.half_point:.2f} {row['seconds']:.1f} s", flush=True)
    return row


def _random_labels(name, n_trials, max_iter):
    """RMSE after Levenberg-Marquardt steps, medians over trials, against the number of parameters per label."""
    d, options, signs, ratios = RANDOM_LABELS[name]
    n, g, b = 100, get_activation(options["activation"]), options.get("sharpness", 1.0)
    rows = []
    for ratio in ratios:
        k, rng = max(2, int(np.ceil(ratio * n / d))), np.random.RandomState(FIRST_SEED + 50)
        sets = [
            make_planted_shallow(n, d, k, labels="random", output_signs=signs, coef=True, random_state=rng)
            for _ in range(n_trials)
        ]
        X, y, W, v = (np.stack(arrays) for arrays in zip(*sets))
        batch = train_shallow_batch(
            X,
            y,
            W,
            v,
            lambda z, order: (g.jet(b * z, 1)[0] / b, g.jet(b * z, 1)[1]),
            train_output=False,
            ending=replace(TRAINING, max_iter=max_iter, target=1e-20),
        )
        curves = np.sqrt(batch.history)
        at = {f"after_{s}": float(np.median(curves[min(s, len(curves) - 1)])) for s in (10, 100, max_iter)}
        zero = int(np.sum(batch.cost <= 1e-16))
        rows.append({"network": name, "k": k, "ratio": k * d / n, "zero": zero, "trials": n_trials, **at})
        print(f"figures: 4, {name}, k={k}: {zero} of {n_trials} at zero", flush=True)
    return rows


@part("landscape", "figures", seeds=seed_ranges.LANDSCAPE_FIGURES)
def run(trials=None, quick=False):
    n_trials = trials or (3 if quick else 10)
    rows = [_panels(name, n_trials, 3 if quick else 10, "coarse") for name in PANELS]
    if not quick:
        rows += [_panels(name, n_trials, 10, "fine") for name in PANELS]
    labels = [r for name in RANDOM_LABELS for r in _random_labels(name, n_trials, 50 if quick else 500)]
    return {"panels": rows, "random_labels": labels, "optimizer": "Levenberg-Marquardt", "threshold": 1e-8}


def tables(result):
    header = ["panel", "steps", "paper", "half-point", "95 % interval", "bar", "seconds", "met"]
    rows = []
    for r in result["panels"]:
        low, high = r["interval"]
        bar = f"{r['bar'][0]:g} to {r['bar'][1]:g}"
        steps, met = STEPS[r["steps"]], "pass" if r["met"] else "**FAIL**"
        half = f"{r['half_point']:.2f}"
        rows.append([r["panel"], steps, r["paper"], half, f"{low:.2f} to {high:.2f}", bar, r["seconds"], met])
    seconds = sum(r["seconds"] for r in result["panels"] if r["steps"] == "coarse")
    text = format_table(header, rows) + f"\n\nThe four panels with 120 steps together: {seconds:.0f} s (bar 60 s).\n\n"
    some = result["random_labels"][0]
    last = max(int(key.removeprefix("after_")) for key in some if key.startswith("after_"))
    header = ["random labels", "k", "kd / n", "zero loss", "RMSE after 10 steps", "100 steps", f"{last} steps"]
    keys = ["network", "k", "ratio", "zero", "after_10", "after_100", f"after_{last}"]
    rows = [[f"{r['zero']} of {r['trials']}" if k == "zero" else r[k] for k in keys] for r in result["random_labels"]]
    return text + format_table(header, rows)
