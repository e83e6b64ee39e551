"""Algorithm 1 of Allen-Zhu and Li (2020): layers are opened and distilled stage by stage as the error falls."""

import dataclasses
import math

import torch

from skident.budget.constants import GRADIENT_CLIP
from skident.training.net import fit_module

from .distillation import initial_distill, layer_rules
from .distilled_net import DistilledQuadraticNet, PenalizedLogistic, PenalizedSquares, SharpenedNet
from .modules import TruncatedSquare
from .problem import Distillation, Fit

_STALL = 15  # epochs without a relevant decrease that count as a stall
_RELEVANT = 0.98  # factor by which the objective must fall below its lowest value
_STAGE_RATE = 0.3  # learning rate, relative to the first, below which a stall ends a stage
_LAST_RATE = 1e-3  # learning rate, relative to the first, at which training ends
_MAX_SHARPNESS = 16.0  # v of Theorem 4, from 1 by factors of 4; as for L-BFGS
_SHARPER = 4.0  # factor of v
_INITIAL_SIZE = 0.1  # of W_l, times 1 / sqrt(inputs): small, so that a new layer hardly changes the outputs
_ZERO_ERROR = 1e-12  # target error at which halving ends
# Objective relative to that of zero outputs: ten times what Algorithm 1 leaves of planted targets.
_LEFT_BY_ONE_SIGN = 1e-3
_SIGNED_GAIN = 0.5  # ratio of objectives below which a signed sum is preferred


def run_algorithm1(problem, options, training, callbacks=None):
    """Run Algorithm 1 on the squared error or, with x_0, on the cross-entropy of Theorem 4; one output.

    Below Thres_{l,open} (or when the objective stalls with all open layers distilled) W_l becomes trainable; below
    Thres_{l,distill} (or at a stall) K_l is initialized from the leading singular vectors and trained too. The target
    error epsilon_0 halves, with lambda_6 quartered, whenever the objective falls below ``epsilon_0^2 / 4``. A stall
    with nothing left to open or distill halves the learning rate; for Theorem 4 it first multiplies v by four, up to
    16.

    A second run, with half of the units subtracted (footnote 7), follows if the first one does not explain y. It must
    have half its objective, since it would fit noise more closely.
    """
    first = _Run(problem, options, training).finished(callbacks)
    if not first.objective > _LEFT_BY_ONE_SIGN * first.zero_objective:
        return first.result()
    second = _Run(problem, options, training, signed=True).finished(callbacks)
    return (second if second.objective < _SIGNED_GAIN * first.objective else first).result()


