"""Peak memory of fits of large networks, each in a separate process with PyTorch imported."""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings

import numpy as np

import seed_ranges
from cases.random_networks import random_network
from common import format_table, run_module
from parts.honesty.budgets import bar
from registry import part
from skident import NetworkIdentifier

LIMIT, QUICK_LIMIT = 200.0, 3.0
BAR = 2.0  # GB
FIRST_SEED = seed_ranges.HONESTY_MEMORY.start
CASES = {
    "ReLU 784-200-100-10": ("relu", (784, 200, 100, 10)),
    "ReLU 784-512-512-10": ("relu", (784, 512, 512, 10)),
    "tanh 784-128-64-10": ("tanh", (784, 128, 64, 10)),
}


def fit_one(name, seed, limit):
    """Seconds and peak memory of one fit, and how it ended."""
    import torch

    activation, widths = CASES[name]
    model = random_network(activation, widths, seed)
    X = np.random.default_rng(seed).standard_normal((200, widths[0]))
    identifier = NetworkIdentifier(lambda X: model(X), activation=activation, max_seconds=limit, random_state=0)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outcome = f"error {identifier.fit(X).report_.relative_max_error:.1e}"
        except ValueError as error:
            outcome = f"refused: {str(error)[:200]}"
    seconds, peak = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gigabytes = peak * (1 if sys.platform == "darwin" else 1024) / 1e9
    return {"seconds": seconds, "gigabytes": gigabytes, "outcome": outcome, "torch": torch.__version__}


@part("honesty", "memory", seeds=seed_ranges.HONESTY_MEMORY)
def run(trials, quick):
    """Every network once; `trials` limits their number."""
    limit, rows = QUICK_LIMIT if quick else LIMIT, []
    for i, name in enumerate(list(CASES)[:trials]):
        done = run_module("parts.honesty.memory", name, FIRST_SEED + i, limit, check=False)
        last = done.stdout.splitlines()[-1:] if done.returncode == 0 else []
        killed = {"seconds": float("inf"), "gigabytes": float("inf"), "outcome": f"ended with {done.returncode}"}
        rows.append({"network": name, **(json.loads(last[0]) if last else killed)})
    held = [row["network"] for row in rows if row["gigabytes"] <= BAR and row["seconds"] <= bar(limit)]
    return {"memory": {"limit": limit, "bar": BAR, "held": held, "rows": rows}}


def tables(result):
    """Markdown."""
    part = result["memory"]
    rows = [[r["network"], f"{r['gigabytes']:.2f}", f"{r['seconds']:.0f}", r["outcome"]] for r in part["rows"]]
    head = (
        f"`max_seconds={part['limit']:g}`, bar {part['bar']:g} GB and {bar(part['limit']):g} s: "
        f"{len(part['held'])} of {len(rows)} hold"
    )
    return head + "\n\n" + format_table(["network", "peak GB", "seconds", "outcome"], rows)


if __name__ == "__main__":
    print(json.dumps(fit_one(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
