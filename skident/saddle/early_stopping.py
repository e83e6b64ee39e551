"""Number of epochs by early stopping: networks trained in parallel, each without some of the samples."""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from skident.base.better_models import BetterModel, better_model
from skident.base.linear_reference import linear_accuracy, linear_r2
from skident.base.predictions import added_constants
from skident.budget.constants import ESCAPE_DROP, FEWEST_COMPARED

# When the held-out loss counts as past its minimum, in epochs after the escape.
_FEWEST_EPOCHS = 100
_PATIENCE = 40  # epochs after 1.3 times the best epoch
_PATIENCE_FACTOR = 1.3  # not tuned; curves are slow where the best epoch is late
_CHECK_EVERY = 20  # epochs between two checks (budget)
_SMOOTHING = 5  # epochs over which held-out losses are averaged: the noise of single epochs would select
# When it counts as low enough. Losses are relative to that at the origin.
_SMALL_LOSS = 0.01  # with a score of at least:
_PERFECT_SCORE = 0.9999  # R^2 or accuracy; nothing is left to gain
_LOW_LOSS = 0.1  # and stationary
_STATIONARY = 0.002  # decrease over `_SPAN` epochs below which the loss is stationary
_SPAN = 100  # epochs
# Adam's usual constants, as in torch.
_BETA1 = 0.9  # decay of the mean gradient
_BETA2 = 0.999  # decay of the mean squared gradient
_EPSILON = 1e-8  # added to the root mean square
# Epochs with noise: at most these, plus a multiple of those without; longer trainings are not worthwhile.
_EPOCHS_IN_SADDLE = 150  # to leave the saddle
_MAX_SLOWDOWN = 4  # factor of the epochs without noise
_DEFAULT_EPOCHS = 100  # if no network left the origin, since the one on all samples may


@dataclass(frozen=True)
class FinishRate:
    """Learning rate of Adam: ``first / (1 + t / half_after)`` after t epochs."""

    first: float
    half_after: float = math.inf  # epochs; infinity is a constant rate


@dataclass(frozen=True)
class StoppingOptions:
    """Initialization and training of the networks whose held-out loss determines the number of epochs."""

    sizes: tuple  # (D, m_1, ..., m_L)
    folds: list  # indices of the samples held out from each network
    init_scale: float
    relative_step: float
    rate: FinishRate  # of Adam
    max_iter: int
    batch_size: int | None  # None is all samples
    start: list | None  # initial weights of all networks; None draws them
    seed: int
    noise: tuple | None = None  # standard deviations of Gaussian input noise after the escape, one per column
    weights: np.ndarray | None = None  # of the samples (n,), with mean one


@dataclass(frozen=True)
class HeldOutCurve:
    """Held-out loss by epoch, and the epoch at which it is lowest."""

    n_epochs: int  # epochs after the escape at which the held-out loss is lowest
    score: float  # R^2, or accuracy, on the held-out samples at this epoch
    still_falling: bool  # whether epochs ran out while the held-out loss was still falling
    losses: np.ndarray  # (T,): mean held-out loss of the networks for each epoch after the escape
    outputs: torch.Tensor | None = None  # (n, k): for each sample of its network, at the epoch of its lowest loss

    @property
    def lowest(self):
        """The lowest held-out loss, averaged over a few epochs."""
        return float(_smooth(self.losses).min())


