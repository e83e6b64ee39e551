"""
Recovering a robot's control policy from its actions
====================================================

stable-baselines3 trained a policy with PPO for MuJoCo's HalfCheetah: 17 observations,
two hidden layers of 64 tanh units, the means of 6 actions, 5,702 parameters. Its
weights lie beside this file (`benchmarks/train_policies.py` trains such policies).
`NetworkIdentifier` receives a function from observations to actions. At large inputs,
first-layer units are saturated unless an observation lies close to their hyperplane.
Where few of them vary, mixed derivatives of the actions determine the second layer by
linear algebra. The picture shows true against recovered weights, and the
actions along a path of observations.
"""

import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from skident import NetworkIdentifier
from skident.inspection import WeightRecoveryDisplay
from skident.metrics import parameter_error, relative_max_error
from skident.network import FeedforwardNetwork

# a notebook runs where its files are
FOLDER = Path(__file__).parent if "__file__" in globals() else Path()
WEIGHTS = FOLDER / "half_cheetah_policy.safetensors"
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def read_policy():
    policy = nn.Sequential(
        nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6)
    )
    policy.load_state_dict(load_file(WEIGHTS))
    return policy.double()


def gait(n_steps):
    """Observations that swing about 0, each at its own pace, and the time."""
    rng = np.random.default_rng(0)
    t = np.linspace(0.0, 3.0, n_steps)
    return t, 1.5 * np.sin(
        2.0
        * np.pi
        * (t[:, None] * rng.uniform(0.5, 1.5, 17) + rng.uniform(0.0, 1.0, 17))
    )


# %%
# The policy: a function from observations to actions.
network = read_policy()


def policy(observations):
    with torch.no_grad():
        return network(torch.from_numpy(observations)).numpy()


# %%
# Recover the network.
start = time.perf_counter()
identifier = NetworkIdentifier(
    policy, layer_widths=(64, 64, 6), activation="tanh", random_state=0
)
identifier.fit(np.random.default_rng(0).standard_normal((500, 17)))
seconds = time.perf_counter() - start
found, report = identifier.network_, identifier.report_
print(
    f"recovered: layers of {found.layer_widths} units, {found.n_parameters} "
    f"parameters, exact: {report.exact}"
)
print(f"{identifier.n_queries_:,} queries in {seconds:.1f} s, route: {report.route}")

# %%
# Compare both.
truth = FeedforwardNetwork.from_torch(network)
fresh = np.random.default_rng(1).standard_normal((2000, 17))
error = relative_max_error(truth(fresh), found(fresh))
print(f"relative maximum error of an action on held-out observations: {error:.1e}")
print(
    f"maximum relative error of a weight or bias: {parameter_error(truth, found):.1e}"
)

# %%
# Draw true against recovered weights, and the actions of both along the same path.
figure, axes = plt.subplot_mosaic(
    [["weights", "actions"], ["errors", "actions"]],
    figsize=(11, 6),
    layout="constrained",
)
display = WeightRecoveryDisplay.from_networks(
    truth, found, ax=np.array([axes["weights"], axes["errors"]])
)
display.ax_.set_title("5,702 weights and biases")
t, observations = gait(400)
for joint, (acts, copied) in enumerate(
    zip(policy(observations).T, found(observations).T, strict=True)
):
    axes["actions"].plot(t, acts + 2.5 * joint, color=COLORS[joint], linewidth=1.2)
    axes["actions"].plot(
        t[::12], copied[::12] + 2.5 * joint, "o", color=COLORS[joint], markersize=4
    )
axes["actions"].set(
    xlabel="time",
    yticks=2.5 * np.arange(6),
    yticklabels=[f"joint {joint + 1}" for joint in range(6)],
)
axes["actions"].set_title("actions: policy (lines), recovered network (dots)")
figure.savefig("control_policy.png", dpi=200)
