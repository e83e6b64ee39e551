"""How do deep ReLU networks leave the saddle at the origin, and what do they cost to analyse?

    python benchmarks/bench_saddle.py                       all parts: about 20 minutes on one core
    python benchmarks/bench_saddle.py --quick               small and few, a minute, nothing written
    python benchmarks/bench_saddle.py --part mnist --device cuda [--mnist mnist.npz]

Parts: `exact` (Example 1 by its formulas, extended networks, the digits with default steps), `width` (Figure 2 of the
paper: success against width on Example 1, and the batch against a loop over seeds),
`times` (escape times, the printed and the corrected formula against simulated gradient flow), `depth` (low rank against
depth on the digits), `training` (Figures 1, 3 and 4 on the digits), `rank_two` (how often six layers take the second
rank), `features` (escape directions beside principal components on five tables), and, only when asked for, `mnist`: the
paper's own setting, six layers of width 1000 with batches of 32, on a local file of MNIST (arrays ``x_train``,
``y_train`` as Keras stores them) or on the digits. The paper is Bantzis, Simon, Jacot (2025), "Saddle-to-saddle
dynamics in deep ReLU networks: low-rank bias in the first saddle escape".
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from types import SimpleNamespace

import _saddle_features
import _saddle_rank_two
import _saddle_training
import _seeds
import numpy as np
import torch
from _common import format_table, run_parts
from _saddle_training import standardised_digits

from skident import SaddleEscapeAnalyzer
from skident.datasets import make_alternating_circle
from skident.saddle import fastest_planar_escape
from skident.saddle.escape_time import aligned_escape_time
from skident.saddle.gradient_at_zero import gradient_at_zero, resolve_loss
from skident.saddle.localized_loss import loss_gradient

FIRST_SEED = _seeds.SADDLE.start
RANK_ONE = np.sqrt(2) - 1


def autograd_restart(X, G, width, seed, steps, lr=0.3, last_lr=1e-4):
    """One restart of projected gradient ascent as a plain torch loop: layers on their spheres, automatic gradients.

    The rule that the paper describes, with decaying steps; nothing is cut off or polished.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = (X.shape[1], width, width, 1)
    weights = [torch.randn(a, b, generator=generator, dtype=X.dtype) for a, b in zip(sizes[:-1], sizes[1:])]
    weights = [(W / torch.linalg.norm(W)).requires_grad_() for W in weights]
    for t in range(steps):
        value = -torch.sum(G * (torch.relu(torch.relu(X @ weights[0]) @ weights[1]) @ weights[2]))
        gradients = torch.autograd.grad(value, weights)
        step = lr * (last_lr / lr) ** (t / (steps - 1))
        with torch.no_grad():
            for W, gradient in zip(weights, gradients):
                W += step * gradient
                W /= torch.linalg.norm(W)
    return float(value.detach())


