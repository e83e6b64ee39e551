"""Models of Chen et al. (2024), recovered by their public code and by skident, both from labels alone.

The variable NN_EXTRACTION holds the path of a clone of https://github.com/AI-Lab-Y/NN_cryptanalytic_extraction (MIT),
measured at commit f363700. Their code gets the widths, skident does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import seed_ranges
from common import format_table
from parts.labels.classifiers import plane_error
from registry import part
from skident import NetworkIdentifier
from skident.network import FeedforwardNetwork

SEEDS = seed_ranges.LABELS
FIRST = 800  # seed, counted from the first of the range
MODELS = {"simulated/1_deep_nn_512_2_1": "512-2-1"} | {
    f"mnist/mnist_{k}vs{k + 1}_784_2_1": "784-2-1" for k in (0, 2, 4, 6, 8)
}
N_SAMPLES = 400
N_INPUTS = 20_000  # held-out inputs per radius
LIMIT = 400.0  # max_seconds: wall time, of a machine that other processes may share
THEIRS = """
import contextlib, io, json, sys, time
import numpy as np
import utils, verify_1_deep_nn_attack as attack
model, shape, seed, output = sys.argv[1], [int(m) for m in sys.argv[2].split("-")], int(sys.argv[3]), sys.argv[4]
saved, savez, ratio = {}, np.savez, utils.check_prediction_matching_ratio
np.savez = lambda path, weights, biases: saved.update(weights=weights, biases=biases)
utils.check_prediction_matching_ratio = lambda **given: ratio(n=20_000, **given)  # a million inputs take longer
np.random.seed(seed)
began = time.process_time()
with contextlib.redirect_stdout(io.StringIO()):
    attack.extract_1_deep_nn(model_path=model, nn_shape=shape, precision=1e-12, l1_error=1e-2)
seconds = time.process_time() - began
true = np.load(model, allow_pickle=True)
networks = {"true": (true["arr_0"], true["arr_1"]), "extracted": (saved.get("weights"), saved.get("biases"))}
arrays = {f"{name}_{kind}{k}": np.asarray(a, dtype=float) for name, parts in networks.items() if parts[0] is not None
          for kind, layers in zip("Wb", parts) for k, a in enumerate(layers)}
savez(output, **arrays)
print(json.dumps({"queries": utils.oracle_query_times, "seconds": seconds}))
"""


@part("labels", "public_code", seeds=SEEDS)
class PublicCode:
    """Queries, seconds and errors per model of the repository."""

    @staticmethod
    def run(trials, quick):
        """Recover the models twice; nothing without the clone."""
        if "NN_EXTRACTION" not in os.environ:
            return {"rows": []}
        rows = []
        for i, (name, shape) in enumerate(list(MODELS.items())[: 1 if quick else trials]):
            rows.append(_trial(name, shape, SEEDS.start + FIRST + i))
            print(rows[-1], flush=True)
        return {"rows": rows}

    @staticmethod
    def tables(result):
        """One row per model and method."""
        if not result["rows"]:
            return "Not run: the variable NN_EXTRACTION is not set."
        head = ["model", "method", "widths given", "labels queried", "error of hyperplanes", "equal labels", "s"]
        keys = ("queries", "error", "labels", "seconds")
        cells = [
            [row["name"], method, given, *[_cell(row[method], key) for key in keys]]
            for row in result["rows"]
            for method, given in (("Chen et al.", "yes"), ("skident", "no"))
        ]
        return format_table(head, cells)


def _cell(found, key):
    value = found.get(key)
    return f"{value:,}" if key == "queries" and value is not None else value


def _trial(name, shape, seed):
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "networks.npz"
        command = [sys.executable, "-c", THEIRS, f"models/{name}.npz", shape, str(seed), str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=os.environ["NN_EXTRACTION"])
        with np.load(output) as arrays:
            true, theirs = _network(arrays, "true"), _network(arrays, "extracted")
    row = {"name": Path(name).name, "seed": seed, "Chen et al.": json.loads(done.stdout.splitlines()[-1])}
    if theirs is not None:
        row["Chen et al."] |= _compared(true, theirs, seed)
    X = np.random.default_rng(seed).standard_normal((N_SAMPLES, true.weights[0].shape[0]))
    identifier = NetworkIdentifier(
        lambda U: _labels(true, U), response_method="labels", random_state=0, max_seconds=LIMIT
    )
    began = time.process_time()
    try:
        identifier.fit(X)
    except ValueError as error:
        return row | {"skident": {"refusal": str(error)[:200], "seconds": time.process_time() - began}}
    measured = {"queries": int(identifier.n_queries_), "seconds": time.process_time() - began}
    return row | {"skident": measured | _compared(true, identifier.network_, seed)}


def _network(arrays, name):
    layers = [k for k in arrays.files if k.startswith(f"{name}_W")]
    if not layers:
        return None
    W = [arrays[f"{name}_W{k}"].T for k in range(len(layers))]
    return FeedforwardNetwork(W, [arrays[f"{name}_b{k}"].ravel() for k in range(len(layers))], "relu")


def _labels(network, U):
    return (network(U)[:, 0] > 0).astype(int)


def _compared(true, found, seed):
    rng, D = np.random.default_rng(seed), true.weights[0].shape[0]
    F = np.concatenate([radius * rng.standard_normal((N_INPUTS, D)) for radius in (1.0, 3.0)])
    planes = [np.column_stack([n.weights[0].T, n.biases[0]]) for n in (found, true)]
    return {"error": plane_error(*planes), "labels": float(np.mean(_labels(found, F) == _labels(true, F)))}
