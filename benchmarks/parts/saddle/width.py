"""Success rate of the saddle escape search by width on Example 1 of Bantzis et al.; batched restarts against a loop."""

from __future__ import annotations

import time

import numpy as np
import torch

import seed_ranges
from common import format_table
from registry import part
from skident import SaddleEscapeAnalyzer
from skident.datasets import make_alternating_circle
from skident.saddle import fastest_planar_escape

FIRST_SEED = seed_ranges.SADDLE.start
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


@part("saddle", "width", seeds=seed_ranges.SADDLE)
def run(trials, quick):
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


def tables(result):
    header = ["width", "restarts above sqrt(2) - 1", "best speed", "processor s, 100 restarts"]
    header += ["processor s, autograd loop", "loop / ours", "loop: restarts above"]
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