class _Networks:
    """K networks of the same sizes with separate optimizers: gradient descent until the escape, then Adam."""

    def __init__(self, options, n, dtype, device):
        self.options, K = options, len(options.folds)
        self.sample_weights = torch.as_tensor(np.ones(n) if options.weights is None else options.weights)
        self.sample_weights = self.sample_weights.to(device, dtype)
        self.n_batches = math.ceil(n / (options.batch_size or n))
        self.generator = torch.Generator().manual_seed(options.seed)
        std = options.init_scale / math.sqrt(max(options.sizes[1:-1]))
        self.weights = []
        for k, shape in enumerate(zip(options.sizes[:-1], options.sizes[1:])):
            if options.start is None:
                W = std * torch.randn(K, *shape, generator=self.generator, dtype=dtype)
            else:
                W = torch.as_tensor(np.array(options.start[k]), dtype=dtype).repeat(K, 1, 1)
            self.weights.append(W.to(device).requires_grad_())
        self.moments = [(torch.zeros_like(W), torch.zeros_like(W)) for W in self.weights]
        self.escaped = torch.zeros(K, dtype=torch.bool, device=device)
        self.n_steps = torch.zeros(K, dtype=dtype, device=device)  # of Adam

    def with_noise(self, X, training):
        """X (n, D) with noise on the training samples (K, n) of networks that have escaped; (K, n, D)."""
        if self.options.noise is None:
            return X
        noise = torch.randn(*X.shape, generator=self.generator, dtype=X.dtype) * X.new_tensor(self.options.noise).cpu()
        return X + (training * self.escaped[:, None])[..., None] * noise.to(X.device)

    def outputs(self, X):
        """Outputs (K, n, k)."""
        for W in self.weights[:-1]:
            X = torch.relu(X @ W)
        return X @ self.weights[-1]

    @torch.no_grad()
    def step(self, gradients):
        """One step of each network, from its own gradients."""
        self.n_steps += self.escaped
        adam, late = self._adam_steps(gradients), self.escaped[:, None, None]
        if bool(self.escaped.all()):
            for W, change in zip(self.weights, adam):
                W -= change
            return
        tiny = torch.finfo(gradients[0].dtype).tiny
        norm, slope = (sum((A * A).sum((1, 2)) for A in some).sqrt() for some in (self.weights, gradients))
        descent = (self.options.relative_step * norm / slope.clamp(min=tiny))[:, None, None]
        for W, g, change, moments in zip(self.weights, gradients, adam, self.moments):
            W -= torch.where(late, change, descent * g)
            for moment in moments:
                moment.mul_(late)

    def _adam_steps(self, gradients):
        """Steps of Adam (K, m, m') per layer, with moments updated; those of networks in the saddle do not count."""
        n, rate = self.n_steps.clamp(min=1)[:, None, None], self.options.rate
        rate = rate.first / (1 + torch.floor((n - 1) / self.n_batches) / rate.half_after)
        factor, root = rate / (1 - _BETA1**n), (1 - _BETA2**n).rsqrt()
        for g, (first, second) in zip(gradients, self.moments):
            first.lerp_(g, 1 - _BETA1)
            second.mul_(_BETA2).addcmul_(g, g, value=1 - _BETA2)
        return [factor * first / (second.sqrt() * root).add_(_EPSILON) for first, second in self.moments]


def train_on_folds(X, Y, losses_of, scores_of, options):
    """Train networks on parts of the samples until the held-out loss has passed its minimum; None if none escapes.

    `losses_of` and `scores_of` map outputs (K, n, k) and targets to losses (K, n) and scores, whose mean is reported.
    """
    nets, training = (
        _Networks(options, len(X), X.dtype, X.device),
        torch.ones(len(options.folds), len(X), dtype=X.dtype),
    )
    for k, fold in enumerate(options.folds):
        training[k, torch.as_tensor(fold)] = 0.0
    training = training.to(X.device)
    n_outputs = options.sizes[-1]
    with torch.no_grad():
        zero = losses_of(torch.zeros(len(training), len(X), n_outputs, dtype=X.dtype, device=X.device), Y)
        zero_losses = _means(zero, training * nets.sample_weights)
    curves, best = [[] for _ in options.folds], X.new_full((len(X), n_outputs), math.nan)
    zero_loss = float(zero_losses.max())
    alive = [k for k in range(len(training)) if float(zero_losses[k]) > 0]
    for _ in range(options.max_iter):
        losses, held, outputs = _epoch(nets, X, Y, training, (losses_of, scores_of))
        # Measured before the steps of this epoch, except those of its own earlier batches.
        for k in alive:
            if nets.escaped[k]:
                curves[k].append(held[k].tolist())
                if curves[k][-1] == min(curves[k]):
                    best[options.folds[k]] = outputs[k, options.folds[k]]
        nets.escaped |= losses < (1 - ESCAPE_DROP) * zero_losses
        length = min((len(curves[k]) for k in alive), default=0)
        if length and length % _CHECK_EVERY == 0:
            curve = _best_epoch([curves[k] for k in alive], zero_loss)
            if _is_finished(curve, length, zero_loss):
                return dataclasses.replace(curve, still_falling=False, outputs=best)
    escaped = [curve for curve in curves if curve]
    return dataclasses.replace(_best_epoch(escaped, zero_loss), outputs=best) if escaped else None


