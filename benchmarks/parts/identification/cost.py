"""Seconds, queries and peak memory against the size of the network."""

from __future__ import annotations

import functools
import json
import re
import sys
from pathlib import Path

import seed_ranges
from common import limit_threads, rounded, run_module
from parts.identification.trials import Case, notes, planted, table
from registry import part

FIGURE = Path(__file__).resolve().parents[3] / "docs" / "identification_cost.png"
# Inputs, widths, trials, bars (None where the row only informs).
SIZES = (
    (20, (20, 5), 3, None),
    (20, (16, 10, 5), 3, None),
    (20, (16, 12, 8, 5), 3, None),
    (20, (18, 14, 11, 8, 5), 1, None),
    (20, (40, 10, 5), 3, None),
    (50, (40, 10), 3, {"queries per parameter": 10.0}),
    (50, (30, 20, 10), 2, None),
    (50, (50, 40, 10), 2, {"queries per parameter": 10.0}),
    (100, (60, 10), 1, None),
    (100, (90, 50, 10), 1, {"max seconds": 900.0, "memory_gb": 8.0}),
)


def n_parameters(n_inputs, widths):
    return sum((a + 1) * b for a, b in zip((n_inputs, *widths[:-1]), widths, strict=True))


def _peak_gb():
    """Peak memory of this process. Linux's `ru_maxrss` would count what its parent had when it was started."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status.read_text())[1]) / 1e9
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e9


def measured(n_inputs, widths, seed):
    """A trial and the peak memory of this whole process."""
    trial, _ = planted(n_inputs, tuple(widths), seed, max_seconds=900.0)
    trial["memory_gb"] = _peak_gb()
    trial["queries per parameter"] = trial["queries"] * widths[-1] / n_parameters(n_inputs, widths)
    return trial


def _in_subprocess(n_inputs, widths, seed):
    """`measured` in a process of its own, so that its peak memory is its own."""
    done = run_module("parts.identification.cost", n_inputs, json.dumps(widths), seed)
    trial = json.loads(done.stdout.splitlines()[-1])
    return {key: float("inf") if value is None else value for key, value in trial.items()}


@part("identification", "cost", seeds=seed_ranges.IDENTIFICATION)
def run(trials=None, quick=False):
    """Every size, each trial in a process of its own."""
    rows = []
    for D, widths, n_seeds, bars in SIZES[:2] if quick else SIZES:
        n_seeds = 1 if quick else trials or n_seeds
        needed = None if bars is None else n_seeds
        trial = functools.partial(_in_subprocess, D, widths)
        case = Case(f"D={D}, {widths}", trial, needed, n_seeds, bars=bars or {}, seconds=600.0)
        P = n_parameters(D, widths)
        rows.append(case.run() | {"n_parameters": P, "n_outputs": widths[-1], "n_layers": len(widths)})
    return {"rows": rows}


def tables(result):
    extra = [
        ("parameters P", lambda r: r["n_parameters"]),
        ("queries x m_L / P", lambda r: r["queries per parameter"]),
        ("peak memory, GB", lambda r: r["memory_gb"]),
    ]
    return f"{table(result['rows'], extra=extra)}\n\n{notes(result['rows'])}"


def draw(result, path=FIGURE):
    """Seconds against parameters, queries against parameters over outputs; one color per number of layers."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    colors = {2: "#0072B2", 3: "#D55E00", 4: "#009E73", 5: "#CC79A7"}
    for layers, color in colors.items():
        rows = sorted((r for r in result["rows"] if r["n_layers"] == layers), key=lambda r: r["n_parameters"])
        style = {"marker": "o", "color": color, "linestyle": "none", "label": f"{layers} layers"}
        P = [r["n_parameters"] for r in rows]
        left.plot(P, [r["median seconds"] for r in rows], **style)
        right.plot([r["n_parameters"] / r["n_outputs"] for r in rows], [r["median queries"] for r in rows], **style)
    ratios = [r["n_parameters"] / r["n_outputs"] for r in result["rows"]]
    for factor, line in ((1, "-"), (10, "--")):
        ends = [min(ratios), max(ratios)]
        right.plot(ends, [factor * e for e in ends], color="0.6", linestyle=line, linewidth=1, zorder=0)
        end = ends[1], factor * ends[1]
        right.annotate(f"{factor} P / m_L", end, color="0.4", fontsize="small", ha="right", va="bottom")
    left.set(xscale="log", yscale="log", xlabel="parameters P", ylabel="seconds, one thread")
    right.set(xscale="log", yscale="log", xlabel="parameters / outputs, P / m_L", ylabel="queries")
    left.legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    limit_threads(1)
    print(json.dumps(rounded(measured(int(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])))))
