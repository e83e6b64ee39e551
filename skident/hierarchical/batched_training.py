"""Stochastic gradient descent of several classifiers at once: trials that select the noise."""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional


@dataclass(frozen=True)
class Trial:
    """Samples held out from a network, and the noise and weight decay of its training."""

    held: torch.Tensor  # indices of the samples
    noise: float  # standard deviation of Gaussian noise on the inputs
    weight_decay: float


def trial_logits(problem, trials, training):
    """Logits (m, o) of the held-out samples of each trial, from networks with batch norm trained on the others.

    The networks have the architecture of the problem and `training`'s steps: SGD with momentum, clipped gradients and a
    one-cycle schedule. Small networks take most of their time in calls of torch, which all of them share. Numbers of
    held-out samples differ by one at most: networks with more samples leave the last one out.
    """
    rest = [_rest(problem, trial) for trial in trials]
    n = min(map(len, rest))
    rest, nets = torch.stack([rows[:n] for rows in rest]), _Networks(problem, rest, trials, training)
    # Batches of nearly equal sizes: batch norm would suffer from a last one of a few samples.
    n_batches = 1 if training.batch_size == -1 else max(1, round(n / training.batch_size))
    size = math.ceil(n / n_batches)
    starts = [start for start in range(0, n, size) if n - start > 1]  # batch norm refuses single samples
    total = training.max_epochs * len(starts)
    clock = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=training.lr, momentum=training.momentum)
    schedule = torch.optim.lr_scheduler.OneCycleLR(clock, max_lr=training.lr, total_steps=total + 1)
    for step in range(total):
        start = starts[step % len(starts)]
        if start == 0:
            order = torch.rand(rest.shape, generator=nets.generator).argsort(1).to(rest.device)
            shuffled = rest.gather(1, order)
        rows = shuffled[:, start : start + size]
        batch = (problem.x[rows], problem.y[rows], None if problem.weights is None else problem.weights[rows, 0])
        nets.step(*batch, clock.param_groups[0]["lr"], clock.param_groups[0]["momentum"])
        clock.step()
        schedule.step()
    return [nets.logits(k, problem.x[trial.held]) for k, trial in enumerate(trials)]


class _Networks:
    """K quadratic DenseNets with linear readouts and batch norm: parameters stacked, with momentum."""

    def __init__(self, problem, rest, trials, training):
        modules = [problem.part(rows).build("linear", batch_norm=True) for rows in rest]
        self.generator = torch.Generator().manual_seed(problem.seed())
        self.connections, self.curvature = modules[0].connections, getattr(modules[0].activation, "curvature", None)
        self.norm = modules[0].norms[0]
        self.alphas, self.clip = [float(a) for a in modules[0].alphas], training.clip
        x = problem.x
        self.moments = torch.stack([module.moments for module in modules])[:, None, :].to(x)
        self.noise = x.new_tensor([trial.noise for trial in trials])[:, None, None]
        self.noisy = bool((self.noise > 0).any())
        self.decay = x.new_tensor([trial.weight_decay for trial in trials])[:, None]
        self.flat = torch.stack(
            [torch.cat([p.detach().reshape(-1) for p in module.parameters()]) for module in modules]
        )
        self.velocity, self.params = torch.zeros_like(self.flat), self._views(modules[0])
        shapes = [(len(trials), 1, k) for k in modules[0].widths]
        self.means = [x.new_zeros(shape) for shape in shapes]
        self.variances = [x.new_ones(shape) for shape in shapes]

    def _views(self, module):
        """The parameters by their names in a module, (K, ...), as leaves that share the memory of all of them."""
        views, start = {}, 0
        for name, p in module.named_parameters():
            part = self.flat[:, start : start + p.numel()].view(-1, *p.shape)
            views[name], start = part.detach().requires_grad_(), start + p.numel()
        return views

    def step(self, x, labels, weights, rate, momentum):
        """One step of all networks on batches (K, n, d) with labels and weights (K, n)."""
        if self.noisy:  # drawn in float32, which takes a tenth of the time
            x = x + self.noise * torch.randn(x.shape, generator=self.generator).to(x)
        logits = self._logits(x, self._normalized_by_batch)
        K, n, o = logits.shape
        losses = functional.cross_entropy(logits.reshape(K * n, o), labels.reshape(-1), reduction="none")
        losses = losses.reshape(K, n) if weights is None else weights * losses.reshape(K, n)
        losses, params = losses.mean(dim=1), list(self.params.values())
        gradients = torch.autograd.grad(losses.sum(), params)
        with torch.no_grad():
            gradient = torch.cat([g.reshape(K, -1) for g in gradients], dim=1)
            norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient *= self.clip / norms.clamp(min=self.clip)
            self.velocity.mul_(momentum).add_(gradient).addcmul_(self.flat, self.decay)
            self.flat.sub_(self.velocity, alpha=rate)

    @torch.no_grad()
    def logits(self, k, x):
        """Logits (m, o) of network k in evaluation mode."""
        every = x.expand(len(self.decay), *x.shape)
        return self._logits(every, self._normalized_by_running_means)[k]

    def _logits(self, x, normalized):
        """Logits (K, n, o) of inputs (K, n, d)."""
        p, outputs = self.params, [x, x * x - self.moments]
        inputs = torch.cat(outputs, dim=2)
        total = torch.baddbmm(p["offset"][:, None, :], inputs, p["direct"])
        for i, J in enumerate(self.connections):
            features = inputs if J == (0, 1) else torch.cat([outputs[j] for j in J], dim=2)
            S = torch.baddbmm(p[f"biases.{i}"][:, None, :], features, p[f"weights.{i}"].transpose(1, 2))
            G = S * S if self.curvature is None else S + self.curvature * S * S
            outputs.append(normalized(i, G) * p[f"norms.{i}.weight"][:, None] + p[f"norms.{i}.bias"][:, None])
            total = torch.baddbmm(total, outputs[-1], self.alphas[i] * p[f"readouts.{i}"])
        return total

    def _normalized_by_batch(self, i, G):
        """Features (K, n, k) over means and standard deviations of the batch, with running means updated."""
        variance, mean = torch.var_mean(G, dim=1, keepdim=True, correction=0)
        with torch.no_grad():
            self.means[i].lerp_(mean, self.norm.momentum)
            self.variances[i].lerp_(variance * (G.shape[1] / (G.shape[1] - 1.0)), self.norm.momentum)
        return (G - mean) * torch.rsqrt(variance + self.norm.eps)

    def _normalized_by_running_means(self, i, G):
        """Features (K, n, k) over running means and standard deviations."""
        return (G - self.means[i]) * torch.rsqrt(self.variances[i] + self.norm.eps)


def _rest(problem, trial):
    """Indices of the samples that are not held out."""
    everything = torch.arange(len(problem.x), device=problem.x.device)
    return everything[~torch.isin(everything, trial.held)]
