"""
Measuring backward feature correction
=====================================

The target has three hidden layers with decreasing contributions, alpha_l = 1, a, a^2.
If the first layer of the learner is trained alone, it also fits part of what higher
layers should explain: its features have an error of about a^2 (squared, relative, up to
rotation). With one more layer the error decreases to a^4, and with all layers to
rounding. The second picture is the protocol of Figure 9 of Allen-Zhu and Li (2020): the
loss that remains if lower layers are kept fixed.
"""

import matplotlib.pyplot as plt
import numpy as np

from skident import HierarchicalQuadraticNet
from skident.datasets import make_hierarchical_target
from skident.hierarchical import backward_feature_correction
from skident.inspection import BackwardCorrectionDisplay
from skident.metrics import feature_recovery_error

WIDTHS = (3, 2, 2)
SIZES = (0.16, 0.08, 0.04, 0.02, 0.01)


def feature_errors(a):
    """Of the first layer after training 1, 2 and all 3 hidden layers."""
    alphas = (1.0, a, a**2)
    target = make_hierarchical_target(
        12, WIDTHS, alphas=alphas, kappa=1.0, random_state=0
    )
    X, fresh = (
        target.sample(5000, random_state=0),
        target.sample(10_000, random_state=1),
    )
    y, truth, net, errors = target(X), target.features(fresh, layer=2), None, []
    for depth in (2, 3, 4):
        new = HierarchicalQuadraticNet(
            WIDTHS, alphas=alphas, readout="sum", n_starts=5, random_state=0
        )
        net = new.fit_layers(X, y, depth=depth, start=net)
        errors.append(feature_recovery_error(truth, net.transform(fresh, layer=2)))
    return errors


# %%
# The error of the first layer's features against the size a of the contributions, with
# one, two and all hidden layers of the learner: slopes 2 and 4, and rounding.
errors = np.array([feature_errors(a) for a in SIZES])
for name, column in zip(("layer 2 alone", "with layer 3"), errors.T):
    print(f"{name}: slope {np.polyfit(np.log(SIZES), np.log(column), 1)[0]:.2f}")
print(f"all layers: maximum error {errors[:, 2].max():.1e}")

figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
names = ("layer 2 alone", "with layer 3", "with layers 3 and 4")
for name, column, marker in zip(names, errors.T, "osv"):
    ax.loglog(SIZES, np.maximum(column, 1e-16), marker=marker, label=name)
for power in (2, 4):
    ax.loglog(SIZES, np.array(SIZES) ** power, "--", color="0.6", label=f"$a^{power}$")
ax.set(xlabel="a", ylabel="error of the first layer's features")
ax.set_xticks(SIZES, map(str, SIZES))
ax.minorticks_off()
ax.legend(frameon=False, fontsize="small")
ax.set_title("Higher layers correct the first layer", fontsize="medium")
figure.savefig("backward_feature_correction.png", dpi=200)

# %%
# The protocol of Figure 9 of the paper, on a target with larger contributions: the loss
# that remains if lower layers are kept fixed while a layer is added, and if they are
# trained with it.
alphas = (1.0, 0.3, 0.1)
target = make_hierarchical_target(12, WIDTHS, alphas=alphas, kappa=1.0, random_state=0)
X, fresh = target.sample(5000, random_state=0), target.sample(10_000, random_state=1)
net = HierarchicalQuadraticNet(WIDTHS, alphas=alphas, readout="sum", random_state=0)
result = backward_feature_correction(
    net, X, target(X), X_test=fresh, y_test=target(fresh), target=target
)
print(result)

figure, axes = plt.subplots(
    2, 1, figsize=(6.4, 5), sharex=True, height_ratios=(2, 1), layout="constrained"
)
BackwardCorrectionDisplay(result).plot(axes)
figure.savefig("forward_and_backward.png", dpi=200)
