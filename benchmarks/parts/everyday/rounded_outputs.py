"""ReLU networks whose outputs are rounded to decimals or digits, noisy, or whose inputs are cast to float32."""

from __future__ import annotations

import time
import warnings

import numpy as np

import seed_ranges
from common import format_table, make_identifier
from registry import part
from skident.network import FeedforwardNetwork

FIRST_SEED = seed_ranges.EVERYDAY.start
OFFSET = 4_000  # of this part in the range
WIDTHS = ((4, 6, 1), (10, 32, 1), (6, 12, 3), (6, 8, 5, 2))
KINDS = [
    *(("decimals", k) for k in range(5, 15)),
    *(("digits", k) for k in range(5, 13)),
    *(("noise", 10.0**-k) for k in range(6, 14)),
    *(("float32 inputs", None) for _ in range(4)),
]
FINEST = 1e-10  # rounding below which errors of a recovered network count as its own
N_TEST = 4_000
ALLOWED = 10.0  # times the rounding that a recovered network may be off


def network_of(widths, seed):
    """A network with outputs of order one."""
    rng, weights, biases = np.random.default_rng(seed), [], []
    for i, (n, m) in enumerate(zip(widths, widths[1:], strict=False)):
        last = i == len(widths) - 2
        weights.append((1.0 if last else 1.2 if i == 0 else 2.0**0.5) * rng.standard_normal((n, m)) / np.sqrt(n))
        biases.append((1.0 if last else 0.5) * rng.standard_normal(m))
    return FeedforwardNetwork(weights, biases, "relu")


def _with_digits(Y, k):
    return np.array([float(f"{y:.{k}g}") for y in Y.ravel()]).reshape(Y.shape)


def degraded(network, kind, size, U, seed):
    """The black box, and the rounding that its outputs have at inputs U."""
    rng, Y = np.random.default_rng(seed), network(U)
    if kind == "decimals":
        return lambda X: np.round(network(X), size), 10.0**-size
    if kind == "digits":
        return lambda X: _with_digits(network(X), size), np.abs(_with_digits(Y, size) - Y).max()
    if kind == "noise":
        return lambda X: network(X) + size * rng.standard_normal((len(X), Y.shape[1])), size
    return lambda X: network(np.float32(X).astype(float)), np.abs(network(np.float32(U).astype(float)) - Y).max()


def fit_one(widths, kind, size, seed):
    """Error over the rounding, processor seconds, and how the fit ended."""
    network, rng = network_of(widths, seed), np.random.default_rng(seed + 500)
    U = rng.standard_normal((N_TEST, widths[0]))
    box, rounding = degraded(network, kind, size, U, seed)
    X, began = rng.standard_normal((200, widths[0])), time.process_time()
    row = {"widths": "-".join(map(str, widths)), "kind": kind, "size": size, "ratio": np.inf}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make_identifier(box, random_state=0).fit(X)
        error = np.abs(model.network_(U) - network(U)).max()
        row.update(ratio=float(error / max(rounding, FINEST)), outcome=f"{len(model.layer_widths_) - 1} hidden")
    except ValueError as error:
        row["outcome"] = str(error)[:300]
    return {**row, "seconds": time.process_time() - began}


@part("everyday", "rounded_outputs", seeds=seed_ranges.EVERYDAY)
def run(trials, quick):
    """Networks of four shapes; the kinds of errors in turn."""
    n = (4 if quick else 200) if trials is None else trials
    cases = [(WIDTHS[i % 4], *KINDS[(i // 4) % len(KINDS)], FIRST_SEED + OFFSET + i) for i in range(n)]
    return {"rounded_outputs": {"allowed": ALLOWED, "rows": [fit_one(*case) for case in cases]}}


def tables(result):
    """One row per kind and shape; a network that was refused has no ratio."""
    found, groups = result["rounded_outputs"], {}
    for row in found["rows"]:
        ratio = np.inf if row["ratio"] is None else row["ratio"]
        groups.setdefault((row["kind"], row["widths"]), []).append({**row, "ratio": ratio})
    head = ["kind", "network", "recovered", "linear", "median error / rounding", "largest processor seconds"]
    body, right = [], 0
    for group, some in groups.items():
        ratios, n_right = [r["ratio"] for r in some], sum(r["ratio"] <= found["allowed"] for r in some)
        right += n_right
        linear, seconds = sum(r["outcome"] == "0 hidden" for r in some), max(r["seconds"] for r in some)
        body.append([*group, f"{n_right} of {len(some)}", linear, f"{np.median(ratios):.2g}", f"{seconds:.1f}"])
    said = f"{right} of {len(found['rows'])} recovered to {found['allowed']:g} times the rounding"
    return f"{said}\n\n" + format_table(head, body)
