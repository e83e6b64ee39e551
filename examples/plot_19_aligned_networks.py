"""
Aligning two trained residual networks
======================================

Two networks with residual connections are trained on the digits from different seeds.
On the straight line between their weights the loss is high: corresponding units have
different positions and scales. `align_modules` permutes and rescales the units of one
network without changing its function, by the weights alone or by the outputs of the
units on the digits, and removes most of the barrier. The picture shows loss and
accuracy on held-out digits along the line, before and after.
"""

import copy
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from skident import align_modules
from skident.training.net import Training, fit_module

PLACES = np.linspace(0.0, 1.0, 25)


class ResidualNetwork(nn.Module):
    """Three blocks of `inner` relu units behind layer norm, on a stream of `width`."""

    def __init__(self, width=64, inner=256):
        super().__init__()
        self.first, self.last = nn.Linear(64, width), nn.Linear(width, 10)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(width, inner) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(inner, width) for _ in range(3))

    def forward(self, x):
        x = self.first(x)
        for norm, up, down in zip(self.norms, self.up, self.down):
            x = x + down(torch.relu(up(norm(x))))
        return self.last(x)


def trained(X, digit, seed, n_epochs):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = ResidualNetwork()
    training = Training(lr=1e-3, max_epochs=n_epochs, weight_decay=1e-4, seed=seed)
    fit_module(network, X, digit, nn.CrossEntropyLoss, training)
    return network.eval()


@torch.no_grad()
def along_the_line(a, b, X, digit):
    """Losses and accuracies at `PLACES` between a and b."""
    between, result = copy.deepcopy(a), []
    for t in PLACES:
        for p, start, end in zip(between.parameters(), a.parameters(), b.parameters()):
            p.copy_(torch.lerp(start, end, float(t)))
        outputs = between(X)
        hits = (outputs.argmax(dim=1) == digit).double().mean()
        result.append((nn.functional.cross_entropy(outputs, digit).item(), hits.item()))
    return np.transpose(result)


# %%
# Train two networks from different seeds.
n_epochs = 30
X, digit = load_digits(return_X_y=True)
X = (X / 16.0 - 0.3).astype(np.float32)
X, X_test, digit, digit_test = train_test_split(X, digit, test_size=0.3, random_state=0)
a, b = (trained(X, digit, seed, n_epochs) for seed in (0, 1))

# %%
# Align the second network to the first one, by its weights and by its outputs. The
# function stays the same.
start = time.perf_counter()
by_weights = align_modules(a, b, random_state=0)
print(f"matched by weights in {time.perf_counter() - start:.1f} s")
by_outputs = align_modules(a, b, X)
distances = (by_weights.distance_before, by_weights.distance, by_outputs.distance)
print("distance before {:.2f}, by weights {:.2f}, by outputs {:.2f}".format(*distances))
X_test, digit_test = torch.from_numpy(X_test), torch.from_numpy(digit_test)
with torch.no_grad():
    change = (by_weights.module(X_test) - b(X_test)).abs().max().item()
print(f"largest change of an output: {change:.1e}")

# %%
# Loss and accuracy on the line between both networks, before and after.
lines = {
    "as trained": b,
    "matched by weights": by_weights.module,
    "matched by outputs": by_outputs.module,
}
figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
for name, module in lines.items():
    loss, accuracy = along_the_line(a, module, X_test, digit_test)
    print(
        f"{name}: highest loss {loss.max():.3f}, lowest accuracy {accuracy.min():.3f}"
    )
    axes[0].plot(PLACES, loss, label=name)
    axes[1].plot(PLACES, accuracy, label=name)
for ax, title in zip(axes, ("loss on held-out digits", "accuracy")):
    ax.set_title(title)
    ax.set_xticks([0.0, 0.5, 1.0], ["network a", "halfway", "network b"])
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
figure.suptitle("Between two residual networks, before and after alignment")
figure.savefig("aligned_networks.png", dpi=200)
