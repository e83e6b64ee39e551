"""Predictors that are combined by stacking: kernel ridge regression, and the middle of networks."""

import numpy as np
import torch
from scipy.optimize import nnls
from torch import nn

from skident.budget.constants import SCORE_ERRORS
from skident.linalg.kernel_ridge import ridge_path

_SCALES = (0.1, 0.3, 1.0, 3.0)  # of the squared distance, divided by the number of inputs
_RIDGES = np.logspace(-6, 2, 17)  # relative to the mean eigenvalue, one: half decades
_MAX_SAMPLES = 3000  # of kernel ridge regression: O(n^3) (budget)
_MAX_TUNING_SAMPLES = 600  # for width and ridge: eigenvalues take ten times as long (budget)
_CHUNK = 1000  # samples per kernel matrix, and per features of all networks (memory)
_LEAST_PART = 0.02  # of a part of the sum, below which it is left out: within the error of stacking


class KernelRidgePart(nn.Module):
    """Kernel ridge regression with a Gaussian kernel; width and ridge of least leave-one-out error.

    `left_out` (m,) are the leave-one-out residuals of its samples, the first m.
    """

    def __init__(self, samples):
        super().__init__()
        self.scale, ridge = _tuned(samples.first(_MAX_TUNING_SAMPLES))
        samples = samples.first(_MAX_SAMPLES)
        x, w, center = samples.x, samples.factors, _mean(samples)
        matrix = w * _kernel(x, x, self.scale) * w.T
        matrix.diagonal().add_(ridge)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(matrix))
        coef = inverse @ (w * (samples.y - center))
        self.left_out = (coef / inverse.diagonal()[:, None] / w)[:, 0].numpy()
        coef = w * coef
        for name, tensor in {"x": x, "coef": coef, "center": center}.items():
            self.register_buffer(name, tensor.clone())

    def forward(self, x):
        """Predictions (n, 1)."""
        return self.center + torch.cat([_kernel(part, self.x, self.scale) @ self.coef for part in x.split(_CHUNK)])


def _mean(samples):
    """Mean of the targets, weighted by the squares of the factors."""
    return (samples.factors**2 * samples.y).sum() / (samples.factors**2).sum()


def _tuned(samples):
    """Scale of the kernel and ridge of least leave-one-out error."""
    x, w, y = samples.x, samples.factors[:, 0].numpy(), (samples.y - _mean(samples)).numpy()
    paths = [ridge_path(_kernel(x, x, scale).numpy(), y, _RIDGES, roots=w)[0] for scale in _SCALES]
    i, j = np.unravel_index(np.argmin([np.sum(path**2, axis=(1, 2)) for path in paths]), (len(_SCALES), len(_RIDGES)))
    return _SCALES[i], float(_RIDGES[j])


def _kernel(a, b, scale):
    """``exp(-scale |a - b|^2 / d)``, (n, m)."""
    return torch.exp(-scale / a.shape[1] * torch.cdist(a, b) ** 2)


class MiddleOfNetworks(nn.Module):
    """Interquartile mean of the outputs of networks, in the units of the targets that `scaling` standardizes."""

    def __init__(self, net, params, scaling):
        super().__init__()
        self.net, self.unit, self.zero = net, float(scaling.scale), float(scaling.center)
        self.register_buffer("params", torch.as_tensor(params))  # (m, P)

    def forward(self, x):
        """The interquartile mean (n, 1)."""
        parts = [torch.as_tensor(self.net.middle_output(self.params.numpy(), part.numpy())) for part in x.split(_CHUNK)]
        return self.zero + self.unit * torch.cat(parts)[:, None]


class StackedPrediction(nn.Module):
    """Weighted sum of predictors."""

    def __init__(self, parts, weights):
        super().__init__()
        kept = [i for i, weight in enumerate(weights) if weight > _LEAST_PART]
        self.parts, self.weights = nn.ModuleList(parts[i] for i in kept), [float(weights[i]) for i in kept]

    def forward(self, x):
        """The sum (n, 1)."""
        total = torch.zeros_like(x[:, :1])
        for weight, part in zip(self.weights, self.parts):
            total = total + weight * part(x)
        return total

    predict = forward


def stacking_weights(predictions, targets, sample_weights=None):
    """Nonnegative weights of least squared error of ``predictions @ weights`` on held-out targets (n,), and that error.

    Targets are centered (Breiman 1996, "Stacked regressions"). Weights that sum to more than one are scaled to one:
    they would amplify predictions beyond those of any part. Unless the squared error falls by more than two
    standard errors, the first part is used alone: weights from few targets with heavy tails would be too small.
    `sample_weights` (n,) are those of the targets.
    """
    roots = np.ones(len(targets)) if sample_weights is None else np.sqrt(sample_weights)
    spread = np.sum((roots * (targets - np.average(targets, weights=sample_weights))) ** 2)
    predictions, targets = roots[:, None] * predictions, roots * targets
    weights = nnls(predictions, targets)[0]
    weights = weights / max(1.0, weights.sum())
    errors = (predictions @ weights - targets) ** 2
    gain = (predictions[:, 0] - targets) ** 2 - errors
    if gain.mean() < SCORE_ERRORS * gain.std() / np.sqrt(len(targets)):
        weights, errors = np.eye(predictions.shape[1])[0], errors + gain
    return weights, float(errors.sum() / spread)
