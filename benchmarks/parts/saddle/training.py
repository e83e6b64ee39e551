"""Training from saddle to saddle on digits and MNIST: loss, plateaus and their ranks."""

from __future__ import annotations

import time

import numpy as np

import seed_ranges
from cases.trained_regressors import standardized_digits
from common import environment, format_table, rounded, write_part
from registry import part
from skident import SaddleToSaddleClassifier

FIRST_SEED = seed_ranges.SADDLE.start
# As in the paper: gradient descent throughout, inputs as they are.
PAPER = {"n_escapes": "all", "standardize": False, "relative_step": 0.02}
FULL = {"width": 100, "dtype": "float32", **PAPER}
CASES = {
    "L = 4, full batch": {"depth": 4, "max_iter": 1300, **FULL},
    "L = 6, full batch": {"depth": 6, "max_iter": 1300, "learning_rate": 1.0, **FULL},
    "L = 6, batches of 32": {
        "depth": 6,
        "max_iter": 400,
        "learning_rate": 1.0,
        "batch_size": 32,
        "init_scale": 0.2,
        "record_every": 5,
        **FULL,
    },
}


def _record(name, seed, classifier, seconds, X, y):
    """What a training left, with at most 100 points of its curves."""
    history, saddles = classifier.history_, classifier.saddles_
    kept = np.unique(np.linspace(0, len(history["steps"]) - 1, 100).astype(int))
    ratios = [s[:, 1] / s[:, 0] for s in history["singular_values"]]
    row = {"case": name, "seed": seed, "loss": classifier.loss_, "accuracy": classifier.score(X, y), "cpu": seconds}
    row["saddles"] = [vars(s) for s in saddles]
    row["curve"] = {"steps": history["steps"][kept], "losses": history["losses"][kept]}
    row["curve"]["ratios"] = [r[kept] for r in ratios]
    row["final_ratios"] = [float(r[-1]) for r in ratios]
    return row


@part("saddle", "training", seeds=seed_ranges.SADDLE)
def run(trials=None, quick=False):
    """Three seeds a case, five of the last, whose outcome differs from seed to seed."""
    X, y = standardized_digits()
    rows = []
    for name, options in CASES.items():
        for t in range(1 if quick else trials or (5 if "batch_size" in options else 3)):
            options = {**options, "max_iter": 30} if quick else options
            cpu = time.process_time()
            classifier = SaddleToSaddleClassifier(**options, random_state=FIRST_SEED + t).fit(X, y)
            rows.append(_record(name, FIRST_SEED + t, classifier, time.process_time() - cpu, X, y))
            found = [(round(s.loss, 3), s.ranks) for s in classifier.saddles_]
            print(f"{name}, seed {FIRST_SEED + t}: {found}, {rows[-1]['cpu']:.0f} s", flush=True)
    return {"rows": rows}


def _cells(saddle):
    if saddle is None:
        return ["-", "-", "-"]
    ratios = ", ".join(f"{r:.2f}" for r in saddle["singular_value_ratios"])
    return [f"{saddle['loss']:.3f}", ",".join(map(str, saddle["ranks"])), ratios]


def tables(result):
    """A row a training: the first plateau, the last one."""
    header = ["training", "seed", "first escape, step", "first plateau: loss", "ranks", "s2/s1 by layer"]
    header += ["second escape, step", "end: loss", "ranks", "s2/s1 by layer", "accuracy", "processor s"]
    rows = []
    for r in result["rows"]:
        s = r["saddles"]
        first = s[1] if len(s) > 1 else None
        last = s[-1] if len(s) > 2 else None
        escapes = [x["escape_step"] for x in s if x["escape_step"] is not None]
        steps = [int(escapes[k]) if len(escapes) > k else None for k in (0, 1)]
        end = [f"{r['loss']:.3f}", *_cells(last)[1:]]
        if last is None:
            end[2] = ", ".join(f"{x:.2f}" for x in r["final_ratios"])
        rows.append([r["case"], r["seed"], steps[0], *_cells(first), steps[1], *end, r["accuracy"], r["cpu"]])
    return format_table(header, rows)


def run_mnist(path, device, width, epochs):
    """The paper's Appendix B: six layers, batches of 32, weights N(0, 1e-6), rate ``10 / ||theta||^4``."""
    if path is None:
        print("no MNIST file given (--mnist): the digits instead")
        X, y = standardized_digits()
    else:
        with np.load(path, allow_pickle=False) as data:
            X, y = data["x_train"].reshape(len(data["x_train"]), -1) / 255.0, data["y_train"]
        X = (X - X.mean()) / X.std()
    recorded, start = environment(), time.perf_counter()
    classifier = SaddleToSaddleClassifier(
        6,
        width,
        init_scale=0.001 * np.sqrt(width),
        learning_rate=10 / 36,
        batch_size=32,
        max_iter=epochs,
        record_every=max(1, len(X) // 32),
        device=device,
        dtype="float32",
        random_state=FIRST_SEED,
    ).fit(X, y)
    seconds = time.perf_counter() - start
    name = f"width {width}, {'digits' if path is None else 'MNIST'}, {device}"
    row = _record(name, FIRST_SEED, classifier, seconds, X, y)
    write_part("saddle", "mnist", rounded({"environment": recorded, "seconds": seconds, "rows": [row]}))
    print(tables(rounded({"rows": [row]})))
