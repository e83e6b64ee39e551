"""
The width at which training of shallow networks always succeeds
===============================================================

Networks learn labels of 100 points that a random network of the same size generated.
With few hidden units, many random starts end in local minima; with about as many
parameters as points, all of them reach zero loss. The four sweeps are those of
Soltanolkotabi, Javanmard and Lee (2017), Figures 2 and 3, with fewer trials and another
optimizer (Levenberg-Marquardt, 120 steps, loss 1e-8), on which the place of the
transition depends. Dotted lines show the paper's half-points.
"""

import time

import matplotlib.pyplot as plt

from skident.inspection import PhaseTransitionDisplay
from skident.landscape import TrainingTrials, phase_transition

# %%
# The sweeps: samples, inputs, hidden units, activation, and the paper's half-point.
SOFTPLUS, QUADRATIC = (
    {"activation": "softplus", "sharpness": 10.0},
    {"activation": "quadratic"},
)
PANELS = {
    "2a: softplus, d = 10": ((100, 10, range(9, 15)), SOFTPLUS, 11.40),
    "2b: softplus, k = 10": ((100, range(9, 15), 10), SOFTPLUS, 10.70),
    "3a: quadratic, d = 20": ((100, 20, range(4, 9)), QUADRATIC, 5.5),
    "3b: quadratic, k = 5": ((100, range(20, 30, 2), 5), QUADRATIC, 25.40),
}

# %%
# Count successful trials on each sweep.
n_trials = 6
n_starts = 6
transitions = {}
for name, (sizes, options, reference) in PANELS.items():
    start = time.perf_counter()
    trials = TrainingTrials(n_trials=n_trials, n_starts=n_starts)
    found = phase_transition(*sizes, **options, trials=trials, random_state=0)
    low, high = found.interval
    print(
        f"{name}: half-point {found.half_point:.2f} [{low:.2f}, {high:.2f}], paper "
        f"{reference}, {time.perf_counter() - start:.1f} s"
    )
    transitions[name] = found

# %%
# Rates of success, with the fitted transitions.
figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
for ax, (name, found) in zip(axes.flat, transitions.items()):
    PhaseTransitionDisplay.from_transition(found, ax=ax, reference=PANELS[name][2])
    ax.set_title(name, fontsize="medium")
figure.savefig("phase_transition.png", dpi=200)
