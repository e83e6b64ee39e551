"""
Recovering a five-layer network from function values
====================================================

The black box is a random network with ten inputs and tanh in every layer. The first
layer is recovered at large inputs, where all of its units are saturated. There the
network takes one value per sign pattern of the first layer: the remaining layers are a
four-layer network on the corners of a cube, which is fitted to outputs at some of them.
A final fit of all weights and biases follows, and the result is validated on held-out
inputs. The picture shows the cost of each stage, and every recovered parameter against
the true one.
"""

import matplotlib.pyplot as plt
import numpy as np

from skident import NetworkIdentifier
from skident.datasets import make_network
from skident.inspection import WeightRecoveryDisplay
from skident.metrics import parameter_error


def by_stage(stages):
    """Seconds and queries per kind of stage; the polish may run more than once."""
    totals = {}
    for stage in stages:
        name = stage.name.replace(" (", "\n(")
        total = totals.setdefault(name, {"seconds": 0.0, "queries": 0})
        total["seconds"] += stage.seconds
        total["queries"] += stage.queries
    return totals


# %%
# Recover the network. Its widths are given here.
truth = make_network((10, 10, 9, 7, 6, 4), bias_scale=0.5, random_state=0)
X = np.random.default_rng(0).standard_normal((500, 10))
identifier = NetworkIdentifier(
    lambda X: truth(X),
    layer_widths=(10, 9, 7, 6, 4),
    activation="tanh",
    output_activation="tanh",
    random_state=0,
).fit(X)
found, report = identifier.network_, identifier.report_

# %%
# Seconds and queries per stage, and the accuracy of the result.
stages = by_stage(report.stages)
for name, stage in stages.items():
    print(
        f"{' '.join(name.split()):40s} {stage['seconds']:6.2f} s "
        f"{stage['queries']:6d} queries"
    )
looks = identifier.n_queries_ - sum(stage["queries"] for stage in stages.values())
print(f"{'activation detection and validation':40s} {'':8s} {looks:6d} queries")
# Recovering the parameters takes at least as many numbers as there are parameters.
equations = truth.n_parameters / truth.n_outputs
print(
    f"{identifier.n_queries_ / equations:.1f} times the {equations:.0f} queries that "
    "so many parameters require"
)
print(
    f"relative maximum error on held-out inputs: {report.relative_max_error:.1e}, "
    f"exact: {report.exact}"
)
print(
    f"maximum relative error of a weight or bias: {parameter_error(truth, found):.1e}"
)

# %%
# Seconds and queries per stage; parameters and their errors.
figure = plt.figure(figsize=(11, 6), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=(2, 3))
for ax, (key, title) in zip(
    left.subplots(2, 1), (("seconds", "seconds"), ("queries", "queries")), strict=True
):
    bars = ax.barh(
        list(stages),
        [stage[key] for stage in stages.values()],
        color="#0072B2",
        height=0.6,
    )
    ax.bar_label(bars, fmt="%.2g" if key == "seconds" else "%d", padding=3)
    ax.invert_yaxis()
    ax.margins(x=0.2)
    ax.set_title(f"{title} by stage")
    ax.spines[["top", "right"]].set_visible(False)
axes = right.subplots(2, 1, height_ratios=(3, 2), sharex=True)
display = WeightRecoveryDisplay.from_networks(truth, found, ax=axes)
display.ax_.legend(frameon=False, fontsize="small", ncols=2)
display.ax_.set_title(f"{truth.n_parameters} parameters of a five-layer network")
figure.savefig("five_layers.png", dpi=200)