def _epoch(nets, X, Y, training, measures):
    """One epoch of all networks: training losses (K,), held-out losses and scores (K, 2), outputs (K, n, k)."""
    n, size = len(X), nets.options.batch_size or len(X)
    order = torch.randperm(n, generator=nets.generator).to(X.device) if size < n else torch.arange(n, device=X.device)
    losses, outputs = torch.empty_like(training), X.new_empty(*training.shape, nets.options.sizes[-1])
    used, held = training * nets.sample_weights, (1 - training) * nets.sample_weights
    for batch in order.split(size):
        # All samples at once need no copy.
        x, y, part = (X, Y, training) if size >= n else (X[batch], Y[batch], training[:, batch])
        found = nets.outputs(nets.with_noise(x, part))
        some = measures[0](found, y)
        gradients = torch.autograd.grad(_means(some, used[:, batch]).sum(), nets.weights)
        with torch.no_grad():
            losses[:, batch], outputs[:, batch] = some.detach(), found
        nets.step(gradients)
    held = torch.stack([_means(losses, held), _means(measures[1](outputs, Y), held)], dim=1)
    return _means(losses, used), held, outputs


def _means(values, weights):
    """Weighted means over samples, (K,)."""
    return (values * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=torch.finfo(values.dtype).tiny)


def _is_finished(curve, length, zero_loss):
    """Whether the held-out loss has passed its minimum, or is close to zero."""
    if length > max(_FEWEST_EPOCHS - 1, _PATIENCE_FACTOR * curve.n_epochs + _PATIENCE):
        return True
    lowest = curve.losses.min()
    if curve.score >= _PERFECT_SCORE and lowest < _SMALL_LOSS * zero_loss:
        return True
    return length > _SPAN and lowest < _LOW_LOSS * zero_loss and not curve.still_falling


def _best_epoch(curves, zero_loss):
    """The epoch of the lowest smoothed held-out loss, with the score there."""
    length = min(map(len, curves))
    losses, scores = np.nan_to_num(np.mean([curve[:length] for curve in curves], axis=0), nan=np.inf).T
    smooth = _smooth(losses)
    best = int(np.argmin(smooth)) + min(_SMOOTHING, length) // 2
    falling = smooth[-1] < smooth[max(len(smooth) - 1 - _SPAN, 0)] - _STATIONARY * zero_loss
    return HeldOutCurve(max(best, 1), float(scores[best]), bool(falling), losses)


def _smooth(losses):
    """Moving averages over a few epochs."""
    width = min(_SMOOTHING, len(losses))
    return np.convolve(losses, np.full(width, 1.0 / width), mode="valid")


@dataclass(frozen=True)
class StoppingChoice:
    """Number of epochs and input noise, with the held-out scores that determined them."""

    n_epochs: int  # of Adam
    scores: tuple  # R^2 or accuracy on held-out samples, of the networks and of a linear model; NaN if unknown
    still_falling: bool  # whether the held-out loss was still falling when epochs ran out
    noise: tuple | None = None  # standard deviations of the input noise in training, one per column; or None
    better: BetterModel | None = None  # on the same held-out samples
    constants: np.ndarray | float = 0.0  # (k,): to add to the outputs, relative to their root mean square


