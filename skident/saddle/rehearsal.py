"""How long to train: networks side by side, each without some rows, and their loss on these."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch

__all__ = ["Rehearsal", "RehearsalPlan", "rehearse"]

_ESCAPE_DROP = 0.02  # as of `NormAdaptedStep`
_SHORTEST, _PATIENCE = 100, 60  # epochs after the escape: at least so many, and so many and half the best more
_SMOOTHING = 5  # epochs over which held-out losses are averaged
_EXPLAINED, _EXPLAINED_SCORE = 0.01, 0.9999  # held-out loss relative to the origin's, and score: enough
_NEARLY, _STEADY, _SPAN = (
    0.1,
    0.002,
    100,
)  # below so much of the origin's loss, so little less in so many epochs: enough
_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # Adam's


@dataclass(frozen=True)
class RehearsalPlan:
    """How the networks of a rehearsal begin and move.

    Attributes
    ----------
    sizes : tuple of int
        ``(D, m_1, ..., m_L)``.
    folds : list of ndarray of int
        Rows that each network does not see.
    init_scale, relative_step, finish_rate : float
        As of the estimators.
    max_iter : int
        Epochs.
    batch_size : int or None
    start : list of L ndarray (m_{l-1}, m_l) or None
        Of all networks; None draws them.
    seed : int
    noise : tuple of float or None
        Standard deviations of Gaussian noise on the inputs that networks see behind the escape, one a column.
    """

    sizes: tuple
    folds: list
    init_scale: float
    relative_step: float
    finish_rate: float
    max_iter: int
    batch_size: int | None
    start: list | None
    seed: int
    noise: tuple | None = None


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal says of the training that is to follow.

    Attributes
    ----------
    n_epochs : int
        Epochs after the escape at which the held-out loss was lowest.
    score : float
        R^2, or accuracy, on the held-out rows there.
    still_falling : bool
        Whether epochs ran out while the held-out loss was still falling.
    losses : ndarray (T,)
        Held-out loss of every epoch after the escape, the mean of the networks.
    """

    n_epochs: int
    score: float
    still_falling: bool
    losses: np.ndarray

    @property
    def lowest(self):
        """The held-out loss there, averaged over a few epochs."""
        return float(_smooth(self.losses).min())


class _Networks:
    """K networks of the same sizes, each with its own step: of gradient descent until it escapes, of Adam after."""

    def __init__(self, plan, dtype, device):
        self.plan, K = plan, len(plan.folds)
        self.generator = torch.Generator().manual_seed(plan.seed)
        std = plan.init_scale / math.sqrt(max(plan.sizes[1:-1]))
        self.weights = []
        for k, shape in enumerate(zip(plan.sizes[:-1], plan.sizes[1:])):
            if plan.start is None:
                W = std * torch.randn(K, *shape, generator=self.generator, dtype=dtype)
            else:
                W = torch.as_tensor(np.array(plan.start[k]), dtype=dtype).repeat(K, 1, 1)
            self.weights.append(W.to(device).requires_grad_())
        self.moments = [(torch.zeros_like(W), torch.zeros_like(W)) for W in self.weights]
        self.escaped = torch.zeros(K, dtype=torch.bool, device=device)
        self.n_steps = torch.zeros(K, dtype=dtype, device=device)  # of Adam

    def shaken(self, X, seen):
        """X (n, D) with noise on the rows that a network sees (K, n), where it has escaped; (K, n, D)."""
        if self.plan.noise is None:
            return X
        noise = torch.randn(*X.shape, generator=self.generator, dtype=X.dtype) * X.new_tensor(self.plan.noise).cpu()
        return X + (seen * self.escaped[:, None])[..., None] * noise.to(X.device)

    def outputs(self, X):
        """(K, n, k)."""
        for W in self.weights[:-1]:
            X = torch.relu(X @ W)
        return X @ self.weights[-1]

    @torch.no_grad()
    def step(self, gradients):
        """One step of every network, from its own gradients."""
        tiny = torch.finfo(gradients[0].dtype).tiny
        norm, slope = (sum((A * A).sum((1, 2)) for A in some).sqrt() for some in (self.weights, gradients))
        descent = (self.plan.relative_step * norm / slope.clamp(min=tiny))[:, None, None]
        self.n_steps += self.escaped
        late, n = self.escaped[:, None, None], self.n_steps.clamp(min=1)[:, None, None]
        for W, g, (first, second) in zip(self.weights, gradients, self.moments):
            first.lerp_(g, 1 - _BETAS[0]).mul_(late)
            second.lerp_(g * g, 1 - _BETAS[1]).mul_(late)
            scale = (second / (1 - _BETAS[1] ** n)).sqrt() + _EPSILON
            W -= torch.where(late, self.plan.finish_rate / (1 - _BETAS[0] ** n) * first / scale, descent * g)


