"""Escape times on random data: the printed and the corrected formula against simulated gradient flow."""

from __future__ import annotations

import numpy as np

import seed_ranges
from common import format_table
from registry import part
from skident import SaddleEscapeAnalyzer
from skident.saddle.escape_time import aligned_escape_time
from skident.saddle.localized_loss import loss_gradient

FIRST_SEED = seed_ranges.SADDLE.start


def simulated_time(weights, X, gradient, init_scale, radius, h=2e-3):
    """Time of gradient flow ``theta' = -gradient(theta)``: midpoint steps of equal relative growth."""
    L, theta, t, a = len(weights), [init_scale * W for W in weights], 0.0, init_scale
    while a < radius:
        step, before = h * a ** (2 - L), a
        middle = [W - 0.5 * step * g for W, g in zip(theta, gradient(theta))]
        theta = [W - step * g for W, g in zip(theta, gradient(middle))]
        t, a = t + step, float(np.sqrt(sum(np.sum(W**2) for W in theta) / L))
    return t - step * (a - radius) / (a - before)


@part("saddle", "times", seeds=seed_ranges.SADDLE)
def run(trials, quick):
    """Aligned starts on random data: the formula, as printed and corrected, against the flow; random starts scaled."""
    rows = []
    for L in (2, 3) if quick else (2, 3, 4):
        for t in range(1 if quick else trials or 3):
            rng = np.random.RandomState(FIRST_SEED + t)
            X, y = rng.standard_normal((200, 4)), rng.standard_normal(200)
            analyzer = SaddleEscapeAnalyzer(depth=L, width=8, fit_intercept=False, random_state=FIRST_SEED + t)
            analyzer.fit(X, y)
            s, G, a0, r = analyzer.escape_speed_, -y[:, None] / len(y), 0.02, 0.2

            def localised(theta, X=X, G=G):
                return loss_gradient(theta, X, G)[1]

            def full(theta, X=X, y=y):
                A = X
                for W in theta[:-1]:
                    A = np.maximum(A @ W, 0)
                return loss_gradient(theta, X, (A @ theta[-1] - y[:, None]) / len(y))[1]

            corrected = aligned_escape_time(s, L, a0, r)
            n0, n1 = np.sqrt(L) * a0, np.sqrt(L) * r
            printed = np.log(n1 / n0) / (2 * s) if L == 2 else (n0 ** (2 - L) + n1 ** (2 - L)) / ((L - 2) * L * s)
            simulated = simulated_time(analyzer.escape_direction_, X, localised, a0, r)
            row = {"depth": L, "seed": FIRST_SEED + t, "localised": simulated}
            times = {"printed": printed, "corrected": corrected}
            times["full"] = simulated_time(analyzer.escape_direction_, X, full, a0, r)
            times["integrated"] = analyzer.escape_time_from(analyzer.initial_weights(a0), X, y, r)
            row |= {key: value / simulated - 1 for key, value in times.items()}
            start = [1e-3 * rng.standard_normal(W.shape) for W in analyzer.escape_direction_]
            times = [analyzer.escape_time_from([scale * W for W in start], X, y) for scale in (1.0, 0.1)]
            row["scaling"] = times[1] / times[0] / 10 ** (L - 2)
            rows.append(row)
    return {"rows": rows}


def tables(result):
    header = ["layers", "seed", "localized flow, simulated", "corrected / simulated - 1", "printed / simulated - 1"]
    header += ["escape_time_from / simulated - 1", "flow of the full loss / localized - 1", "alpha-scaling, 1 exact"]
    rows = []
    for r in result["rows"]:
        ratios = [r[key] for key in ("corrected", "printed", "integrated", "full")]
        scaling = r["scaling"] if r["depth"] > 2 else None
        rows.append([r["depth"], r["seed"], r["localised"], *ratios, scaling])
    return format_table(header, rows)
