"""
Detecting an unknown activation
===============================

Eight networks with one hidden layer are passed as functions: tanh, erf, hard tanh,
leaky ReLU, softplus, GELU, SiLU and ELU units, with unknown widths and activations.
`NetworkIdentifier` detects the activation on lines at large inputs, where one unit
varies at a time and all others are constant or linear. It then recovers the network,
with its slope for leaky ReLU. A ninth function has units that the library does not
know; the error says so. The picture shows the effect of one unit on the outputs along
such a line, the same for the recovered network, and the detected activation.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import erf, expit

from skident import NetworkIdentifier
from skident.identification.activation.intervals import find_interval
from skident.oracle import Oracle

ACTIVATIONS = {
    "tanh": np.tanh,
    "erf": erf,
    "hard_tanh": lambda z: np.clip(z, -1.0, 1.0),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.17 * z),
    "softplus": lambda z: np.logaddexp(0.0, z),
    "gelu": lambda z: 0.5 * z * (1.0 + erf(z / np.sqrt(2.0))),
    "silu": lambda z: z * expit(z),
    "elu": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0.0))),
}
D, UNITS = 6, 12


def black_box(activation, seed):
    """The network as a plain function."""
    rng = np.random.default_rng(seed)
    W, V = (
        rng.standard_normal((D, UNITS)) / np.sqrt(D),
        rng.standard_normal((UNITS, 2)) / np.sqrt(UNITS),
    )
    b, c = 0.5 * rng.standard_normal(UNITS), rng.standard_normal(2)
    return lambda X: activation(X @ W + b) @ V + c


def one_unit(box, network):
    """Outputs of both networks where one unit varies, minus a linear function."""
    oracle, rng = Oracle(box, D), np.random.RandomState(0)
    interval = next(
        s
        for s in (find_interval(oracle, rng, np.zeros(2)) for _ in range(50))
        if s is not None
    )
    # activation boundaries are far sharper
    wide = max(interval.high - interval.low, 30.0)
    t = 0.5 * (interval.low + interval.high) + np.linspace(-0.5, 0.5, 401) * wide
    bend = np.abs(np.diff(interval.outputs(oracle, t), 2))
    # around the unit
    t = np.average(t[1:-1], weights=bend**2) + np.linspace(-8.0, 8.0, 401)
    y = interval.outputs(oracle, t)
    found = network(interval.start + t[:, None] * interval.direction) @ interval.output
    line = np.polyval(np.polyfit(t[:40] - t[0], y[:40], 1), t - t[0])
    unit = np.abs(y - line).max()
    return t - t.mean(), (y - line) / unit, (found - line) / unit


# %%
# Recover all eight networks.
max_seconds = 5.0
X, panels = np.random.default_rng(0).standard_normal((200, D)), {}
fresh = np.random.default_rng(1).standard_normal((2000, D))
for seed, (name, activation) in enumerate(ACTIVATIONS.items()):
    box, start = black_box(activation, seed), time.perf_counter()
    identifier = NetworkIdentifier(box, layer_widths="auto", random_state=0).fit(X)
    network, seen = identifier.network_, identifier.report_.activation
    error = np.abs(network(fresh) - box(fresh)).max()
    slope = getattr(network.activations[0], "negative_slope", None)
    more = "" if slope is None else f", slope {slope:.12f}"
    print(
        f"{name}: detected {network.activation}{more}, {network.layer_widths[0]} "
        f"units, error {error:.1e}, "
        f"{identifier.n_queries_:,} queries, {time.perf_counter() - start:.1f} s\n  "
        f"evidence: {seen}"
    )
    told = f"{seen.seen[0]}\n{network.layer_widths[0]} units, error {error:.0e}"
    panels[network.activation] = (
        *one_unit(box, network),
        told + (f"\nslope {slope:.10f}" if more else ""),
    )

# %%
# Units that are none of these.
try:
    NetworkIdentifier(
        black_box(np.arctan, 8),
        layer_widths="auto",
        max_seconds=max_seconds,
        random_state=0,
    ).fit(X)
except ValueError as error:
    print(f"arctan: {error}")

# %%
# Draw one panel per network: the effect of one unit on the outputs, and the detected
# activation.
figure, axes = plt.subplots(2, 4, figsize=(13, 5.6), layout="constrained")
for ax, (name, (t, y, found, told)) in zip(axes.flat, panels.items(), strict=True):
    ax.plot(t, y, linewidth=5, color="#9ecae1", label="black box")
    ax.plot(t, found, "--", linewidth=1.5, color="#D55E00", label="recovered network")
    ax.set_title(f"model: {name}")
    ax.text(
        0.5,
        0.03,
        told,
        transform=ax.transAxes,
        fontsize=8,
        ha="center",
        va="bottom",
        wrap=True,
    )
    ax.set_ylim(
        min(y.min(), 0.0) - 0.45 * np.ptp(y), max(y.max(), 0.0) + 0.1 * np.ptp(y)
    )
    ax.set_yticks([])
for ax in axes[1]:
    ax.set_xlabel("along a line 10,000 standard deviations away")
for ax in axes[:, 0]:
    ax.set_ylabel("outputs minus a linear function")
axes[0, 0].legend(loc="center left", fontsize=8)
figure.savefig("unknown_activation.png", dpi=200)
