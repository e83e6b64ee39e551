"""What happens in every step of training from saddle to saddle: the step's length, and the record."""

from __future__ import annotations

import math

import numpy as np
import torch

from skident.training.net import Callback

__all__ = ["NormAdaptedStep", "WeightRecorder"]


class NormAdaptedStep(Callback):
    """Learning rates for training from small weights, set before every step.

    With ``||theta||`` the norm of all weights and ``a = ||theta|| / sqrt(L)``: until the first escape
    ``relative_step ||theta|| / ||grad||``, which moves by a fixed share of the weights however flat the saddle is;
    afterwards ``learning_rate a^(2-L)``, with which the localised loss looks the same at every norm, but never more
    than the relative step, so that no step can blow the weights up.

    Parameters
    ----------
    relative_step, learning_rate : float
    window : int, default=1
        Steps to average over, those of an epoch.
    escape_drop : float, default=0.02
        The first escape is under way once batches have, on average, a loss this share below their own at outputs zero.

    Attributes
    ----------
    escape_step_ : int or None
        Steps until then.
    """

    def __init__(self, relative_step, learning_rate, window=1, escape_drop=0.02):
        self.relative_step, self.learning_rate = relative_step, learning_rate
        self.window, self.escape_drop = window, escape_drop

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        """No step taken yet, no escape seen.

        Parameters
        ----------
        net, X, y, **kwargs
            As skorch passes them; not used.
        """
        self.escape_step_, self.n_steps_, self.mean_drop_ = None, 0, 0.0

    def on_grad_computed(self, net, named_parameters, training=None, **kwargs):
        """Set the learning rate of the step that comes.

        Parameters
        ----------
        net : skorch.NeuralNet
        named_parameters : iterable of (str, torch.nn.Parameter)
            With their gradients.
        training, **kwargs
            As skorch passes them; not used.
        """
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
        """Count the step, and note when the first escape is under way.

        Parameters
        ----------
        net : skorch.NeuralNet
        batch : tuple of two torch.Tensor
            Inputs and targets.
        loss : torch.Tensor
            Of the batch before the step.
        y_pred : torch.Tensor of shape (n, k)
            Outputs before the step.
        training, **kwargs
            As skorch passes them; not used.
        """
        self.n_steps_ += 1
        if self.escape_step_ is not None:
            return
        # Against the same batch: batches differ from each other by more than the first escape changes.
        zero_loss = float(net.get_loss(torch.zeros_like(y_pred), batch[1]))
        drop = 1.0 - float(loss.detach()) / zero_loss if zero_loss > 0 else 0.0
        self.mean_drop_ += (drop - self.mean_drop_) / self.window
        if self.mean_drop_ > self.escape_drop:
            self.escape_step_ = self.n_steps_


class WeightRecorder(Callback):
    """Records the loss and every layer's largest singular values every so many steps.

    Parameters
    ----------
    every : int, default=10
        Steps.
    n_singular_values : int, default=10
        Of every weight matrix, or as many as it has.

    Attributes
    ----------
    steps_ : list of int
        Steps taken when it was recorded.
    losses_ : list of float
        Mean over the steps since the last record; first the loss of the first step.
    norms_, rates_ : list of float
        ``||theta|| / sqrt(L)``, and the learning rate of the last step.
    singular_values_ : list of list of ndarray
        Record by record, layer by layer.
    """

    def __init__(self, every=10, n_singular_values=10):
        self.every, self.n_singular_values = every, n_singular_values

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        """An empty record.

        Parameters
        ----------
        net, X, y, **kwargs
            As skorch passes them; not used.
        """
        self.steps_, self.losses_, self.norms_, self.rates_, self.singular_values_ = [], [], [], [], []
        self.n_steps_, self._recent = 0, []

    @torch.no_grad()
    def on_batch_end(self, net, batch=None, training=None, loss=None, **kwargs):
        """Count the step, and record it where its turn is.

        Parameters
        ----------
        net : skorch.NeuralNet
        loss : torch.Tensor
            Of the batch before the step.
        batch, training, **kwargs
            As skorch passes them; not used.
        """
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
            values = [torch.linalg.svdvals(W)[: self.n_singular_values].double().cpu().numpy() for W in matrices]
        else:
            values = [np.full(min(self.n_singular_values, *W.shape), np.nan) for W in matrices]
        self.singular_values_.append(values)
