"""Low rank of the escape direction against depth, on the digits."""

from __future__ import annotations

import time

import numpy as np

import seed_ranges
from cases.trained_regressors import standardized_digits
from common import format_table
from registry import part
from skident import SaddleEscapeAnalyzer

FIRST_SEED = seed_ranges.SADDLE.start


@part("saddle", "depth", seeds=seed_ranges.SADDLE)
def run(trials, quick):
    """Digits, both losses, width 50."""
    X, y = standardized_digits()
    rows = []
    for loss in ("log_loss", "squared_error"):
        target = y if loss == "log_loss" else np.eye(10)[y]
        for L in (2,) if quick else range(2, 9):
            cpu = time.process_time()
            analyzer = SaddleEscapeAnalyzer(
                loss, depth=L, width=50, n_starts=8, max_iter=100, fit_intercept=False, random_state=FIRST_SEED
            ).fit(X, target)
            row = {"loss": loss, "depth": L, "speed": analyzer.escape_speed_, "cpu": time.process_time() - cpu}
            row |= {"restarts": analyzer.restart_speeds_, "first": analyzer.rank_ratio_[0]}
            row |= {"weights": max(analyzer.rank_ratio_[1:]), "activations": max(analyzer.activation_rank_ratio_)}
            row |= {"budget": analyzer.log_rank_budget_, "theorem": analyzer.theorem_bound_[-1]}
            rows.append(row)
            print(f"{loss}, depth {L}: {row['speed']:.6f}, {row['cpu']:.1f} s", flush=True)
    return {"rows": rows}


def tables(result):
    header = ["loss", "layers", "speed", "best, worst restart", "rank ratio, layer 1", "worst, layers 2..L"]
    header += ["worst activations", "log-rank budget", "processor s"]
    rows = []
    for r in result["rows"]:
        ends = f"{max(r['restarts']):.5f}, {min(r['restarts']):.5f}"
        budget = f"{r['budget'][0]:.2f} <= {r['budget'][1]:.2f}"
        measures = [r["first"], r["weights"], r["activations"], budget, r["cpu"]]
        rows.append([r["loss"], r["depth"], f"{r['speed']:.6f}", ends, *measures])
    return format_table(header, rows)
