"""Stochastic gradient descent of several classifiers at once: trials that select the noise, and networks to average."""

import copy
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

# Torch's defaults of OneCycleLR and BatchNorm1d, so that networks are those that skorch would train.
_RISING = 0.3  # fraction of the steps with a rising rate; torch's default
_FIRST_RATE = 1.0 / 25.0  # relative to the largest; torch's default
_LAST_RATE = _FIRST_RATE / 1e4  # relative to the largest; torch's default
_MOMENTA = (0.85, 0.95)  # while the rate is largest and smallest; torch's default


@dataclass(frozen=True)
class Trial:
    """Samples held out from a network, and the noise and weight decay of its training."""

    held: torch.Tensor  # indices of the samples
    noise: float  # standard deviation of Gaussian noise on the inputs
    weight_decay: float


class MeanOfLogits(nn.Module):
    """Mean of the logits of networks."""

    def __init__(self, networks):
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x):
        """The mean (n, o)."""
        return torch.stack([network(x) for network in self.networks]).mean(dim=0)

    predict = forward


def trial_logits(problem, trials, training):
    """Logits (m, o) of the held-out samples of each trial, from networks trained in parallel on the others."""
    nets, _ = _trained(problem, trials, training)
    return [nets.logits(k, problem.x[trial.held]) for k, trial in enumerate(trials)]


def train_in_parallel(problem, trials, training):
    """Trained modules, initial modules, and the mean loss of each epoch (T, K)."""
    nets, losses = _trained(problem, trials, training)
    return nets.trained_modules(), nets.initial, losses


def _trained(problem, trials, training):
    """Networks with batch norm, each trained without the samples that its trial holds out, and losses (T, K) by epoch.

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
    total, losses = training.max_epochs * len(starts), []
    for step in range(total):
        start = starts[step % len(starts)]
        if start == 0:
            order = torch.rand(rest.shape, generator=nets.generator).argsort(1).to(rest.device)
            shuffled = rest.gather(1, order)
        rows = shuffled[:, start : start + size]
        batch = (problem.x[rows], problem.y[rows], None if problem.weights is None else problem.weights[rows, 0])
        loss = nets.step(*batch, *_rate_and_momentum(step, total, training.lr))
        losses.append(loss * (rows.shape[1] / n))
    return nets, torch.stack(losses).reshape(training.max_epochs, len(starts), -1).sum(1)


def _rate_and_momentum(step, total, largest):
    """Learning rate and momentum of a step in the one-cycle schedule."""
    turn, last = _RISING * (total + 1) - 1.0, float(total)
    if step <= turn:
        position, (a, b), (low, high) = step / max(turn, 1.0), (_FIRST_RATE, 1.0), (_MOMENTA[1], _MOMENTA[0])
    else:
        position, (a, b), (low, high) = (step - turn) / (last - turn), (1.0, _LAST_RATE), _MOMENTA
    part = (1.0 + math.cos(math.pi * position)) / 2.0
    return largest * (b + (a - b) * part), high + (low - high) * part


class _Networks:
    """K quadratic DenseNets with linear readouts and batch norm: parameters stacked, with momentum."""

    def __init__(self, problem, rest, trials, training):
        self.initial = modules = [problem.part(rows).build("linear", batch_norm=True) for rows in rest]
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
        """One step of all networks on batches (K, n, d) with labels and weights (K, n); their mean losses, (K,)."""
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
        return losses.detach()

    @torch.no_grad()
    def trained_modules(self):
        """The networks as modules in evaluation mode."""
        modules = copy.deepcopy(self.initial)
        for k, module in enumerate(modules):
            for name, p in module.named_parameters():
                p.copy_(self.params[name][k])
            for norm, means, variances in zip(module.norms, self.means, self.variances):
                norm.running_mean.copy_(means[k, 0])
                norm.running_var.copy_(variances[k, 0])
        return [module.eval() for module in modules]

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
