"""Training layer by layer against training all layers together (Figure 6 of Allen-Zhu and Li, 2020)."""

from __future__ import annotations

import seed_ranges
from cases.hierarchical_targets import FIRST_SEED, planted_target, timed
from common import format_table
from registry import part
from skident import HierarchicalQuadraticNet
from skident.hierarchical import backward_feature_correction


@part("hierarchical", "layerwise", seeds=(seed_ranges.HIERARCHICAL, seed_ranges.HIERARCHICAL_ROWS))
def run(trials, quick):
    rows = []
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if quick else trials or 5)):
        target, X, y, held_out, held_out_y = planted_target(seed, 16, (3, 2), 3000, alphas=(1.0, 0.3))
        net = HierarchicalQuadraticNet((3, 2), alphas=(1.0, 0.3), readout="sum", random_state=seed)
        found, _ = timed(backward_feature_correction, net, X, y, X_test=held_out, y_test=held_out_y, target=target)
        rows.append({"seed": seed, "layerwise": found.error("layerwise", 3), "joint": found.error("all", 2)})
        print(f"layerwise: seed {seed}: {rows[-1]}", flush=True)
    return {"rows": rows}


def tables(result):
    rows = [[r["seed"], r["layerwise"], r["joint"]] for r in result["rows"]]
    return format_table(["seed", "layer by layer, no correction", "then all layers together"], rows)
