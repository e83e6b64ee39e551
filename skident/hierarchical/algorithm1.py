"""Algorithm 1 of Allen-Zhu and Li (2020): layers opened and distilled stage by stage while the target error halves."""

from __future__ import annotations

import dataclasses
import math

import torch

from skident.training.net import fit_module

from .distillation import initial_distill, layer_rules
from .distilled_net import DistilledQuadraticNet, PenalisedLogistic, PenalisedSquares, SharpenedNet
from .problem import Distillation, Fit
from .squares import TruncatedSquare

__all__ = ["run_algorithm1"]

_STALL = 15  # epochs without a decrease by 2 % that count as a stall
_STAGE_RATE = 0.3  # of the first rate, at which a stall ends a stage
_LAST_RATE = 1e-3  # of the first rate, at which a stall ends the training
_SHARPEST = 16.0


def run_algorithm1(problem, options, training, callbacks=None):
    """Algorithm 1 whole, on squares or, with x_0, on the cross-entropy of Theorem 4.

    Stages follow the objective: below Thres_{l,open} (or where it stalls with all open layers distilled) W_l becomes
    trainable; below Thres_{l,distil} (or where it stalls) K_l starts from the leading singular vectors and joins. The
    target error epsilon_0 halves, with lambda_6 quartered, whenever the objective falls below ``epsilon_0^2 / 4``. A
    stall with nothing left to open or distil halves the rate; for Theorem 4 it first multiplies v by four, up to 16.

    Parameters
    ----------
    problem : Problem
        One output.
    options : Algorithm1Options
    training : Training
        First rate, epochs in all, batch size, device and verbosity.
    callbacks : list of skorch callbacks, default=None

    Returns
    -------
    Fit
        ``module`` is the `DistilledQuadraticNet` with plain squares, ``distillation`` its spectrum and stages. Not
        finite if the objective of the last epoch is not.

    Raises
    ------
    ValueError
        If the device cannot be used here.
    """
    run = _Run(problem, options, training)
    run.advance()
    while run.goes_on:
        run.train(problem.seed(), callbacks)
    return run.result()


