"""Audits of changed and unchanged networks: detection, location of the changes, queries, false alarms."""

from __future__ import annotations

import time

import numpy as np
import torch

import seed_ranges
from cases.hidden_changes import affects_no_output
from common import format_table
from registry import part
from skident.audit import verify_same
from skident.network import FeedforwardNetwork

N_ROWS = 300


def random_network(seed):
    """One to three hidden layers of tanh or ReLU units as wide as each other, about 100 to 25 000 parameters."""
    rng = np.random.RandomState(seed)
    activation, depth, wanted = ("tanh", "relu")[seed % 2], 1 + rng.randint(3), 10 ** rng.uniform(2, 4.4)
    D, m_L, width = rng.randint(3, 60), rng.randint(1, 6), 1
    sizes = [D, m_L]
    while sum((n + 1) * m for n, m in zip(sizes, sizes[1:])) < wanted or len(sizes) == 2:
        width += 1
        sizes = [D, *[width] * depth, m_L]
    gain = 2.0 if activation == "relu" else 1.0
    weights = [rng.standard_normal((n, m)) * np.sqrt(gain / n) for n, m in zip(sizes, sizes[1:])]
    return FeedforwardNetwork(weights, [0.3 * rng.standard_normal(m) for m in sizes[1:]], activation), rng


def _weights(network):
    return [np.array(W) for W in network.weights]


def one_weight(network, rng):
    """A weight drawn evenly, changed by a millionth."""
    weights = _weights(network)
    k = rng.randint(sum(W.size for W in weights))
    for layer, W in enumerate(weights):
        if k < W.size:
            row, unit = (int(i) for i in np.unravel_index(k, W.shape))
            W[row, unit] *= 1 + 1e-6
            return network.with_parameters(weights, network.biases), {(layer, row, unit)}
        k -= W.size


def rounded_weights(network, rng):
    """One weight in a hundred rounded to half precision."""
    weights, changed = _weights(network), set()
    for layer, W in enumerate(weights):
        for row, unit in zip(*np.nonzero(rng.uniform(size=W.shape) < 0.01)):
            W[row, unit] = np.float16(W[row, unit])
            changed.add((layer, int(row), int(unit)))
    if not changed:
        return one_weight(network, rng)
    return network.with_parameters(weights, network.biases), changed


def removed_unit(network, rng):
    """A hidden unit whose outgoing weights are 0."""
    weights, layer = _weights(network), rng.randint(network.n_layers - 1)
    unit = rng.randint(network.layer_widths[layer])
    weights[layer + 1][unit] = 0.0
    return network.with_parameters(weights, network.biases), {(layer, None, unit)}


def as_it_is(network, rng):
    """The network itself."""
    return network, set()


def in_another_order(network, rng):
    """Units permuted, with other signs or scales."""
    weights, biases = _weights(network), [np.array(b) for b in network.biases]
    for k in range(network.n_layers - 1):
        order, m = rng.permutation(network.layer_widths[k]), network.layer_widths[k]
        s = rng.choice([-1.0, 1.0], m) if network.activation == "tanh" else np.exp(rng.standard_normal(m))
        weights[k], biases[k] = weights[k][:, order] * s, biases[k][order] * s
        weights[k + 1] = weights[k + 1][order] / s[:, None]
    return network.with_parameters(weights, biases), set()


def single_precision(network, rng):
    """A torch module in single precision."""
    module = network.to_torch(dtype=torch.float32)

    def outputs(X):
        with torch.no_grad():
            return module(torch.as_tensor(X, dtype=torch.float32)).numpy()

    return outputs, set()


CHANGED = {  # what the black box is, trials
    "one weight changed by 1e-6": (one_weight, 100),
    "1 % of the weights in float16": (rounded_weights, 20),
    "one unit removed": (removed_unit, 20),
}
UNCHANGED = {
    "as it is": (as_it_is, 400),
    "units in another order": (in_another_order, 300),
    "float32": (single_precision, 300),
}


def trial(change, seed):
    """One audit."""
    network, rng = random_network(seed)
    box, changed = change(network, rng)
    X, start = rng.standard_normal((N_ROWS, network.n_inputs)), time.process_time()
    report = verify_same(box, network, X, random_state=seed)
    named = {(d.layer, d.row, d.unit) for d in report.differences}
    found = report.same is (not changed)
    unseen = [
        (layer, unit) in report.unseen_units if row is None else bool(np.isinf(report.visible[layer][row, unit]))
        for layer, row, unit in changed
    ]
    return {
        "found": bool(found),
        "unseen": bool(not found and unseen and all(unseen)),
        "nowhere": bool(changed and not found and _nowhere(network, box, changed, X)),
        "located": bool(found and named == changed and not report.instead),
        "queries": report.n_queries * network.n_outputs / network.n_parameters,
        "within 2 P": bool(report.n_queries <= max(24, 2 * network.n_parameters / network.n_outputs + 1)),
        "seconds": time.process_time() - start,
    }


def _nowhere(network, box, changed, X):
    """Whether a change of a ReLU network provably affects no output in the range of X."""
    return network.activation == "relu" and affects_no_output(network, box, changed, X.min(axis=0), X.max(axis=0))


class Audits:
    """Cases of one kind, as `run_parts` takes them; every case has a thousand seeds of its own."""

    def __init__(self, cases, first_seed):
        self.cases, self.first_seed = cases, first_seed

    def run(self, trials, quick):
        """All cases."""
        rows = []
        for number, (name, (change, n)) in enumerate(self.cases.items()):
            first, n = self.first_seed + 1000 * number, (2 if quick else n if trials is None else trials)
            found = [trial(change, seed) for seed in range(first, first + n)]
            columns = {key: [t[key] for t in found] for key in found[0]}
            counts = {key: int(sum(columns[key])) for key in ("found", "unseen", "nowhere", "located", "within 2 P")}
            row = {"case": name, "trials": n, **counts, "median queries": float(np.median(columns["queries"]))}
            seconds = {"median seconds": float(np.median(columns["seconds"])), "max seconds": max(columns["seconds"])}
            rows.append(row | seconds)
        return {"rows": rows}

    def tables(self, result):
        """What was found, case by case."""
        header = [
            "black box",
            "correct",
            "wrong, but listed as unseen",
            "wrong, provably no effect on outputs",
            "exactly the changes located",
            "within 2 P / m_L queries",
        ]
        header += ["queries x m_L / P, median", "median seconds", "maximum"]
        of = lambda r, key: f"{r[key]} of {r['trials']}"  # noqa: E731
        rows = [
            [r["case"], of(r, "found"), r["unseen"], r.get("nowhere", 0), of(r, "located"), of(r, "within 2 P")]
            + [r["median queries"], r["median seconds"], r["max seconds"]]
            for r in result["rows"]
        ]
        return format_table(header, rows)


for name, cases in {
    "changed": Audits(CHANGED, seed_ranges.AUDIT.start),
    "unchanged": Audits(UNCHANGED, seed_ranges.AUDIT.start + 5000),
}.items():
    part("audit", name, seeds=seed_ranges.AUDIT)(cases)