class _Run:
    """State of one run of Algorithm 1, updated after every epoch."""

    def __init__(self, problem, options, training, signed=False):
        self.problem, self.options, self.training = problem, options, training
        self.squares = squares = problem.x0 is None
        self.y, criterion = problem.with_targets(PenalizedSquares if squares else PenalizedLogistic)
        self.make_criterion, self.criterion = criterion, criterion()
        self.x = problem.x if squares else torch.cat([problem.x0, problem.x], dim=1)
        self.net = _new_net(problem, options, signed)
        self.module = self.net if squares else SharpenedNet(self.net)
        self.rules = layer_rules(problem.architecture.alphas, problem.x.shape[1], options)
        self.zero_objective = self.objective = float(problem.mean(problem.y**2)) if squares else math.log(2.0)
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
        """Whether epochs are left and the target error is not reached."""
        slowest = self.rate <= _LAST_RATE * self.training.lr
        open_end = self.target > self.options.epsilon and math.isfinite(self.objective)
        return self.epochs_left > 0 and open_end and not slowest and not self.polished

    def finished(self, callbacks):
        """This run, trained to its end."""
        self.advance()
        while self.goes_on:
            self.train(self.problem.seed(), callbacks)
        return self

    def train(self, seed, callbacks):
        """Train until `end_epoch` requests a change of parameters or learning rate."""
        polishing = self.polishing
        self.skorch_net = fit_module(
            self.module,
            self.x,
            self.y,
            self.make_criterion,
            dataclasses.replace(self.training, seed=seed, **self.own_training()),
            callbacks=callbacks,
            epoch_end=lambda _: self.end_epoch(),
        )
        self.polished = polishing

    def own_training(self):
        """Settings of `Training` that change from stage to stage."""
        if self.polishing:
            epochs = min(self.options.polish, self.epochs_left)
            return {"optimizer": "lbfgs", "lr": 1.0, "batch_size": -1, "max_epochs": epochs}
        noise = {"noise": self.options.noise * self.rate, "noisy": _wide_weights, "clip": GRADIENT_CLIP}
        return {"optimizer": self.options.optimizer, "lr": self.rate, "max_epochs": self.epochs_left, **noise}

    def note(self, event, **more):
        """Append an event to the stage history."""
        self.stages.append({"epoch": self.epoch, "objective": self.objective, "event": event, **more})

    def end_epoch(self):
        """Evaluate the objective; whether training must stop: at the end, or to change parameters or rates."""
        self.epoch += 1
        with torch.no_grad():
            self.objective = float(self.criterion(self.module(self.x), self.y))
        self.history.append(self.objective)
        if not math.isfinite(self.objective):
            return True
        if self.objective < _RELEVANT * self.lowest:
            self.lowest, self.quiet = self.objective, 0
        else:
            self.quiet += 1
        self.halve()
        return self.target <= self.options.epsilon or self.advance() or self.slow_down()

    def halve(self):
        """Line 18: halve epsilon_0 below ``epsilon_0^2 / 4`` (cross-entropy: below ``epsilon_0 / 2``)."""
        while self.objective < (self.target**2 / 4 if self.squares else self.target / 2) and self.target > _ZERO_ERROR:
            self.target /= 2
            self.net.weights6 = [value / 4 for value in self.net.weights6]
            self.note("target error halved", target=self.target)

    def advance(self):
        """Lines 5 to 11: open or distill the next layer if its threshold is met or the stage has stalled."""
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
            if not (stalled or self.objective <= self.rules[layer].distills):
                return False
            self.distill(layer)
        else:
            return False
        self.quiet, self.lowest, self.rate = 0, math.inf, self.training.lr
        return True

    def open(self, layer):
        """Make W_l trainable, with its penalty lambda_6."""
        net = self.net
        net.open_layer(_INITIAL_SIZE / math.sqrt(sum(net.sizes(layer))))
        width = max([1, *[net.widths[j - 2] for j in net.connections[layer - 2] if j >= 2]])
        net.weights6[layer - 2] = self.target**2 / (width * (self.n_layers + 1) * self.options.kappa) ** 8
        self.note(f"layer {layer} opened")

    def distill(self, layer):
        """Initialize K_l from W_l, and set lambda_3, lambda_4 and lambda_5."""
        net = self.net
        self._set_distilled(layer)
        for weights, value in zip((net.weights3, net.weights4, net.weights5), self.rules[layer].penalties):
            weights[layer - 2] = value
        self.note(f"layer {layer} distilled", width=net.widths[-1])

    def _set_distilled(self, layer):
        """Initialize K_l from the leading singular vectors of W_l."""
        M, options = self.net.form(layer).detach(), self.options
        width = None if options.determine_widths else self.problem.architecture.widths[layer - 2]
        K, signs, spectrum = initial_distill(M, self.net.sizes(layer)[-1], width=width, kappa=options.kappa)
        self.spectrum[layer] = spectrum[: self.net.n_units]
        self.net.distill(layer, K, signs)

    def slow_down(self):
        """At a stall with nothing left to open: increase v or halve the rate; whether either was done."""
        if self.quiet < _STALL:
            return False
        self.quiet = 0
        if self.polishing:
            return True
        late = self.rate < _STAGE_RATE * self.training.lr and len(self.net.K) == self.n_layers
        if isinstance(self.module, SharpenedNet) and self.module.sharpness < _MAX_SHARPNESS:
            self.module.sharpness *= _SHARPER
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
        """The `Fit`; layers that were opened but not yet distilled are distilled as they are."""
        self.note("end", target=self.target)
        if math.isfinite(self.objective):
            for layer in range(len(self.net.K) + 2, len(self.net.W) + 2):
                self._set_distilled(layer)
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


def _new_net(problem, options, signed):
    """The learner before any layer is opened."""
    net = DistilledQuadraticNet(
        problem.x.shape[1],
        problem.architecture.connections,
        alphas=problem.architecture.alphas,
        n_units=options.n_units,
        signed=signed,
        truncation=options.truncation,
        moments=problem.moments,
        dtype=problem.x.dtype,
        generator=problem.generator(),
    )
    return net.to(problem.x.device)


def _wide_weights(module):
    """The W_l, to which gradient noise is added."""
    return getattr(module, "net", module).W
