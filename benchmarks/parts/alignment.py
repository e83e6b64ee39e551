"""Alignment of torch modules whose units were permuted, rescaled and sign-flipped."""

from __future__ import annotations

import torch
from torch import nn

import seed_ranges
from cases.alignment_networks import BareStream, Disguise, ResNet, perceptron, random_network, weight_matching
from common import format_table, stopwatch
from registry import part
from skident.network import align_modules

FIRST_SEED = seed_ranges.ALIGNMENT.start
UNDONE, UNCHANGED, SECONDS = 1e-9, 1e-12, 10.0


def _residual(widths):
    return lambda: ResNet(widths)


# Name: builder, shape of an input, kind.
NETWORKS = {
    "perceptron 5 x 512, relu": (lambda: perceptron((64, *[512] * 5, 10), nn.ReLU), (64,), "perceptron"),
    "perceptron 5 x 512, tanh": (lambda: perceptron((64, *[512] * 5, 10), nn.Tanh), (64,), "perceptron"),
    "residual, batch norm, width 30": (_residual((30,)), (3, 12, 12), "residual"),
    "residual, batch norm, width 50": (_residual((50,)), (3, 12, 12), "residual"),
    "stream of 30 beside 50, bare ends": (BareStream, (1,), "bare_stream"),
    "ResNet-20": (_residual((16, 32, 64)), (3, 12, 12), "residual"),
}

PERMUTED = ["residual, batch norm, width 30", "residual, batch norm, width 50", "stream of 30 beside 50, bare ends"]


def _largest_difference(module, other):
    pairs = [(p, q) for p, q in zip(module.state_dict().values(), other.state_dict().values()) if p.is_floating_point()]
    return max(float((p - q).abs().max() / p.abs().max()) for p, q in pairs)


@torch.no_grad()
def _change(module, other, X):
    outputs = other(X)
    return float((module(X) - outputs).abs().max() / outputs.abs().max())


def _trial(name, seed, by_outputs):
    build, shape, kind = NETWORKS[name]
    a = random_network(build, seed)
    b = getattr(Disguise(seed), kind)(a)
    X = torch.randn((64, *shape), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    with stopwatch() as clock:
        alignment = align_modules(a, b, X if by_outputs else None, random_state=0)
    return {
        "seed": seed,
        "left": _largest_difference(a, alignment.module),
        "change": _change(alignment.module, b, X),
        "distance_before": alignment.distance_before,
        "seconds": clock.seconds,
    }


def _permuted_only(name, seed):
    build, _, kind = NETWORKS[name]
    a = random_network(build, seed)
    b = getattr(Disguise(seed, permute_only=True), kind)(a)
    return {
        "seed": seed,
        "ours": _largest_difference(a, align_modules(a, b, random_state=0).module),
        "published": float(weight_matching(a, b, seed)),
    }


@part("alignment", "alignment", seeds=seed_ranges.ALIGNMENT)
def run(trials=None, quick=False):
    n = trials or (3 if quick else 100)
    seeds = range(FIRST_SEED, FIRST_SEED + n)
    rows = []
    for by_outputs in (False, True):
        for name in NETWORKS:
            rows.append({"network": name, "by": "outputs on 64 inputs" if by_outputs else "weights"})
            rows[-1]["trials"] = [_trial(name, seed, by_outputs) for seed in seeds]
            print(_line(rows[-1]), flush=True)
    permuted = []
    for name in PERMUTED:
        permuted.append({"network": name, "trials": [_permuted_only(name, seed) for seed in seeds]})
        print(f"alignment: {name}, permuted only: done", flush=True)
    return {"rows": rows, "permuted": permuted}


def _summary(row):
    trials = row["trials"]
    undone = sum(t["left"] <= UNDONE and t["change"] <= UNCHANGED and t["seconds"] <= SECONDS for t in trials)
    worst = {key: max(t[key] for t in trials) for key in ("left", "change", "seconds")}
    return undone, len(trials), worst


def _line(row):
    undone, n, worst = _summary(row)
    return f"alignment: {row['network']}, by {row['by']}: {undone} of {n}, worst {worst}"


def tables(result):
    header = [
        "network",
        "matched by",
        "recovered",
        "maximum error",
        "maximum change of function",
        "maximum seconds",
        "met",
    ]
    rows = []
    for row in result["rows"]:
        undone, n, worst = _summary(row)
        met = "pass" if undone == n else "**FAIL**"
        count = f"{undone} of {n}"
        rows.append([row["network"], row["by"], count, worst["left"], worst["change"], worst["seconds"], met])
    others = []
    for row in result["permuted"]:
        counts = (sum(t[who] <= UNDONE for t in row["trials"]) for who in ("ours", "published"))
        others.append([row["network"], *(f"{count} of {len(row['trials'])}" for count in counts)])
    compared = format_table(["permuted only", "recovered, ours", "recovered, weight matching as published"], others)
    return f"{format_table(header, rows)}\n\n{compared}"
