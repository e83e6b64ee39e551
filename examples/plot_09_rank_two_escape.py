"""
A saddle whose fastest escape has rank two
==========================================

Eight points on a circle, with gradients of the loss that alternate in sign, are the
counterexample of Bantzis, Simon and Jacot (2025), Example 1: the fastest escape from
the saddle at the origin need not have rank one. Every network whose layers have rank
one escapes with a speed of at most sqrt(2) - 1. `SaddleEscapeAnalyzer` finds directions
of rank two, with speed 1/2, in most restarts of a wide network of depth three. Linear
programs prove that no such network with one top unit is faster. The picture shows the
data with the first-layer units of that direction, and the speeds of the restarts for
three widths.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from skident import SaddleEscapeAnalyzer
from skident.datasets import make_alternating_circle
from skident.inspection import EscapeDisplay
from skident.saddle import fastest_planar_escape

RANK_ONE = np.sqrt(2) - 1

# %%
# Linear programs bound the speed of every network with one top unit.
X, y = make_alternating_circle(8)
exact = fastest_planar_escape(X, y)
print(
    f"linear programmes: fastest speed {exact.speed:.9f}, none above "
    f"{exact.upper_bound:.9f}"
)

# %%
# Escape directions of networks with 4, 8 and 32 units per layer: the wider, the more
# restarts beat rank one.
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
for width, color in ((4, "#E69F00"), (8, "#009E73"), (32, "#0072B2")):
    start = time.perf_counter()
    analyzer = SaddleEscapeAnalyzer(
        loss="gradient",
        depth=3,
        width=width,
        n_starts=100,
        max_iter=400,
        random_state=0,
    ).fit(X, y)
    beating = np.mean(analyzer.restart_speeds_ > RANK_ONE + 1e-6)
    print(
        f"width {width}: {100 * beating:.0f} of 100 restarts beat rank one, the best "
        "by speed "
        f"{analyzer.escape_speed_:.5f}, {time.perf_counter() - start:.1f} s"
    )
    display = EscapeDisplay(speeds=analyzer.restart_speeds_)
    display.plot(right, line_kwargs={"color": color, "label": f"width {width}"})
values = analyzer.layer_singular_values_[0]
print(
    f"first layer: singular values {values[0]:.3f} and {values[1]:.3f}; deeper layers "
    "of rank one"
)

# %%
# The data, the first-layer units of the fastest direction, and the speeds of all
# restarts.
for sign, color, name in ((1, "#D55E00", "G = +1"), (-1, "#0072B2", "G = -1")):
    left.plot(*X[y == sign].T, "o", color=color, markersize=10, label=name)
for direction, outgoing in zip(
    analyzer.escape_direction_[0].T, analyzer.escape_direction_[1][:, 0]
):
    arrow = {"arrowstyle": "-|>", "color": "0.2" if outgoing > 0 else "0.7"}
    left.annotate("", xytext=(0, 0), xy=1.6 * direction, arrowprops=arrow)
left.set(aspect="equal", xlim=(-1.4, 1.4), ylim=(-1.4, 1.4))
title = (
    "Data, and first-layer units\n(dark: added by the second layer, light: subtracted)"
)
left.set_title(title, fontsize="medium")
left.legend(loc="upper right", frameon=False)
right.axhline(
    RANK_ONE, color="0.4", linestyle="--", linewidth=1.2, label="best of rank one"
)
right.axhline(
    exact.speed, color="0.4", linestyle=":", linewidth=1.2, label="linear programmes"
)
right.set_title("Speeds of 100 restarts", fontsize="medium")
right.legend(loc="center left", frameon=False)
figure.savefig("rank_two_escape.png", dpi=200)
