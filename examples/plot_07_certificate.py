"""
Proving that training has reached a global optimum
==================================================

torch's Adam trains a shallow network with quadratic units, half of its hidden units
starting at zero. The loss converges and the gradient vanishes, but the point is not an
optimum: units at zero get no gradient. `landscape_certificate` identifies it as a
saddle and returns a descent direction. One step along all such directions, Adam again,
and the next certificate is a proof: no network of this kind has a lower loss.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from skident.datasets import make_planted_shallow
from skident.inspection import LandscapeDisplay
from skident.landscape import landscape_certificate
from skident.landscape.descent import block_escape
from skident.landscape.loss_lines import loss_quartic
from skident.landscape.problem import QuadraticProblem

N, D = 150, 10


def adam(W, v, X, y, n_steps):
    """Hidden weights after Adam with a decaying rate, and the losses on the way."""
    W = torch.nn.Parameter(torch.as_tensor(W))
    v, X, y = (torch.as_tensor(a) for a in (v, X, y))
    optimizer, losses = torch.optim.Adam([W], lr=0.03), []
    schedule = torch.optim.lr_scheduler.ExponentialLR(
        optimizer, 1e-3 ** (1.0 / n_steps)
    )
    for _ in range(n_steps):
        optimizer.zero_grad()
        loss = 0.5 * torch.mean(((X @ W.T) ** 2 @ v - y) ** 2)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return W, losses


def show(name, certificate):
    print(
        f"{name}: {certificate.status}, loss {certificate.loss:.6f}, gap "
        f"{certificate.gap:.1e}"
    )
    print(f"    {certificate.reason}")


# %%
# Train with half of the hidden units at zero. Adam converges, and the certificate
# states to what kind of point.
n_steps = 2000
rng = np.random.RandomState(0)
X, y = make_planted_shallow(N, D, 2 * D, labels="random", random_state=rng)
v = np.repeat([1.0, -1.0], D)
start = 0.3 * rng.standard_normal((2 * D, D)) / np.sqrt(D)
start[v < 0] = 0.0

plateau, losses = adam(start, v, X, y, n_steps)
saddle = landscape_certificate(plateau, v, X, y)
show("Adam converged", saddle)

# %%
# The certificate has the steepest descent direction; take one step along those of all
# useful eigenvectors.
W = plateau.detach().numpy()
problem = QuadraticProblem(X, y)
direction = block_escape(
    W, v, problem.value_and_gradient(W.T @ (v[:, None] * W))[1], limit=1e-6
)
steps = np.linspace(0.0, 2.0, 201)
losses_there = np.polyval(loss_quartic(problem, W, v, direction)[::-1], steps)
escaped = W + steps[np.argmin(losses_there)] * direction
print(f"after one step out of the saddle: loss {losses_there.min():.6f}")
trained, more = adam(escaped, v, X, y, n_steps)
optimum = landscape_certificate(trained, v, X, y)
show("Adam from there", optimum)

# %%
# The loss along the descent direction from the saddle, and the losses of both runs of
# Adam.
figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained")
LandscapeDisplay.from_certificate(saddle, plateau, X, y, history=losses + more, ax=axes)
axes[0].set_title("Where Adam converged", fontsize="medium")
axes[1].axvline(n_steps, color="0.5", linewidth=1, linestyle="--")
axes[1].set_xlabel("step of Adam")
axes[1].set_title("After one step out of the saddle", fontsize="medium")
figure.savefig("certificate.png", dpi=200)
