"""Theorem 2.5 of Soltanolkotabi et al. (2017): convergence rate near a planted network, predicted and observed."""

from __future__ import annotations

import numpy as np

import seed_ranges
from common import format_table
from registry import part
from skident.datasets import make_planted_shallow
from skident.landscape import descent_rate
from skident.network import get_activation

FIRST_SEED = seed_ranges.LANDSCAPE_RATE.start
CASES = [  # activation, n, d, k
    ("softplus", 20, 10, 12),
    ("softplus", 40, 10, 12),
    ("softplus", 60, 15, 20),
    ("tanh", 20, 10, 12),
    ("tanh", 40, 10, 12),
    ("sigmoid", 20, 10, 12),
    ("erf", 40, 10, 12),
    ("quadratic", 40, 10, 12),
]
DISTANCE, FLOOR = 1e-3, 1e-20


def _one(activation, n, d, k, seed, max_steps):
    """Rates of gradient descent (2.6) with the largest step that the local curvature allows."""
    rng, g = np.random.RandomState(seed), get_activation(activation)
    X, y, W_true, v_true = make_planted_shallow(n, d, k, activation=g, coef=True, random_state=rng)
    alpha, factor = descent_rate(W_true, v_true, X, activation=activation)
    slope = g.jet(X @ W_true.T, 1)[1] * v_true
    least_of_weights = np.linalg.eigvalsh(slope @ slope.T * (X @ X.T))[0]
    W = W_true + DISTANCE * rng.standard_normal(W_true.shape) / np.sqrt(W_true.size)
    v = v_true + DISTANCE * rng.standard_normal(k) / np.sqrt(W_true.size)
    losses = []
    for _ in range(max_steps):
        value, slope = g.jet(X @ W.T, 1)
        r = value @ v - y
        losses.append(0.5 * np.mean(r**2))
        if losses[-1] <= FLOOR * losses[0]:
            break
        W, v = W - alpha / n * v[:, None] * ((slope * r[:, None]).T @ X), v - alpha / n * (value.T @ r)
    losses, T = np.array(losses), len(losses) - 1
    # c of (1 - c alpha d / n)^tau, over the whole run and over its last third.
    observed = (1.0 - (losses[-1] / losses[0]) ** (1.0 / T)) * n / (alpha * d)
    late = (1.0 - (losses[-1] / losses[2 * T // 3]) ** (1.0 / (T - 2 * T // 3))) * n / (alpha * d)
    predicted = 2.0 * (1.0 - np.sqrt(factor)) * n / (alpha * d)
    bound = np.log(losses / losses[0]) - np.arange(T + 1) * np.log1p(-0.9 * predicted * alpha * d / n)
    row = {"activation": activation, "n": n, "d": d, "k": k, "seed": seed, "steps": T}
    row |= {"decay": losses[-1] / losses[0], "predicted": predicted, "weights_only": 2.0 * least_of_weights / d}
    row |= {"observed": observed, "late": late, "bound_holds": bool(bound.max() <= 1e-9)}
    print(f"rate: {activation} n={n}: predicted c {predicted:.3g}, observed {observed:.3g}, {T} steps", flush=True)
    return row


@part("landscape", "rate", seeds=seed_ranges.LANDSCAPE_RATE)
def run(trials=None, quick=False):
    cases = CASES[:2] if quick else CASES
    seeds, max_steps = range(FIRST_SEED, FIRST_SEED + (trials or (1 if quick else 3))), 5000 if quick else 40000
    return {"rows": [_one(*case, seed, max_steps) for case in cases for seed in seeds]}


def tables(result):
    """A row a case; ranges over seeds."""
    header = ["activation", "n", "d", "k", "c predicted", "c of W alone", "c observed", "observed / predicted"]
    header += ["the same, last third", "loss / loss at start", "0.9 c bounds every step"]
    rows = []
    for case in dict.fromkeys((r["activation"], r["n"], r["d"], r["k"]) for r in result["rows"]):
        some = [r for r in result["rows"] if (r["activation"], r["n"], r["d"], r["k"]) == case]

        def span(values):
            return f"{min(values):.3g} to {max(values):.3g}"

        columns = [[r[key] for r in some] for key in ("predicted", "weights_only", "observed")]
        ratios = [[r[key] / r["predicted"] for r in some] for key in ("observed", "late")]
        held = f"{sum(r['bound_holds'] for r in some)} of {len(some)}"
        rows.append([*case, *map(span, columns), *map(span, ratios), max(r["decay"] for r in some), held])
    return format_table(header, rows)
