"""How often six layers reach the second rank, by the step after the first escape."""

from __future__ import annotations

import time

import numpy as np

import seed_ranges
from cases.trained_regressors import standardized_digits
from common import format_table
from parts.saddle.training import CASES
from registry import part
from skident import SaddleToSaddleClassifier

FIRST_SEED = seed_ranges.SADDLE.start
SIX_LAYERS = {**CASES["L = 6, batches of 32"], "record_every": 50}
STEPS = {1.0: 400, 8.0: 200}  # learning_rate, epochs
RANK = 0.3  # of the largest: singular values above it count


@part("saddle", "rank_two", seeds=seed_ranges.SADDLE)
def run(trials=None, quick=False):
    """Both rates on the same seeds, on which none was chosen."""
    X, y = standardized_digits()
    rows = []
    for seed in FIRST_SEED + 20 + np.arange(1 if quick else trials or 5):
        for rate, epochs in STEPS.items():
            options = {**SIX_LAYERS, "learning_rate": rate, "max_iter": 20 if quick else epochs}
            start = time.process_time()
            classifier = SaddleToSaddleClassifier(**options, random_state=int(seed)).fit(X, y)
            row = {"rate": rate, "seed": seed, "epochs": epochs, "loss": classifier.loss_}
            row |= _ranks(classifier) | {"accuracy": classifier.score(X, y), "cpu": time.process_time() - start}
            rows.append(row)
            print(row, flush=True)
    return {"rows": rows}


def _ranks(classifier):
    """Second over first singular value of layers 2 to 5: on the plateau, at the end, and when it rises in all four."""
    history = classifier.history_
    after = history["steps"] > classifier.escape_step_
    ratios = np.stack([s[after, 1] / s[after, 0] for s in history["singular_values"][1:-1]])
    flattest = int(np.argmin(ratios.max(axis=0)))
    risen = np.flatnonzero(ratios[:, flattest:].min(axis=0) > RANK)
    return {
        "escape": classifier.escape_step_,
        "plateau": float(ratios[:, flattest].max()),
        "plateau_loss": float(history["losses"][after][flattest]),
        "second": int(history["steps"][after][flattest + risen[0]]) if len(risen) else None,
        "end": ratios[:, -1],
    }


def tables(result):
    """A row a training, and how many took the second rank behind a plateau of rank one."""
    header = ["learning_rate", "epochs", "seed", "first escape, step", "plateau: loss", "s2/s1, layers 2 to 5, at most"]
    header += ["second rank in all four, step", "end: loss", "s2/s1", "accuracy", "processor s"]
    rows, lines = [], []
    for rate in STEPS:
        some = [r for r in result["rows"] if r["rate"] == rate]
        for r in some:
            end = ", ".join(f"{x:.2f}" for x in r["end"])
            cells = [r["escape"], r["plateau_loss"], r["plateau"], r["second"], f"{r['loss']:.3f}", end]
            rows.append([rate, r["epochs"], r["seed"], *cells, r["accuracy"], r["cpu"]])
        taken = [r for r in some if r["second"] is not None]
        behind = sum(r["plateau"] <= RANK for r in taken)
        line = f"`learning_rate={rate:g}`, {STEPS[rate]} epochs: a second rank in layers 2 to 5 in {len(taken)} of "
        lines.append(f"{line}{len(some)} runs, in {behind} of them behind a plateau of rank one.")
    return "\n".join([format_table(header, rows), "", *lines])
