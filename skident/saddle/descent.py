"""Training of a network: from saddle to saddle by gradient descent, or out of the first one and to the end by Adam."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from skident.training.net import Training, fit_module

from .plateaus import detect_escapes

__all__ = ["Descent", "Trained", "saddles_of"]

_SHORTEST_RECORD = 5  # points of a curve in which a saddle can be seen


@dataclass(frozen=True)
class Trained:
    """A trained network and its record.

    Attributes
    ----------
    net : skorch.NeuralNet
        Of the last phase.
    history : dict
        As the estimators' ``history_``.
    escape_step : int or None
    n_epochs : int
    loss : float
        At the end.
    """

    net: Any
    history: dict
    escape_step: int | None
    n_epochs: int
    loss: float


@dataclass(frozen=True)
class Descent:
    """What is trained, on what, how.

    Attributes
    ----------
    module : BiasFreeMLP
        Changed by training.
    inputs : Tensor (n, D)
    targets : Tensor (n, k) or (n,)
    criterion : type
        Of the loss, a torch module.
    training : Training
        Of gradient descent.
    """

    module: torch.nn.Module
    inputs: torch.Tensor
    targets: torch.Tensor
    criterion: type
    training: Training

    def to_the_end(self, callbacks, n_epochs, rate, noise=None):
        """Gradient descent out of the saddle at the origin, then Adam.

        Parameters
        ----------
        callbacks : list
            Named "step" and "recorder" first, then others.
        n_epochs : int
            Of Adam.
        rate : float
            Of Adam.
        noise : sequence of float of length D, default=None
            Standard deviations of Gaussian noise on the inputs, drawn anew every step of Adam.

        Returns
        -------
        Trained
            Without Adam where `max_iter` epochs did not lead out of the saddle.
        """
        out = self._run(self.training, callbacks, _has_left_the_origin)
        escape, first = _step(out).escape_step_, _history(out)
        left = min(n_epochs, self.training.max_epochs - len(out.history))
        if escape is None or left < 1:
            return self._trained(out, first, escape, len(out.history))
        training = dataclasses.replace(self.training, optimizer="adam", lr=rate, max_epochs=left)
        self.module.input_noise = None if noise is None else self.inputs.new_tensor(noise)
        net = self._run(training, [c for c in callbacks if not (isinstance(c, tuple) and c[0] == "step")])
        self.module.input_noise = None
        return self._trained(
            net, _joined(first, _history(net), _step(out).n_steps_), escape, len(out.history) + len(net.history)
        )

    def from_saddle_to_saddle(self, callbacks, n_escapes):
        """Gradient descent until so many saddles have been left.

        Parameters
        ----------
        callbacks : list
        n_escapes : int or "all"

        Returns
        -------
        Trained
        """
        net = self._run(self.training, callbacks, None if n_escapes == "all" else _Escapes(n_escapes))
        return self._trained(net, _history(net), _step(net).escape_step_, len(net.history))

    def zero_loss(self):
        """The loss of a network that answers zero.

        Returns
        -------
        float
        """
        with torch.no_grad():
            return float(self.criterion()(torch.zeros_like(self.module(self.inputs)), self.targets))

    def _run(self, training, callbacks, epoch_end=None):
        """One phase."""
        return fit_module(
            self.module, self.inputs, self.targets, self.criterion, training, callbacks=callbacks, epoch_end=epoch_end
        )

    def _trained(self, net, history, escape_step, n_epochs):
        """With the loss that the network ended at."""
        with torch.no_grad():
            loss = float(net.criterion_(net.module_(self.inputs), self.targets))
        return Trained(net, history, escape_step, n_epochs, loss)


class _Escapes:
    """Whether the record shows so many escapes, and a plateau behind the last."""

    def __init__(self, number):
        self.number, self.n_records = number, 0

    def __call__(self, net):
        """Look where five records are new since the last look."""
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
    """The callback that set its steps."""
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
    """One record after the other, whose steps count on from `n_steps`."""
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
    """Plateaus and escapes of a record; none where it is too short to have any.

    Parameters
    ----------
    history : dict

    Returns
    -------
    list of Saddle
    """
    if len(history["steps"]) < _SHORTEST_RECORD:
        return []
    return detect_escapes(history["steps"], history["losses"], history["singular_values"])
