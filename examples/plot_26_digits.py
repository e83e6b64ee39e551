"""
Recovering a classifier of images
=================================

A ReLU network 784-128-64-10 (109,386 parameters) is trained on scikit-learn's digits,
enlarged to 28 times 28 pixels as those of MNIST. `NetworkIdentifier` gets a function
that returns its logits; widths are not given. On lines through the inputs, the Jacobian
changes by an outer product wherever a unit changes its activity, so that one Jacobian
serves ten units. The picture shows the weights of units of the first layer as images,
true and recovered, and all parameters.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.ndimage import zoom
from sklearn.datasets import load_digits

from skident import FeedforwardNetwork, NetworkIdentifier

WIDTHS = (784, 128, 64, 10)
EPOCHS, BATCH, WEIGHT_DECAY = 20, 64, 1.0
SHOWN = 8  # units of the first layer


def trained(X, y, widths):
    """A torch module in double precision, trained by AdamW to classify X (n, D)."""
    torch.manual_seed(0)
    layers = []
    for fan_in, fan_out in zip(widths[:-1], widths[1:], strict=True):
        layers += [
            torch.nn.Linear(fan_in, fan_out, dtype=torch.float64),
            torch.nn.ReLU(),
        ]
    module = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.AdamW(module.parameters(), weight_decay=WEIGHT_DECAY)
    inputs, classes = torch.tensor(X), torch.tensor(y)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(inputs)).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(
                module(inputs[rows]), classes[rows]
            ).backward()
            optimizer.step()
    return module.eval()


def parameters(network):
    """All weights and biases (P,)."""
    return np.concatenate(
        [part.ravel() for part in (*network.weights, *network.biases)]
    )


# %%
# Train a network on enlarged digits.
X, y = load_digits(return_X_y=True)
widths = WIDTHS
X = zoom(X.reshape(-1, 8, 8) / 16.0, (1, 3.5, 3.5), order=1).reshape(len(X), -1)
module = trained(X, y, widths)
with torch.no_grad():
    logits = module(torch.tensor(X)).numpy()
print(f"trained: accuracy {np.mean(logits.argmax(axis=1) == y):.3f}")


# %%
# Recover it from its logits.
def service(rows):
    with torch.no_grad():
        return module(torch.tensor(rows)).numpy()


start = time.process_time()
identifier = NetworkIdentifier(service, random_state=0).fit(X)
print(
    f"{identifier.n_queries_:,} queries, {time.process_time() - start:.1f} s of "
    "processor time"
)
print(identifier.report_)

# %%
# Compare outputs on the digits, and all parameters.
found = identifier.network_
print(
    f"widths {found.layer_widths}, largest error of a logit "
    f"{np.abs(found(X) - logits).max() / logits.std():.1e}"
)
truth = FeedforwardNetwork.from_torch(module).canonical()
found = found.canonical().align_to(truth)
error = np.abs(parameters(found) - parameters(truth)).max()
print(f"parameters, incoming weights of norm 1: largest error {error:.1e}")

# %%
# Draw weights of the first layer as images, and true against recovered parameters.
figure = plt.figure(figsize=(12, 3.3), layout="constrained")
images, scatter = figure.subfigures(1, 2, width_ratios=[2.3, 1.0])
largest = np.argsort(-np.linalg.norm(truth.weights[1], axis=1))[:SHOWN]
for row, (network, name) in enumerate([(truth, "true"), (found, "recovered")]):
    for column, unit in enumerate(largest):
        axes = images.add_subplot(2, SHOWN, row * SHOWN + column + 1)
        image = network.weights[0][:, unit].reshape(28, 28)
        size = np.abs(truth.weights[0][:, unit]).max()
        axes.imshow(image, cmap="RdBu_r", vmin=-size, vmax=size)
        axes.set(xticks=[], yticks=[])
        if column == 0:
            axes.set_ylabel(name)
images.suptitle("Incoming weights of eight units")
axes = scatter.subplots()
true, recovered = parameters(truth), parameters(found)
axes.plot(true, recovered, ".", markersize=2, rasterized=True)
axes.axline((0.0, 0.0), slope=1.0, color="0.6", linewidth=1, zorder=0)
axes.set(xlabel="true", ylabel="recovered", title=f"All {len(true):,} parameters")
figure.savefig("digits.png", dpi=200)