def run_width(trials, quick):
    """100 restarts of every width, three times; the loop runs a tenth of them."""
    X, y = make_alternating_circle(8)
    rows = []
    for width in (4, 32) if quick else (4, 8, 16, 32, 64):
        for t in range(1 if quick else trials or 3):
            start, cpu = time.perf_counter(), time.process_time()
            analyzer = SaddleEscapeAnalyzer(
                "gradient", depth=3, width=width, n_starts=100, max_iter=400, random_state=FIRST_SEED + t
            ).fit(X, y)
            row = {"width": width, "seed": FIRST_SEED + t, "best": analyzer.escape_speed_, "dead": analyzer.n_dead_}
            row |= {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
            row["success"] = float(np.mean(analyzer.restart_speeds_ > RANK_ONE + 1e-6))
            tensors, cpu = (torch.as_tensor(X), torch.as_tensor(y)[:, None]), time.process_time()
            loop = [autograd_restart(*tensors, width, FIRST_SEED + 100 * t + r, 400) for r in range(10)]
            row |= {"loop_cpu": 10 * (time.process_time() - cpu), "loop_success": np.mean(np.array(loop) > RANK_ONE)}
            rows.append(row)
            print(f"width {width}, seed {row['seed']}: {row['success']:.2f}, {row['cpu']:.2f} s", flush=True)
    exact = {n: fastest_planar_escape(*make_alternating_circle(n)) for n in ((6, 8) if quick else (6, 8, 10, 12))}
    programmes = [{"n": n, "speed": e.speed, "upper_bound": e.upper_bound} for n, e in exact.items()]
    return {"rows": rows, "programmes": programmes}


def tables_width(result):
    header = ["width", "restarts above sqrt(2) - 1", "best speed", "processor s, 100 restarts"]
    header += ["the same, autograd loop", "loop / ours", "loop: restarts above"]
    rows = []
    for width in dict.fromkeys(r["width"] for r in result["rows"]):
        some = [r for r in result["rows"] if r["width"] == width]
        mean = {key: float(np.mean([r[key] for r in some])) for key in ("success", "cpu", "loop_cpu", "loop_success")}
        best = max(r["best"] for r in some)
        row = [width, mean["success"], f"{best:.5f}", mean["cpu"], mean["loop_cpu"]]
        rows.append([*row, mean["loop_cpu"] / mean["cpu"], mean["loop_success"]])
    second = [[p["n"], f"{p['speed']:.9f}", f"{p['upper_bound']:.9f}"] for p in result["programmes"]]
    lines = [format_table(header, rows), "", "Linear programs, exact for one top unit:", ""]
    return "\n".join([*lines, format_table(["points on the circle", "fastest speed", "upper bound"], second)])


def simulated_time(weights, X, gradient, init_scale, radius, h=2e-3):
    """Time of gradient flow ``theta' = -gradient(theta)``: midpoint steps of equal relative growth."""
    L, theta, t, a = len(weights), [init_scale * W for W in weights], 0.0, init_scale
    while a < radius:
        step, before = h * a ** (2 - L), a
        middle = [W - 0.5 * step * g for W, g in zip(theta, gradient(theta))]
        theta = [W - step * g for W, g in zip(theta, gradient(middle))]
        t, a = t + step, float(np.sqrt(sum(np.sum(W**2) for W in theta) / L))
    return t - step * (a - radius) / (a - before)


def run_times(trials, quick):
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


def tables_times(result):
    header = ["layers", "seed", "localised flow, simulated", "corrected / simulated - 1", "printed / simulated - 1"]
    header += ["escape_time_from / simulated - 1", "flow of the full loss / localised - 1", "alpha-scaling, 1 exact"]
    rows = []
    for r in result["rows"]:
        ratios = [r[key] for key in ("corrected", "printed", "integrated", "full")]
        scaling = r["scaling"] if r["depth"] > 2 else None
        rows.append([r["depth"], r["seed"], r["localised"], *ratios, scaling])
    return format_table(header, rows)


def run_depth(trials, quick):
    """Digits, both losses, width 50."""
    X, y = standardised_digits()
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


def tables_depth(result):
    header = ["loss", "layers", "speed", "best, worst restart", "rank ratio, layer 1", "worst, layers 2..L"]
    header += ["worst activations", "log-rank budget", "processor s"]
    rows = []
    for r in result["rows"]:
        ends = f"{max(r['restarts']):.5f}, {min(r['restarts']):.5f}"
        budget = f"{r['budget'][0]:.2f} <= {r['budget'][1]:.2f}"
        measures = [r["first"], r["weights"], r["activations"], budget, r["cpu"]]
        rows.append([r["loss"], r["depth"], f"{r['speed']:.6f}", ends, *measures])
    return format_table(header, rows)


def run_exact(trials, quick):
    """Example 1's two points by their formulas, what extending costs, and the digits with default steps."""
    X, y = make_alternating_circle(8)
    single = [np.array([[0.0], [1.0]]), np.ones((1, 1)), np.ones((1, 1))]
    double = [np.array([[1, 0], [0, 1], [-1, 0], [0, -1]]).T / 2, np.array([[1, -1, 1, -1]]).T / 2, -np.ones((1, 1))]
    rows = []
    for name, weights, value in (("one direction", single, RANK_ONE), ("the paper's rank-two point", double, 0.5)):
        speed = -loss_gradient(weights, X, y[:, None])[0]
        rows.append([f"Example 1, {name}", "speed off by <= 1e-12", abs(speed - value), abs(speed - value) <= 1e-12])
    digits_X, digits_y = standardised_digits()
    cases = {"Example 1": (X, y, {"loss": "gradient", "depth": 3}), "digits": (digits_X, digits_y, {"depth": 4})}
    for name, (X, y, options) in list(cases.items())[: 1 if quick else 2]:
        width = 32 if name == "Example 1" else 50
        for seed in range(FIRST_SEED, FIRST_SEED + (trials or 2)):
            start = time.process_time()
            analyzer = SaddleEscapeAnalyzer(width=width, random_state=seed, **options).fit(X, y)
            seconds = time.process_time() - start
            if name == "digits":
                speed = analyzer.escape_speed_
                rows.append([f"digits, seed {seed}", "speed >= .5525", f"{speed:.6f}", speed >= 0.5525])
                ratio = float(np.max(analyzer.rank_ratio_[1:]))
                rows.append([f"digits, seed {seed}", "rank ratios behind layer 1 <= 1e-3", ratio, ratio <= 1e-3])
                rows.append([f"digits, seed {seed}", "processor s <= 10", seconds, seconds <= 10])
            rows += _extended(name, seed, analyzer, X, y)
    return {"rows": rows}


def _extended(name, seed, analyzer, X, y):
    """Rows on three layers more: speed lost, and the second singular value of what was added over the first."""
    G, _ = gradient_at_zero(resolve_loss(analyzer.loss, y), y, fit_intercept=analyzer.fit_intercept)
    weights = analyzer.extend(3)
    lost = 1.0 + loss_gradient(weights, X, G)[0] / analyzer.escape_speed_
    added = [np.linalg.svd(W, compute_uv=False) for W in weights[analyzer.depth - 1 :]]
    ratio = max(float(s[1] / s[0]) if len(s) > 1 else 0.0 for s in added)
    title = f"{name}, seed {seed}, three layers more"
    return [[title, "share of the speed lost <= 1e-5", lost, lost <= 1e-5], [title, "added layers: s2/s1 <= 1e-12",
             ratio, ratio <= 1e-12]]  # fmt: skip


def tables_exact(result):
    rows = [[*row[:3], "pass" if row[3] else "**FAIL**"] for row in result["rows"]]
    return format_table(["case", "bar", "measured", "met"], rows)


PARTS = {
    name: SimpleNamespace(run=globals()[f"run_{name}"], tables=globals()[f"tables_{name}"])
    for name in ("exact", "width", "times", "depth")
} | {"training": _saddle_training, "rank_two": _saddle_rank_two, "features": _saddle_features}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if "mnist" in sys.argv:
        parser = argparse.ArgumentParser(description="The paper's own setting.")
        parser.add_argument("--part", choices=("mnist",))
        parser.add_argument("--device", default="cpu")
        parser.add_argument("--mnist", default=None, help="a local .npz file with x_train and y_train")
        parser.add_argument("--epochs", type=int, default=100)
        parser.add_argument("--width", type=int, default=1000)
        options = parser.parse_args()
        _saddle_training.run_mnist(options.mnist, options.device, options.width, options.epochs)
    else:
        run_parts("saddle", PARTS, __doc__.splitlines()[0])
