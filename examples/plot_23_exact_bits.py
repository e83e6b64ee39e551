"""
Recovering a state dict to the last bit
=======================================

The weights of deployed models are float32 numbers. A control policy for MuJoCo's
HalfCheetah (17-64-64-6, tanh) is read from a safetensors file and put behind a function
from observations to actions, evaluated in double precision. With
``weight_dtype="float32"``, `NetworkIdentifier` rounds the recovered weights to float32
numbers where the evidence allows: before, most of them are within 1e-6 spacings of a
float32 number, while other weights would be anywhere up to half a spacing away. All
5,702 weights and biases come back, so the recovered and the original file have the same
hash once their units are in the same order.
"""

import hashlib
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from skident import NetworkIdentifier
from skident.network import FeedforwardNetwork

# a notebook runs where its files are
FOLDER = Path(__file__).parent if "__file__" in globals() else Path()
WEIGHTS = FOLDER / "half_cheetah_policy.safetensors"


def read_policy():
    policy = nn.Sequential(
        nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6)
    )
    policy.load_state_dict(load_file(WEIGHTS))
    return policy


def digest(network):
    """SHA-256 of all float32 weights and biases, with the units in canonical order."""
    state = network.canonical().to_torch(dtype=torch.float32).state_dict()
    return hashlib.sha256(
        b"".join(tensor.numpy().tobytes() for tensor in state.values())
    ).hexdigest()


def distances(network):
    """Distance of parameters to the nearest float32 number, in spacings."""
    values = np.concatenate([a.ravel() for a in (*network.weights, *network.biases)])
    nearest = values.astype(np.float32)
    return np.abs(values - nearest.astype(float)) / np.spacing(np.abs(nearest)).astype(
        float
    )


# %%
# The policy: a file of float32 weights, and a function in double precision.
policy = read_policy()
exact = read_policy().double()


def actions(observations):
    with torch.no_grad():
        return exact(torch.from_numpy(observations)).numpy()


# %%
# Recover the policy, without and with rounding to float32 numbers.
X = np.random.default_rng(0).standard_normal((500, 17))
start = time.perf_counter()
identifier = NetworkIdentifier(
    actions, layer_widths=(64, 64, 6), activation="tanh", random_state=0
)
recovered = identifier.fit(X).network_
rounded = identifier.set_params(weight_dtype="float32").fit(X).network_
print(
    f"two identifications in {time.perf_counter() - start:.1f} s, "
    f"{identifier.n_queries_:,} queries each"
)
print(identifier.report_.bits)

# %%
# Compare the two files.
truth = FeedforwardNetwork.from_torch(policy)
print(f"hash of the policy    {digest(truth)[:16]}")
print(
    f"hash of the recovered {digest(rounded)[:16]}, equal: "
    f"{digest(truth) == digest(rounded)}"
)
print(f"largest distance before rounding: {distances(recovered).max():.0e} spacings")
scaled = recovered.with_parameters(
    [1.1 * W for W in recovered.weights], [1.1 * b for b in recovered.biases]
)

# %%
# Draw histograms of the distances to the nearest float32 number.
figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
bins = np.linspace(-11.0, 0.0, 67)
floor = 10.0 ** bins[0]
names = ("rounded (all 0)", "recovered", "recovered, times 1.1")
colors = ("#009E73", "#0072B2", "#D55E00")
for network, name, color in zip(
    (rounded, recovered, scaled), names, colors, strict=True
):
    ax.hist(
        np.log10(np.maximum(distances(network), floor)),
        bins=bins,
        label=name,
        color=color,
        alpha=0.75,
    )
ax.set(
    xlabel="log10 of the distance to the nearest float32 number, in spacings",
    ylabel="weights and biases",
)
ax.set_title("5,702 parameters of the policy")
ax.legend()
figure.savefig("exact_bits.png", dpi=200)
