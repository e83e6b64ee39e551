"""Predictors that are combined by stacking: kernel ridge regression, and the mean of networks."""

from __future__ import annotations

import copy

import numpy as np
import torch
from scipy.optimize import nnls
from torch import nn

__all__ = ["KernelRidgePart", "MeanOfNetworks", "StackedPrediction", "stacking_weights"]

_SCALES = (0.1, 0.3, 1.0, 3.0)  # of the squared distance, divided by the number of inputs
_RIDGES = np.logspace(-6, 2, 17)  # relative to the mean eigenvalue: half decades
_MAX_SAMPLES = 3000  # of kernel ridge regression: eigenvalues cost O(n^3) (budget)
_CHUNK = 1000  # samples per kernel matrix (memory)
_LEAST_WEIGHT = 0.02  # of a part of the sum, below which it is left out: within the error of stacking


class KernelRidgePart(nn.Module):
    """Kernel ridge regression with a Gaussian kernel; width and ridge of least leave-one-out error."""

    def __init__(self, x, y):
        super().__init__()
        x, y = x[:_MAX_SAMPLES], y[:_MAX_SAMPLES]
        best, center = np.inf, y.mean()
        for scale in _SCALES:
            values, vectors = torch.linalg.eigh(_kernel(x, x, scale))
            values, rotated = values.clamp(min=0.0), vectors.T @ (y - center)
            for ridge in _RIDGES * float(values.mean()):
                inverse = 1.0 / (values + ridge)
                coef = vectors @ (inverse[:, None] * rotated)
                left_out = coef[:, 0] / ((vectors**2) @ inverse)
                error = float((left_out**2).mean())
                if error < best:
                    best, kept = error, (coef, scale)
        coef, self.scale = kept
        for name, tensor in {"x": x, "coef": coef, "center": center}.items():
            self.register_buffer(name, tensor.clone())

    def forward(self, x):
        """Predictions (n, 1)."""
        return self.center + torch.cat([_kernel(part, self.x, self.scale) @ self.coef for part in x.split(_CHUNK)])


def _kernel(a, b, scale):
    """``exp(-scale |a - b|^2 / d)``, (n, m)."""
    return torch.exp(-scale / a.shape[1] * torch.cdist(a, b) ** 2)


class MeanOfNetworks(nn.Module):
    """Mean of the outputs of networks, in the units of the targets that `scaling` standardizes."""

    def __init__(self, networks, scaling):
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.unit, self.zero = float(scaling.scale), float(scaling.center)

    @classmethod
    def of_chains(cls, chains, scaling):
        """From pairs of parameter vectors (m, P) and their chain."""
        networks = []
        for vectors, chain in chains:
            for vector in vectors:
                chain.assign(vector)
                networks.append(copy.deepcopy(chain.module))
        return cls(networks, scaling)

    def forward(self, x):
        """The mean (n, 1)."""
        return self.zero + self.unit * torch.stack([network(x) for network in self.networks]).mean(dim=0)


class StackedPrediction(nn.Module):
    """Weighted sum of predictors."""

    def __init__(self, parts, weights):
        super().__init__()
        kept = [i for i, weight in enumerate(weights) if weight > _LEAST_WEIGHT]
        self.parts, self.weights = nn.ModuleList(parts[i] for i in kept), [float(weights[i]) for i in kept]

    def forward(self, x):
        """The sum (n, 1)."""
        total = torch.zeros_like(x[:, :1])
        for weight, part in zip(self.weights, self.parts):
            total = total + weight * part(x)
        return total

    predict = forward


def stacking_weights(predictions, targets):
    """Nonnegative weights of least squared error of ``predictions @ weights`` on held-out targets (n,), and that error.

    Targets are centered (Breiman 1996, "Stacked regressions"). Weights that sum to more than one are scaled to one:
    they would amplify predictions beyond those of any part.
    """
    weights = nnls(predictions, targets)[0]
    weights = weights / max(1.0, weights.sum())
    error = float(np.sum((predictions @ weights - targets) ** 2) / np.sum((targets - targets.mean()) ** 2))
    return weights, error
