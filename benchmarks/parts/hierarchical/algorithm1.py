"""Algorithm 1 of Allen-Zhu and Li (2020) on planted targets."""

from __future__ import annotations

import seed_ranges
from cases.hierarchical_targets import FIRST_SEED, planted_target, relative_error, timed
from common import format_table
from registry import part
from skident import HierarchicalQuadraticNet
from skident.metrics import feature_recovery_error


@part("hierarchical", "algorithm1", seeds=(seed_ranges.HIERARCHICAL, seed_ranges.HIERARCHICAL_ROWS))
def run(trials, quick):
    rows = []
    for kappa in (1.0,) if quick else (1.0, 2.0):
        for seed in range(FIRST_SEED, FIRST_SEED + (1 if quick else trials or 3)):
            target, X, y, held_out, held_out_y = planted_target(seed, 16, (3, 2), 5000, kappa=kappa)
            net = HierarchicalQuadraticNet((3, 2), solver="algorithm1", random_state=seed)
            net, spent = timed(net.fit, X, y)
            features = target.features(held_out, 2), net.transform(held_out, layer=2)
            row = {
                "kappa": kappa,
                "seed": seed,
                "error": relative_error(net, held_out, held_out_y),
                "widths": net.widths_,
            }
            row |= {"feature_error": feature_recovery_error(*features), "seconds": spent, "epochs": net.n_iter_}
            row["spectrum"] = {layer: s[:6] for layer, s in net.spectrum_.items()}
            print(f"algorithm1: kappa {kappa}, seed {seed}: {row['error']:.1e}, {net.widths_}", flush=True)
            rows.append(row)
    return {"rows": rows}


def tables(result):
    header = ["kappa", "seed", "error", "S_2 error", "learned widths (true 3, 2)", "epochs", "seconds"]
    names = ("kappa", "seed", "error", "feature_error", "widths", "epochs", "seconds")
    return format_table(header, [[r[name] for name in names] for r in result["rows"]])
