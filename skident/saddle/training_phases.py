"""Phases of training: saddle to saddle by gradient descent, or out of the first saddle and then Adam; with a record."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from skident.training.net import Callback, Training, fit_module

from .plateaus import detect_escapes

_N_SINGULAR_VALUES = 10  # recorded per layer: ranks of the first escapes are below
_SHORTEST_RECORD = 5  # points of a curve in which a saddle can be detected


class NormAdaptedStep(Callback):
    """Learning rates for training from small weights, set before each step.

    With ``||theta||`` the norm of all weights and ``a = ||theta|| / sqrt(L)``: until the first escape ``relative_step
    ||theta|| / ||grad||``, which changes the weights by a fixed fraction however flat the saddle is; then
    ``learning_rate a^(2-L)``, at which the localized loss looks the same at each norm, but at most the relative step,
    so that no step can make the weights explode. The first escape, at step `escape_step_`, is the time at which batches
    have a loss `escape_drop` below their own at zero outputs, averaged over the `window` steps of an epoch.
    """

    def __init__(self, relative_step, learning_rate, window=1, escape_drop=0.02):
        self.relative_step, self.learning_rate = relative_step, learning_rate
        self.window, self.escape_drop = window, escape_drop

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        """Reset: no step taken, no escape."""
        self.escape_step_, self.n_steps_, self.mean_drop_ = None, 0, 0.0

    def on_grad_computed(self, net, named_parameters, training=None, **kwargs):
        """Set the learning rate of the coming step."""
        parameters = [p for _, p in named_parameters]
        norms = torch._foreach_norm([p.detach() for p in parameters] + [p.grad for p in parameters])
        squares = torch.stack(norms).double().square().reshape(2, -1).sum(dim=1).tolist()
        norm, slope = math.sqrt(squares[0]), math.sqrt(squares[1])
        lr = self.relative_step * norm / slope if slope > 0 else 0.0
        if self.escape_step_ is not None and norm > 0:
            n_layers = len(parameters)
            lr = min(lr, self.learning_rate * (norm / math.sqrt(n_layers)) ** (2 - n_layers))
        for group in net.optimizer_.param_groups:
            group["lr"] = lr

    @torch.no_grad()
    def on_batch_end(self, net, batch=None, training=None, loss=None, y_pred=None, **kwargs):
        """Count the step, and detect the first escape from the loss and the outputs before the step."""
        self.n_steps_ += 1
        if self.escape_step_ is not None:
            return
        # Against one batch: batches differ from each other by more than the first escape changes.
        zero_loss = float(net.get_loss(torch.zeros_like(y_pred), batch[1]))
        drop = 1.0 - float(loss.detach()) / zero_loss if zero_loss > 0 else 0.0
        self.mean_drop_ += (drop - self.mean_drop_) / self.window
        if self.mean_drop_ > self.escape_drop:
            self.escape_step_ = self.n_steps_


class WeightRecorder(Callback):
    """Record the loss and each layer's largest singular values every `every` steps.

    `losses_` are means over the steps since the last record (first the loss of the first step), `norms_` is
    ``||theta|| / sqrt(L)``, `rates_` the learning rate of the last step, `singular_values_` by record and layer.
    """

    def __init__(self, every=10):
        self.every = every

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        """Start an empty record."""
        self.steps_, self.losses_, self.norms_, self.rates_, self.singular_values_ = [], [], [], [], []
        self.n_steps_, self._recent = 0, []

    @torch.no_grad()
    def on_batch_end(self, net, batch=None, training=None, loss=None, **kwargs):
        """Count the step, and record it if due."""
        self.n_steps_ += 1
        self._recent.append(float(loss.detach()))
        if self.n_steps_ > 1 and self.n_steps_ % self.every:
            return
        matrices = [p.detach() for p in net.module_.parameters() if p.ndim == 2]
        self.steps_.append(self.n_steps_)
        self.losses_.append(sum(self._recent) / len(self._recent))
        norms = torch.stack(torch._foreach_norm(matrices)).double()
        self.norms_.append(float(norms.square().mean().sqrt()))
        self.rates_.append(float(net.optimizer_.param_groups[0]["lr"]))
        self._recent = []
        if math.isfinite(self.norms_[-1]):
            values = [torch.linalg.svdvals(W)[:_N_SINGULAR_VALUES].double().cpu().numpy() for W in matrices]
        else:
            values = [np.full(min(_N_SINGULAR_VALUES, *W.shape), np.nan) for W in matrices]
        self.singular_values_.append(values)


@dataclass(frozen=True)
class TrainingRecord:
    """A trained network and its record."""

    net: Any  # skorch.NeuralNet of the last phase
    history: dict  # as the estimators' history_
    escape_step: int | None  # step of the first escape
    n_epochs: int
    loss: float  # at the end


@dataclass(frozen=True)
class TrainingRun:
    """A network, its data and loss, and how it is trained."""

    module: torch.nn.Module  # BiasFreeMLP, changed by training
    inputs: torch.Tensor  # (n, D)
    targets: Any  # a tensor (n, k) or (n,), or a pair of it and weights (n,)
    criterion: Any  # returns the loss, a torch module; a `WeightedLoss` for targets with weights
    training: Training  # options of gradient descent

    def to_the_end(self, callbacks, n_epochs, rate, noise=None):
        """Gradient descent out of the saddle at the origin, then Adam for `n_epochs` at a `FinishRate`.

        `noise` (D,) are standard deviations of Gaussian input noise, drawn anew at each step of Adam. `callbacks` begin
        with "step" and "recorder". Without Adam if `max_iter` epochs do not leave the saddle.
        """
        out = self._run(self.training, callbacks, _has_left_the_origin)
        escape, first = _step(out).escape_step_, _history(out)
        left = min(n_epochs, self.training.max_epochs - len(out.history))
        if escape is None or left < 1:
            return self._trained(out, first, escape, len(out.history))
        options = {"lr": rate.first, "half_rate_after": rate.half_after, "max_epochs": left}
        training = dataclasses.replace(self.training, optimizer="adam", **options)
        self.module.input_noise = None if noise is None else self.inputs.new_tensor(noise)
        net = self._run(training, [c for c in callbacks if not (isinstance(c, tuple) and c[0] == "step")])
        self.module.input_noise = None
        return self._trained(
            net, _joined(first, _history(net), _step(out).n_steps_), escape, len(out.history) + len(net.history)
        )

    def from_saddle_to_saddle(self, callbacks, n_escapes):
        """Gradient descent until `n_escapes` saddles are left; "all" trains for all epochs."""
        net = self._run(self.training, callbacks, None if n_escapes == "all" else _Escapes(n_escapes))
        return self._trained(net, _history(net), _step(net).escape_step_, len(net.history))

    def zero_loss(self):
        """The loss at zero outputs."""
        with torch.no_grad():
            return float(self.criterion()(torch.zeros_like(self.module(self.inputs)), self.targets))

    def _run(self, training, callbacks, epoch_end=None):
        """One training phase."""
        return fit_module(
            self.module, self.inputs, self.targets, self.criterion, training, callbacks=callbacks, epoch_end=epoch_end
        )

    def _trained(self, net, history, escape_step, n_epochs):
        """A `TrainingRecord` with the final loss."""
        with torch.no_grad():
            loss = float(net.criterion_(net.module_(self.inputs), self.targets))
        return TrainingRecord(net, history, escape_step, n_epochs, loss)


class _Escapes:
    """Whether the record contains this number of escapes, and a plateau after the last."""

    def __init__(self, number):
        self.number, self.n_records = number, 0

    def __call__(self, net):
        """Detect saddles again once five new records exist."""
        recorder = dict(net.callbacks_)["recorder"]
        if _step(net).escape_step_ is None or len(recorder.steps_) < self.n_records + _SHORTEST_RECORD:
            return False
        self.n_records = len(recorder.steps_)
        history = _history(net)
        return bool(np.isfinite(history["losses"]).all()) and len(saddles_of(history)) > self.number


def _has_left_the_origin(net):
    """Whether the first escape is under way."""
    return _step(net).escape_step_ is not None


def _step(net):
    """The callback that sets the learning rates."""
    return dict(net.callbacks_)["step"]


def _history(net):
    """The record as arrays."""
    recorder = dict(net.callbacks_)["recorder"]
    return {
        "steps": np.array(recorder.steps_),
        "losses": np.array(recorder.losses_),
        "norms": np.array(recorder.norms_),
        "learning_rates": np.array(recorder.rates_),
        "singular_values": [np.stack(layer) for layer in zip(*recorder.singular_values_)],
    }


def _joined(first, second, n_steps):
    """Two records concatenated; the steps of the second continue from `n_steps`."""
    new = second["steps"] + n_steps
    kept = first["steps"] < new[0]
    joined = {key: np.concatenate([first[key][kept], second[key]]) for key in ("losses", "norms", "learning_rates")}
    pairs = zip(first["singular_values"], second["singular_values"])
    return {
        "steps": np.concatenate([first["steps"][kept], new]),
        **joined,
        "singular_values": [np.concatenate([a[kept], b]) for a, b in pairs],
    }


def saddles_of(history):
    """Plateaus and escapes of a record; none if it is too short."""
    if len(history["steps"]) < _SHORTEST_RECORD:
        return []
    return detect_escapes(history["steps"], history["losses"], history["singular_values"])