def choose_epochs(X, Y, tensors, classes, options):
    """Epochs and held-out scores, from networks and a linear model on parts of the samples X, Y.

    `tensors` are the network's inputs and targets; Y has mean zero and variance one, or `classes` is True. For labels
    it is done without noise and with the noise of the options, and the lower held-out loss is taken: once the inputs
    separate the classes, the held-out log loss rises; inputs with noise are not separable.
    """
    losses_of, scores_of = (_class_losses, _correct) if classes else (_half_squares, _variance_explained)
    curve, noise = train_on_folds(*tensors, losses_of, scores_of, dataclasses.replace(options, noise=None)), None
    if classes and options.noise is not None and curve is not None and curve.score < 1.0:
        # Noise makes training longer; if it takes much longer, it is not worthwhile.
        most = min(options.max_iter, _EPOCHS_IN_SADDLE + _MAX_SLOWDOWN * curve.n_epochs)
        with_noise = train_on_folds(*tensors, losses_of, scores_of, dataclasses.replace(options, max_iter=most))
        if with_noise is not None and with_noise.lowest < curve.lowest:
            falling = with_noise.still_falling and most == options.max_iter
            curve, noise = dataclasses.replace(with_noise, still_falling=falling), options.noise
    linear, folds, weights = np.nan, options.folds, options.weights
    labels = np.asarray(Y).reshape(len(X), -1)[:, 0].astype(int) if classes else None
    if len(X) >= FEWEST_COMPARED:
        linear = linear_accuracy(X, labels, folds, weights) if classes else linear_r2(X, Y, folds, weights)
    if curve is None:
        return StoppingChoice(_DEFAULT_EPOCHS, (np.nan, linear), False)
    scores, mean, constants = _scores_of_samples(curve, tensors[1], labels, weights, scores_of)
    losses = (1.0 - scores) * (1 if classes else Y.shape[1])
    better = better_model(X, labels if classes else Y, losses, folds, weights=weights)
    return StoppingChoice(curve.n_epochs, (mean, linear), curve.still_falling, noise, better, constants)


def _scores_of_samples(curve, targets, labels, weights, scores_of):
    """Held-out scores (n,), NaN for samples without, their mean, and constants to add to the outputs.

    The constants are those of the lowest held-out loss for classes with weights: a rare class of large weight is fitted
    more closely than new samples of it. They are relative to the outputs' root mean square, because the network on all
    samples may have left the origin less far.
    """
    held = torch.isfinite(curve.outputs).all(dim=1).cpu().numpy()
    w, constants = None if weights is None else weights[held], 0.0
    scores = scores_of(curve.outputs[None], targets)[0].cpu().numpy()
    # Every network has its own best epoch in these scores: their mean is shifted to the score of the common one.
    shift = curve.score - np.average(scores[held], weights=w)
    if labels is not None and w is not None and held.all():
        outputs = curve.outputs.cpu().numpy().astype(np.float64)
        added = added_constants(outputs, labels, w)
        scores = scores_of(curve.outputs[None] + curve.outputs.new_tensor(added), targets)[0].cpu().numpy()
        constants = added / (np.sqrt(np.mean(outputs**2)) or math.inf)
    scores = np.where(held, scores + shift, np.nan)
    return scores, float(np.average(scores[held], weights=w)), constants


def _half_squares(outputs, Y):
    """``||f(x) - y||^2 / 2``, (K, n)."""
    return 0.5 * ((outputs - Y) ** 2).sum(dim=-1)


def _variance_explained(outputs, Y):
    """One minus the mean squared error of a sample, (K, n): its mean is R^2 if Y has variance one."""
    return 1.0 - ((outputs - Y) ** 2).mean(dim=-1)


def _class_losses(outputs, Y):
    """Cross-entropy, (K, n)."""
    if Y.ndim == 2:
        return functional.softplus(outputs[..., 0]) - Y[:, 0] * outputs[..., 0]
    chosen = outputs.gather(-1, Y.expand(len(outputs), -1)[..., None])[..., 0]
    return torch.logsumexp(outputs, dim=-1) - chosen


def _correct(outputs, Y):
    """One for a correct class, else zero, (K, n)."""
    if Y.ndim == 2:
        return ((outputs[..., 0] > 0) == (Y[:, 0] > 0.5)).to(outputs.dtype)
    return (outputs.argmax(dim=-1) == Y).to(outputs.dtype)