class _Run:
    """Where Algorithm 1 stands, and what happens after an epoch."""

    def __init__(self, problem, options, training):
        self.options, self.training = options, training
        self.y, squares = problem.y, problem.x0 is None
        self.x = problem.x if squares else torch.cat([problem.x0, problem.x], dim=1)
        self.net = _new_net(problem, options)
        self.module = self.net if squares else SharpenedNet(self.net)
        self.criterion = PenalisedSquares() if squares else PenalisedLogistic()
        self.rules = layer_rules(problem.architecture.alphas, problem.x.shape[1], options)
        self.objective = float((problem.y**2).mean()) if squares else math.log(2.0)
        self.target = 2.0 * math.sqrt(self.objective) if squares else 2.0 * self.objective  # epsilon_0
        self.rate, self.lowest, self.quiet, self.epoch = training.lr, math.inf, 0, 0
        self.history, self.stages, self.spectrum = [], [], {}
        self.polishing, self.polished, self.skorch_net = False, False, None

    @property
    def n_layers(self):
        return len(self.net.connections)

    @property
    def epochs_left(self):
        return self.training.max_epochs - self.epoch

    @property
    def goes_on(self):
        """Whether anything is left to train, and to train with."""
        slowest = self.rate <= _LAST_RATE * self.training.lr
        open_end = self.target > self.options.epsilon and math.isfinite(self.objective)
        return self.epochs_left > 0 and open_end and not slowest and not self.polished

    def train(self, seed, callbacks):
        """The innermost loop, until something changes."""
        polishing = self.polishing
        self.skorch_net = fit_module(
            self.module,
            self.x.cpu().numpy(),
            self.y.cpu().numpy(),
            type(self.criterion),
            dataclasses.replace(self.training, seed=seed, **self.own_training()),
            callbacks=callbacks,
            epoch_end=lambda _: self.end_epoch(),
        )
        self.polished = polishing

    def own_training(self):
        """What of the training changes from stage to stage."""
        if self.polishing:
            epochs = min(self.options.polish, self.epochs_left)
            return {"optimizer": "lbfgs", "lr": 1.0, "batch_size": -1, "max_epochs": epochs}
        noise = {"noise": self.options.noise * self.rate, "noisy": _wide_weights, "clip": 5.0}
        return {"optimizer": self.options.optimizer, "lr": self.rate, "max_epochs": self.epochs_left, **noise}

    def note(self, event, **more):
        """Keep what happened."""
        self.stages.append({"epoch": self.epoch, "objective": self.objective, "event": event, **more})

    def end_epoch(self):
        """Measure, halve, and say whether the training ends: with the run, or for parameters or rates to change."""
        self.epoch += 1
        with torch.no_grad():
            self.objective = float(self.criterion(self.module(self.x), self.y))
        self.history.append(self.objective)
        if not math.isfinite(self.objective):
            return True
        if self.objective < 0.98 * self.lowest:
            self.lowest, self.quiet = self.objective, 0
        else:
            self.quiet += 1
        self.halve()
        return self.target <= self.options.epsilon or self.advance() or self.slow_down()

    def halve(self):
        """Line 18: epsilon_0 halves below ``epsilon_0^2 / 4`` (cross-entropy: below ``epsilon_0 / 2``)."""
        squares = isinstance(self.criterion, PenalisedSquares)
        while self.objective < (self.target**2 / 4 if squares else self.target / 2) and self.target > 1e-12:
            self.target /= 2
            self.net.weights6 = [value / 4 for value in self.net.weights6]
            self.note("target error halved", target=self.target)

    def advance(self):
        """Lines 5 to 11: open or distil the next layer where its threshold is met, or the stage has stalled."""
        n_open, n_distilled, stalled = len(self.net.W), len(self.net.K), self.quiet >= _STALL
        if stalled and self.rate > _STAGE_RATE * self.training.lr and n_open > 0:
            return False  # a slower rate first
        if n_open == n_distilled < self.n_layers:
            layer = n_open + 2
            if not (layer == 2 or stalled or self.objective <= self.rules[layer].opens):
                return False
            self.open(layer)
        elif n_distilled < n_open:
            layer = n_distilled + 2
            if not (stalled or self.objective <= self.rules[layer].distils):
                return False
            self.distil(layer)
        else:
            return False
        self.quiet, self.lowest, self.rate = 0, math.inf, self.training.lr
        return True

    def open(self, layer):
        """W_l becomes trainable, with lambda_6."""
        net = self.net
        net.open_layer(0.1 / math.sqrt(sum(net.sizes(layer))))
        width = max([1, *[net.widths[j - 2] for j in net.connections[layer - 2] if j >= 2]])
        net.weights6[layer - 2] = self.target**2 / (width * (self.n_layers + 1) * self.options.kappa) ** 8
        self.note(f"layer {layer} opened")

    def distil(self, layer):
        """K_l joins, with lambda_3, lambda_4 and lambda_5."""
        net = self.net
        self.distil_quietly(layer)
        for weights, value in zip((net.weights3, net.weights4, net.weights5), self.rules[layer].penalties):
            weights[layer - 2] = value
        self.note(f"layer {layer} distilled", width=net.widths[-1])

    def distil_quietly(self, layer):
        """K_l from the leading singular vectors."""
        W = self.net.W[layer - 2].detach()
        K, self.spectrum[layer] = initial_distill(W, self.net.previous(layer), self.options.kappa)
        self.net.distill(layer, K)

    def slow_down(self):
        """Whether a stall with nothing left to open has sharpened v or halved the rate."""
        if self.quiet < _STALL:
            return False
        self.quiet = 0
        if self.polishing:
            return True
        late = self.rate < _STAGE_RATE * self.training.lr and len(self.net.K) == self.n_layers
        if isinstance(self.module, SharpenedNet) and self.module.sharpness < _SHARPEST:
            self.module.sharpness *= 4.0
            self.lowest = math.inf
            self.note("sharpened", sharpness=self.module.sharpness)
        elif self.options.polish and late:
            self.polishing, self.lowest = True, math.inf
            self.note("polished by L-BFGS")
        else:
            self.rate /= 2
            self.note("rate halved", rate=self.rate)
        return True

    def result(self):
        """What Algorithm 1 gives: layers whose distillation the epochs did not reach are distilled as they are."""
        self.note("end", target=self.target)
        if math.isfinite(self.objective):
            for layer in range(len(self.net.K) + 2, len(self.net.W) + 2):
                self.distil_quietly(layer)
        self.net.truncated, self.net.generator = TruncatedSquare(), None
        return Fit(
            self.net,
            None,
            [self.objective],
            self.history,
            self.epochs_left > 0,
            sharpness=getattr(self.module, "sharpness", None),
            skorch_net=self.skorch_net,
            distillation=Distillation(self.spectrum, self.stages),
        )


def _new_net(problem, options):
    """The learner without layers."""
    net = DistilledQuadraticNet(
        problem.x.shape[1],
        problem.architecture.connections,
        alphas=problem.architecture.alphas,
        n_units=options.n_units,
        truncation=options.truncation,
        moments=problem.moments,
        dtype=problem.x.dtype,
        generator=problem.generator(),
    )
    return net.to(problem.x.device)


def _wide_weights(module):
    """The W_l, which noise is added to."""
    return getattr(module, "net", module).W
