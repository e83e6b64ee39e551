"""Classification of sign inputs (Theorem 4 of Allen-Zhu and Li, 2020)."""

from __future__ import annotations

from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.svm import SVC

import seed_ranges
from cases.hierarchical_targets import FIRST_SEED, timed
from common import format_table
from registry import part
from skident import HierarchicalQuadraticNetClassifier
from skident.datasets import make_hierarchical_target


@part("hierarchical", "signs", seeds=(seed_ranges.HIERARCHICAL, seed_ranges.HIERARCHICAL_ROWS))
def run(trials, quick):
    rows = []
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if quick else trials or 5)):
        target = make_hierarchical_target(16, (3, 2), random_state=seed)
        (X, y), (held_out, held_out_y) = target.sample_signs(5000, seed), target.sample_signs(20_000, seed + 100_000)
        clf = HierarchicalQuadraticNetClassifier((3, 2), loss="theorem4", offset_column=0, random_state=seed)
        clf, spent = timed(clf.fit, X, y)
        row = {"seed": seed, "ours": 1 - clf.score(held_out, held_out_y), "seconds": spent}
        for name, other in (("SVC", [SVC(C=C) for C in (1.0, 10.0)]), ("HGB", [HistGradientBoostingClassifier()])):
            row[name] = min(1 - model.fit(X, y).score(held_out, held_out_y) for model in other)
        print(f"signs: {row}", flush=True)
        rows.append(row)
    return {"rows": rows}


def tables(result):
    header = ["seed", "ours", "SVC", "HistGradientBoosting", "seconds"]
    return format_table(header, [[r[k] for k in ("seed", "ours", "SVC", "HGB", "seconds")] for r in result["rows"]])
