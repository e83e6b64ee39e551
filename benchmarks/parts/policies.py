"""Control policies trained by PPO, identified from their actions."""

from __future__ import annotations

import numpy as np
import torch

import seed_ranges
from cases.control_policies import TRAINED, policy_file, read_policy
from common import format_table
from parts.identification.trials import identify
from registry import part
from skident.network import FeedforwardNetwork

ROWS = 2000
STAGES = {"first": "first layer", "second": "second layer", "polish": "polish"}


def policy_row(environment, seed, max_seconds):
    """One policy, identified."""
    policy = read_policy(policy_file(environment, seed))
    truth = FeedforwardNetwork.from_torch(policy)
    rng = np.random.default_rng(seed)
    X, held_out = rng.standard_normal((500, truth.n_inputs)), rng.standard_normal((ROWS, truth.n_inputs))

    def outputs(X):
        with torch.no_grad():
            return policy(torch.from_numpy(X)).numpy()

    options = {"layer_widths": truth.layer_widths, "activation": "tanh", "max_seconds": max_seconds}
    trial, model = identify(outputs, X, truth, held_out, seed=seed, **options)
    stages = [] if model is None else model.report_.stages
    row = {"policy": environment, "inputs": truth.n_inputs, "outputs": truth.n_outputs, **trial}
    row["parameters"] = truth.n_parameters
    row["queries of stages"] = {
        key: sum(stage.queries for stage in stages if stage.name.startswith(name)) for key, name in STAGES.items()
    }
    row["polish seconds"] = sum(stage.seconds for stage in stages if stage.name == "polish")
    row["failed"] = "; ".join(stage.details["failed"] for stage in stages if stage.details.get("failed"))
    print(f"{environment} {seed}: error {trial['error']:.1e}, {trial['seconds']:.0f} s", flush=True)
    return row


class Policies:
    """Policies of so many observations, and the bar."""

    def __init__(self, policies, needed, seconds, max_seconds):
        self.policies, self.needed, self.seconds, self.max_seconds = policies, needed, seconds, max_seconds

    def run(self, trials, quick):
        """All policies, or the first ones."""
        policies = self.policies[: 1 if quick else trials]
        rows = [policy_row(environment, seed, self.max_seconds) for environment, seed, _ in policies]
        return {"rows": rows, "needed": self.needed, "seconds_bar": self.seconds, "wanted": len(self.policies)}

    def tables(self, result):
        """One row a policy, and how many met the bar."""
        header = ("policy", "seed", "inputs", "outputs", "parameters", "error", "worst weight", "exact", "first layer",
                  "second layer", "polish", "all x m_L / P", "seconds", "wall seconds")  # fmt: skip
        rows = [
            (
                r["policy"], str(r["seed"]), r["inputs"], r["outputs"], r["parameters"], r["error"],
                r["parameter_error"], r["exact"], *r["queries of stages"].values(),
                r["queries"] * r["outputs"] / r["parameters"], r["seconds"], r["wall_seconds"],
            )
            for r in result["rows"]
        ]  # fmt: skip
        good = [r for r in result["rows"] if r["success"] and r["seconds"] <= result["seconds_bar"]]
        text = f"{len(good)} of {len(rows)} identified within {result['seconds_bar']:.0f} s of one thread"
        text += f" (error <= 1e-10, weights <= 1e-6); the bar is {result['needed']} of {result['wanted']}."
        failed = [
            f"{r['policy']} {r['seed']}: {r['failed'] or r['message']}" for r in result["rows"] if not r["success"]
        ]
        return "\n\n".join([format_table(header, rows), text, *failed])


for name, policies in {
    "many": Policies(TRAINED[:5], 5, 60.0, 300.0),
    "eight": Policies(TRAINED[5:10], 3, 120.0, 600.0),
    "few": Policies(TRAINED[10:], 1, 300.0, 120.0),
}.items():
    part("policies", name, seeds=seed_ranges.POLICIES)(policies)
