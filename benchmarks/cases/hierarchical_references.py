"""What fits to noisy hierarchical targets can attain: least squares and posterior means initialized at the truth."""

from __future__ import annotations

import numpy as np
import torch

from skident.hierarchical.architecture import DenseNetArchitecture
from skident.hierarchical.array_networks import ArrayNetworks
from skident.hierarchical.posterior import PosteriorChains
from skident.hierarchical.problem import Problem
from skident.hierarchical.scaling import input_scaling, robust_scaling, target_scaling
from skident.hierarchical.solvers import WeightedSamples, fit_least_squares, set_trainable

CHAINS, ITERATIONS, MANY = 6, (240, 600), 1000  # the iterations for more than MANY samples, or fewer
PRECISION_OF_BIASES = 1e3  # in robust units: the target has none


class _KnownPriorChains(PosteriorChains):
    """Chains whose noise variance and precisions (P,) are known, not drawn."""

    def __init__(self, *arguments, noise, precision):
        self._known = noise, precision
        super().__init__(*arguments)

    def _draw(self):
        noise, precision = self._known
        self.noise = np.full(len(self.params), noise)
        self.precision = np.repeat(precision[None], len(self.params), axis=0)


def r2_from_the_truth(target, X, y, noise, held_out, held_out_y):
    """R^2 on noise-free targets of two fits that are initialized at the truth and know its widths.

    Returns those of least squares and of the posterior mean that also knows the noise variance and the variance of the
    weights of each connection. For this prior, no estimator has a lower expected squared error than the posterior mean.
    """
    problem, module, scaling = _posed(target, X, y)
    samples = WeightedSamples(problem.x, scaling.standardized(problem.y))
    unit = float(problem.target_scaling.scale * scaling.scale)
    net = ArrayNetworks(module, problem.x)
    inputs = net.inputs_of(problem.input_scaling.inputs(held_out))

    def r2(params):
        outputs = sum(net.features(one[None], inputs)[2][0, 0] for one in params) / len(params)
        outputs = scaling.center + scaling.scale * outputs
        outputs = float(np.ravel(problem.target_scaling.center)[0]) + problem.target_scaling.scale * outputs
        return float(1.0 - np.mean((outputs - held_out_y) ** 2) / held_out_y.var())

    truth = net.params_of(module)
    known = {"noise": (noise / unit) ** 2, "precision": _precisions(net, truth)}
    starts, used = np.repeat(truth[None], CHAINS, axis=0), np.ones((CHAINS, len(X)))
    chains = _KnownPriorChains(net, samples.y[:, 0].numpy(), used, starts, np.random.RandomState(0), **known)
    posterior = r2(chains.run(ITERATIONS[len(X) <= MANY]).reshape(-1, net.size))
    set_trainable(module)
    fit_least_squares(module, samples, max_iter=100, patience=20)
    return r2(net.params_of(module)[None]), posterior


def _posed(target, X, y):
    """The standardized problem, the true module in robust units, and the scaling of these."""
    scaling, inputs = target_scaling(y[:, None]), input_scaling(X)
    architecture = DenseNetArchitecture(X.shape[1], target.widths, target.connections, target.alphas)
    x, standardized = torch.as_tensor(inputs.inputs(X)), torch.as_tensor(scaling.standardized(y[:, None]))
    problem = Problem(x, standardized, architecture, inputs, scaling, np.random.RandomState(0))
    module = problem.build("sum")
    moments = module.moments.numpy()
    if inputs.center.any():
        raise ValueError("the mean of an input differs from zero significantly: draw other samples")
    with torch.no_grad():
        for W, b, weights, J in zip(module.weights, module.biases, target.weights, module.connections):
            parts = {j: weights[j] * (inputs.scale ** (j + 1) if j < 2 else 1.0) for j in J}
            W.copy_(torch.as_tensor(np.hstack([parts[j] for j in J])))
            if 1 in J:
                b.copy_(torch.as_tensor(weights[1] @ (inputs.scale**2 * moments - 1.0)))
        module.offset.zero_()
    scaling.to_standardized_(module)
    robust = robust_scaling(problem.y)
    return problem, robust.to_standardized_(module), robust


def _precisions(net, truth):
    """Inverse mean squares of the true weights by layer and connection."""
    precision = np.full(net.size, PRECISION_OF_BIASES)
    precision[net.places["offset", 0]] = 0.0
    for (kind, layer), place in net.places.items():
        if kind == "weights":
            W = truth[place].reshape(net.widths[layer - 2], -1)
            parts = np.split(W, np.cumsum(net.sizes[layer - 2])[:-1], axis=1)
            inverse = np.concatenate([np.full(part.shape[1], 1.0 / np.mean(part**2)) for part in parts])
            precision[place] = np.tile(inverse, len(W))
    return precision