def rehearse(X, Y, row_losses, row_scores, plan):
    """Train on parts of the rows until the loss on the others has seen its lowest.

    Parameters
    ----------
    X : Tensor (n, D)
    Y : Tensor (n, k), or (n,) of class numbers
    row_losses, row_scores : callable
        Of outputs (K, n, k) and targets: losses of every network and row (K, n), and what a score averages.
    plan : RehearsalPlan

    Returns
    -------
    Rehearsal or None
        None if no network left the saddle at the origin.
    """
    nets, seen = _Networks(plan, X.dtype, X.device), torch.ones(len(plan.folds), len(X), dtype=X.dtype)
    for k, fold in enumerate(plan.folds):
        seen[k, torch.as_tensor(fold)] = 0.0
    seen = seen.to(X.device)
    n_outputs = plan.sizes[-1]
    with torch.no_grad():
        zero = row_losses(torch.zeros(len(seen), len(X), n_outputs, dtype=X.dtype, device=X.device), Y)
        zero_losses = _means(zero, seen)
    curves = [[] for _ in plan.folds]
    zero_loss = float(zero_losses.max())
    alive = [k for k in range(len(seen)) if float(zero_losses[k]) > 0]
    for _ in range(plan.max_iter):
        losses, held = _epoch(nets, X, Y, seen, (row_losses, row_scores))
        # Before this epoch's steps, but for the steps that its own batches made.
        for k in alive:
            if nets.escaped[k]:
                curves[k].append(held[k].tolist())
        nets.escaped |= losses < (1 - _ESCAPE_DROP) * zero_losses
        length = min((len(curves[k]) for k in alive), default=0)
        if length >= 20 and length % 20 == 0:
            found = _judged([curves[k] for k in alive], zero_loss)
            if _is_enough(found, length, zero_loss):
                return dataclasses.replace(found, still_falling=False)
    escaped = [curve for curve in curves if curve]
    return _judged(escaped, zero_loss) if escaped else None


def _epoch(nets, X, Y, seen, measures):
    """Every network over all rows: its mean loss on those it sees (K,), loss and score on those it does not (K, 2)."""
    n, size = len(X), nets.plan.batch_size or len(X)
    order = torch.randperm(n, generator=nets.generator).to(X.device) if size < n else torch.arange(n, device=X.device)
    losses, scores = torch.empty_like(seen), torch.empty_like(seen)
    for rows in order.split(size):
        # All rows at once need no copy.
        x, y, part = (X, Y, seen) if size >= n else (X[rows], Y[rows], seen[:, rows])
        outputs = nets.outputs(nets.shaken(x, part))
        some = measures[0](outputs, y)
        gradients = torch.autograd.grad(_means(some, part).sum(), nets.weights)
        with torch.no_grad():
            losses[:, rows], scores[:, rows] = some.detach(), measures[1](outputs, y)
        nets.step(gradients)
    return _means(losses, seen), torch.stack([_means(losses, 1 - seen), _means(scores, 1 - seen)], dim=1)


def _means(values, weights):
    """Weighted means over rows, (K,)."""
    return (values * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)


def _is_enough(found, length, zero_loss):
    """Whether the held-out loss has seen its lowest, or hardly has anywhere left to fall."""
    if length > max(_SHORTEST - 1, 1.5 * found.n_epochs + _PATIENCE):
        return True
    lowest = found.losses.min()
    if found.score >= _EXPLAINED_SCORE and lowest < _EXPLAINED * zero_loss:
        return True
    return length > _SPAN and lowest < _NEARLY * zero_loss and not found.still_falling


def _judged(curves, zero_loss):
    """The epoch of the lowest smoothed held-out loss, and what is known there."""
    length = min(map(len, curves))
    losses, scores = np.nan_to_num(np.mean([curve[:length] for curve in curves], axis=0), nan=np.inf).T
    smooth = _smooth(losses)
    best = int(np.argmin(smooth)) + min(_SMOOTHING, length) // 2
    falling = smooth[-1] < smooth[max(len(smooth) - 1 - _SPAN, 0)] - _STEADY * zero_loss
    return Rehearsal(max(best, 1), float(scores[best]), bool(falling), losses)


def _smooth(losses):
    """Means of a few epochs each."""
    width = min(_SMOOTHING, len(losses))
    return np.convolve(losses, np.full(width, 1.0 / width), mode="valid")
