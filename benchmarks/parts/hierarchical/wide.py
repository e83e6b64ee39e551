"""Wide quadratic networks on digits, and on CIFAR-10 if its file is given."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from sklearn.datasets import (
    load_digits,
)

import seed_ranges
from cases.hierarchical_targets import FIRST_SEED
from common import format_table
from registry import part
from skident import HierarchicalQuadraticNetClassifier

SETTINGS = {"device": "cpu", "cifar": None}


@part("hierarchical", "wide", seeds=seed_ranges.HIERARCHICAL)
def run(trials, quick):
    """A wide quadratic network; --device cuda runs it on a GPU."""
    sets = {"digits": load_digits(return_X_y=True)}
    note = "CIFAR-10 was skipped: no folder was given by --cifar, or it lacks the files; nothing is downloaded."
    cifar = _cifar(SETTINGS["cifar"])
    if cifar is not None:
        sets["CIFAR-10, 10 000 images"], note = cifar, ""
    rows = []
    for name, (X, y) in sets.items():
        for seed in range(1 if quick else trials or 3):
            order = np.random.RandomState(FIRST_SEED + seed).permutation(len(X))
            test, train = np.split(order, [len(X) // 5])
            for widths in ((32, 16), (512, 256)):
                clf = HierarchicalQuadraticNetClassifier(
                    widths, device=SETTINGS["device"], dtype="float32", max_epochs=5 if quick else 40, random_state=seed
                )
                start = time.perf_counter()
                clf.fit(X[train], y[train])
                row = {"table": name, "widths": widths, "device": SETTINGS["device"], "seed": seed}
                rows.append(row | {"score": clf.score(X[test], y[test]), "seconds": time.perf_counter() - start})
                print(f"wide: {rows[-1]}", flush=True)
    print(note)
    return {"rows": rows, "note": note}


def _cifar(folder):
    """Images and labels of the first batch, from an .npz file with ``data`` and ``labels``; None if there is none."""
    path = None if folder is None else Path(folder) / "data_batch_1.npz"
    if path is None or not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as content:
        return content["data"].astype(float), np.asarray(content["labels"])


def tables(result):
    header = ["table", "widths", "device", "accuracy", "seconds"]
    keys = ("table", "widths", "device", "score", "seconds")
    return format_table(header, [[r[k] for k in keys] for r in result["rows"]]) + f"\n\n{result['note']}"
