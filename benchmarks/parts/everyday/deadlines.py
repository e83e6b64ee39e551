"""Whether `max_seconds=15` holds for networks that others made and for random ones of one to six hidden layers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings

import numpy as np

import seed_ranges
from cases.random_networks import random_network
from common import FOLDER, format_table, make_identifier, run_module
from registry import part
from skident.network import FeedforwardNetwork

LIMIT, QUICK_LIMIT = 15.0, 3.0
FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 8_000  # of this part's seeds in the range
N_RANDOM = 30
PUBLIC = FOLDER.parents[1] / "shared" / "data" / "public"  # absent elsewhere: these rows are skipped
RANGES = {"acasxu": (-0.5, 0.5), "arch_vcas1": (-0.5, 0.5), "tll": (-2.0, 2.0), "tansig": (0.0, 255.0)}
RANGES |= {"logsig": (0.0, 255.0)} | dict.fromkeys(("mnist", "cifar", "nv_mnist", "gnubg"), (0.0, 1.0))
NORMAL = ("safenlp", "40_20x2")  # inputs of N(0, 1), other ones are in [-1, 1]
_HUNG = 8.0  # times the bar after which a fit is ended from outside


def bar(limit):
    """Seconds that a fit may take."""
    return 1.3 * limit + 2.0


def public(name, seed):
    """The network of a file, as a callable, and samples."""
    stored, rng = np.load(PUBLIC / f"{name}.npz"), np.random.default_rng(seed)
    activations = [str(a) for a in stored["activations"]]
    layers = range(len(activations))
    weights, biases = ([stored[f"{kind}{i}"].astype(float) for i in layers] for kind in "Wb")
    network = FeedforwardNetwork(weights, biases, activations[0], activations[-1])
    shape = (200, network.n_inputs)
    low, high = next((r for prefix, r in RANGES.items() if name.startswith(prefix)), (-1.0, 1.0))
    X = rng.standard_normal(shape) if name.startswith(NORMAL) else rng.uniform(low, high, shape)
    return (lambda rows: network(rows)), X


def drawn(i, seed):
    """Random network number i: one to six hidden layers of 16 to 256 units, two thirds of them ReLU."""
    rng = np.random.default_rng(seed)
    hidden = np.rint(16.0 * 16.0 ** rng.uniform(size=1 + i % 6)).astype(int)
    widths = (int(rng.integers(4, 65)), *map(int, hidden), int(rng.integers(1, 11)))
    activation = ("relu", "tanh", "relu")[i // 6 % 3]
    network = random_network(activation, widths, seed)
    name = f"{activation} {'-'.join(map(str, widths))}"
    return name, (lambda rows: network(rows)), rng.standard_normal((200, widths[0]))


def fit_one(case, seed, limit):
    """Seconds of one fit, of wall and of processor time, and how it ended."""
    name, box, X = drawn(int(case), seed) if case.isdigit() else (case, *public(case, seed))
    identifier, began = (
        make_identifier(box, max_seconds=limit, random_state=0),
        (time.perf_counter(), time.process_time()),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outcome = "exact" if identifier.fit(X).report_.exact else "not exact"
        except ValueError as error:
            outcome = f"refused: {str(error)[:60]}"
    wall, own = time.perf_counter() - began[0], time.process_time() - began[1]
    queries = getattr(identifier, "n_queries_", None)
    return {"model": name, "seconds": wall, "processor": own, "queries": queries, "outcome": outcome}


@part("everyday", "deadlines", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    """Every network once, each in a process of its own; `trials` limits their number."""
    limit, rows = QUICK_LIMIT if quick else LIMIT, []
    cases = [path.stem for path in sorted(PUBLIC.glob("*.npz"))] + [str(i) for i in range(N_RANDOM)]
    for i, case in enumerate(cases[-3:] if quick else cases[:trials]):
        try:
            arguments = (case, FIRST_SEED + OFFSET + i, limit)
            done = run_module("parts.everyday.deadlines", *arguments, timeout=_HUNG * bar(limit))
            rows.append(json.loads(done.stdout.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            rows.append({"model": case, "seconds": None, "processor": None, "outcome": "hung"})
    late = [row["model"] for row in rows if row["seconds"] is None or row["seconds"] > bar(limit)]
    return {"deadlines": {"limit": limit, "bar": bar(limit), "late": late, "rows": rows}}


def tables(result):
    """Markdown."""
    part = result["deadlines"]
    in_time = len(part["rows"]) - len(part["late"])
    head = f"`max_seconds={part['limit']:g}`, bar {part['bar']:g} s: {in_time} of {len(part['rows'])} in time"
    columns = ("model", "seconds", "processor", "outcome")
    return head + "\n\n" + format_table(list(columns), [[row[c] for c in columns] for row in part["rows"]])


if __name__ == "__main__":
    print(json.dumps(fit_one(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
