"""Final least squares of all parameters by queries: few outputs, starts with relative errors of 1e-5."""

from __future__ import annotations

import time

import numpy as np

import seed_ranges
from cases.control_policies import POLICIES, policy_file, read_policy
from common import format_table
from registry import part
from skident.base.progress import StageLog
from skident.datasets import make_network
from skident.fitting.polish import polish_from_oracle
from skident.network import FeedforwardNetwork
from skident.oracle import Oracle

START = 1e-5  # standard deviation of a parameter's error, relative to its layer's
ERROR = 1e-10
# A network's name, how it is made from a seed, and the most processor seconds.
CASES = (
    ("the policy for HalfCheetah-v5, 17-64-64-6", lambda seed: _policy(), 20.0),
    ("random, tanh, 784-32-10", lambda seed: make_network((784, 32, 10), random_state=seed), 25.0),
)


def _policy():
    return FeedforwardNetwork.from_torch(read_policy(policy_file("HalfCheetah-v5", POLICIES[0])))


def _bent(network, rng):
    """The network with an error in every parameter."""
    parts = [
        [A + START * np.sqrt(np.mean(A**2)) * rng.standard_normal(A.shape) for A in part]
        for part in (network.weights, network.biases)
    ]
    return FeedforwardNetwork(*parts, network.activation, network.output_activation)


def trial(make, seed):
    """Seconds, rows and error of one polish."""
    seed = seed_ranges.POLISH.start + seed
    truth, rng = make(seed), np.random.RandomState(seed)
    oracle, start = Oracle(truth, truth.n_inputs, derivatives="finite_difference"), _bent(truth, rng)
    began = time.process_time()
    found, _ = polish_from_oracle(oracle, start, rng, StageLog())
    seconds = time.process_time() - began
    U = rng.standard_normal((2000, truth.n_inputs))
    Y = truth(U)
    error = np.abs(found(U) - Y).max() / np.abs(Y - Y.mean(axis=0)).max()
    queries = oracle.n_queries * truth.n_outputs / truth.n_parameters
    return {"parameters": truth.n_parameters, "seconds": seconds, "queries": queries, "error": float(error)}


@part("patches", "polish", seeds=(seed_ranges.POLISH, seed_ranges.POLICIES))
def run(trials, quick):
    """Both networks, from three starts each."""
    rows = []
    for name, make, bar in CASES[:1] if quick else CASES:
        done = [trial(make, seed) for seed in range(1 if quick else trials or 3)]
        worst = {key: max(t[key] for t in done) for key in ("seconds", "queries", "error")}
        met = bool(worst["seconds"] <= bar and worst["error"] <= ERROR)
        rows.append({"network": name, "starts": len(done), "bar": bar, **done[0], **worst, "met": met})
        print(rows[-1], flush=True)
    return {"rows": rows}


def tables(result):
    """One table."""
    head = ["network", "parameters", "starts", "maximum error", "queries x m_L / P", "maximum seconds", "bar", "met"]
    keys = ("network", "parameters", "starts", "error", "queries", "seconds", "bar")
    rows = [[*(row[key] for key in keys), "pass" if row["met"] else "**FAIL**"] for row in result["rows"]]
    return format_table(head, rows)
