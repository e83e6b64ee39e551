"""The bias-free ReLU network of saddle-to-saddle training, its input standardization and its squared error."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from skident.budget.constants import INPUT_BOUND
from skident.linalg import column_units


class BiasFreeMLP(nn.Module):
    """``f(x) = relu(... relu(x W_1) ...) W_L`` without biases: linear layers with ReLU in between.

    Parameters
    ----------
    sizes : sequence of int
        ``(D, m_1, ..., m_L)``, inputs first, outputs last.
    init_scale : float, default=0.03
        Weights are Gaussian with standard deviation ``init_scale / sqrt(m)`` for the largest hidden width m, so that
        the largest singular value of a hidden layer is about twice this.
    start : list of L array-like of shape (m_{l-1}, m_l), default=None
        Initial weights, as `SaddleEscapeAnalyzer.initial_weights` gives them; None draws them.
    dtype : torch.dtype, default=torch.float64

    Attributes
    ----------
    layers : torch.nn.Sequential
        As `FeedforwardNetwork.from_torch` reads it.
    input_noise : torch.Tensor of shape (D,) or None
        Standard deviations of Gaussian noise on the inputs in training mode, initially None.

    Raises
    ------
    ValueError
        If the weights of `start` do not have these sizes.

    Notes
    -----
    Cost of a pass over n samples: ``O(n sum_l m_{l-1} m_l)``. Weights are drawn from torch's global stream.

    Examples
    --------
    >>> import torch
    >>> from skident.saddle import BiasFreeMLP
    >>> module = BiasFreeMLP((2, 3, 1), start=[torch.ones(2, 3), torch.ones(3, 1)])
    >>> print(module(torch.ones(1, 2, dtype=torch.float64)).item())
    6.0
    """

    def __init__(self, sizes, init_scale=0.03, start=None, dtype=torch.float64):
        layers = [nn.Linear(a, b, bias=False, dtype=dtype) for a, b in zip(sizes[:-1], sizes[1:])]
        super().__init__()
        self.input_noise = None
        self.layers = nn.Sequential(*[part for layer in layers[:-1] for part in (layer, nn.ReLU())], layers[-1])
        std = init_scale / max(sizes[1:-1], default=1) ** 0.5
        shapes = [(a, b) for a, b in zip(sizes[:-1], sizes[1:])]
        start = start if start is None else [_tensor(W, dtype) for W in start]
        if start is not None and [tuple(W.shape) for W in start] != shapes:
            raise ValueError(f"start has shapes {[tuple(W.shape) for W in start]}, but the layers need {shapes}.")
        with torch.no_grad():
            for k, layer in enumerate(layers):
                if start is None:
                    layer.weight.normal_(0.0, std)
                else:
                    layer.weight.copy_(start[k].T)

    def forward(self, X):
        """Outputs of the network.

        Parameters
        ----------
        X : torch.Tensor of shape (n, D)

        Returns
        -------
        torch.Tensor of shape (n, m_L)
        """
        if self.training and self.input_noise is not None:
            X = X + self.input_noise * torch.randn_like(X)
        return self.layers(X)

    @property
    def weights(self):
        """The layers' weights as tensors (m_{l-1}, m_l), views of the parameters."""
        return [part.weight.T for part in self.layers if isinstance(part, nn.Linear)]


def _tensor(W, dtype):
    """A tensor of an array or tensor; a copy, since torch warns of read-only arrays."""
    return W.detach().to(dtype) if isinstance(W, torch.Tensor) else torch.as_tensor(np.array(W), dtype=dtype)


class HalfSquaredError(nn.Module):
    """Half the mean over samples of ``||f(x) - y||^2``: its gradient at zero outputs is ``-y / n``.

    `reduction` is "mean", or "none" for the losses (n,) of the samples.
    """

    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, outputs, targets):
        """The loss of outputs and targets (n, k)."""
        losses = 0.5 * ((outputs - targets) ** 2).sum(dim=1)
        return losses if self.reduction == "none" else losses.mean()


@dataclass(frozen=True)
class InputScaling:
    """Standardization of columns; a column of ones replaces biases."""

    mean: np.ndarray  # (D,)
    scale: np.ndarray  # (D,)

    def __call__(self, X):
        """Standardized and clipped inputs (n, D + 1); the last column is ones."""
        Z = np.clip((X - self.mean) / self.scale, -INPUT_BOUND, INPUT_BOUND)
        return np.column_stack([Z, np.ones(len(X))])


def input_scaling(X, weights=None):
    """Means and standard deviations of the columns of X (n, D), whose rows have `weights` (n,)."""
    return InputScaling(*column_units(X, weights=weights))
