"""``widths="auto"``: exact sums of squares, or the posterior mean of wide ones."""

import copy
import dataclasses

import numpy as np
import torch
from torch import nn

from skident.base.progress import StageLog
from skident.budget.constants import FULL_STEPS, MAX_STARTS, NEAR_STEPS

from .array_networks import ArrayNetworks
from .posterior import PosteriorChains
from .problem import Fit
from .scaling import clipped_inputs, robust_scaling
from .solvers import WeightedSamples, set_trainable
from .sum_fits import EXPLAINED, fit_sum
from .unit_selection import NOISE_OF_NEXT, grown_layers, pruned_fit, unit_penalties, with_units, without_small_units

WIDTHS = (6, 4, 3, 3)  # (k_2, ..., k_5), the most of each layer
_GROWN_DEPTH = 3  # last layer of the sum that is grown from these widths: degree 8
# Of sums of degree 8, 16 and 32, narrow first: with redundant units, fits stay in minima near the truth.
_DEEP_WIDTHS = ((3, 2), (3, 2, 2), (4, 3, 3), (3, 2, 2, 2), (4, 3, 3, 3))
_DEEP_LOSS = 0.05  # relative squared error above which there is noise or another target (budget)
_NO_NOISE = 1e-6  # relative squared error below which a local minimum predicts better than the posterior of degree 8
_DEEP_SAMPLES_PER_WEIGHT = 2.0  # with fewer, most fits of degree 16 fail (budget)
_POSTERIOR_WIDTHS = ((6, 4), (4, 2))  # of the posterior mean, degree 8: the first with enough samples, or the last
_SAMPLES_PER_WEIGHT = 1.5  # with fewer, wide networks vary more than the prior of their units restrains
_PROMISING = 1e-3  # relative loss of weighted samples below which the remaining units may be exact
# Least and most (budget). Many samples leave little to average; with few, some chains stay in other minima.
_CHAINS = (8, 16)  # each without its share of the samples
_ITERATIONS = (160, 400)  # per chain
_MANY = 600  # samples, above which both fall in proportion
_INITIAL_SIZE = 0.3  # factor of N(0, 1 / fan in) at the start of a chain: larger outputs would overflow
_MARGIN = 0.5  # of the clipped range, in ranges: means over the posterior grow less outside the data than one network
_CHUNK = 1000  # samples per features of all networks (memory)
_CHAINS_TRIED = 6  # from which an exact fit is sought (budget)
_SMALL_UNIT = 0.3  # mean weight norm relative to the largest in the layer, below which a unit is not counted


def fit_automatic_widths(problem, options):
    """The sum of squares with units selected by the data.

    First, units are removed layer by layer (`grown_layers`); if the rest explains the data to rounding, it is the fit.
    If not, sums of degree 8, 16 and 32 are tried. If none is exact, chains sample the posterior of wide
    networks. If the units that it supports explain the data, they are the fit. Else there is noise or the target is
    outside the class: predictions are the posterior mean, and the network itself is then the maximum of the posterior
    with the units that the posterior supports.
    """
    scaling = robust_scaling(problem.y)
    y = scaling.standardized(problem.y)
    robust = problem.samples(y, (1.0 + y.abs() / 2.0) ** -1.5)
    grown = dataclasses.replace(problem, architecture=problem.architecture.up_to(_GROWN_DEPTH))
    part, module = grown_layers(grown, options, robust)
    exact = _exact(part, module, options, robust) or _deep(problem, options)
    if exact is not None:
        return exact
    options.log.say("no sum of squares explains the data: posterior mean")
    problem = dataclasses.replace(problem, architecture=_posterior_architecture(problem))
    posterior = _Posterior.sampled(problem, scaling)
    exact = posterior.exact(problem, options, robust)
    if exact is not None:
        return exact
    squares = posterior.held_out_squares(problem, scaling)
    module, history = posterior.counted(problem, options)
    return Fit(
        scaling.to_original_(module),
        None,
        history[-1:],
        history,
        loss=history[-1],
        error=problem.relative_error(squares),
        squares=squares,
        l2=float("nan"),
        margin=_MARGIN,
        predictor=MiddleOfNetworks(posterior.net, posterior.params.reshape(-1, posterior.net.size), scaling),
    )


def _posterior_architecture(problem):
    """The architecture of the posterior mean, by the number of samples."""
    for widths in _POSTERIOR_WIDTHS:
        kind = problem.architecture.up_to(len(widths) + 1)
        kind = dataclasses.replace(kind, widths=widths[: len(kind.widths)])
        if len(problem.x) >= _SAMPLES_PER_WEIGHT * kind.n_weights:
            break
    return kind


def _deep(problem, options):
    """A sum of degree 16 or 32 that is exact or leaves little, or None; one that leaves much ends the search."""
    best = None
    options = dataclasses.replace(options, n_starts=min(MAX_STARTS, options.n_starts), log=StageLog())
    for widths in _DEEP_WIDTHS:
        kind = dataclasses.replace(problem.architecture.up_to(len(widths) + 1), widths=widths)
        if len(kind.connections) == len(widths) and len(problem.x) >= _DEEP_SAMPLES_PER_WEIGHT * kind.n_weights:
            fit = fit_sum(dataclasses.replace(problem, architecture=kind), options, hopeless=_DEEP_LOSS)
            if fit.exact:
                return fit
            if not fit.loss < _DEEP_LOSS and len(widths) > 2:
                break
            best = fit if best is None or fit.loss < best.loss else best
    return best if best is not None and best.loss < _NO_NOISE else None


def _exact(problem, module, options, samples):
    """The fit initialized by a module in robust units, if it is exact; else None."""
    loss = _relative_loss(module, samples)
    options.log.say(f"widths {module.widths}: relative loss {loss:.2e}")
    if not loss < _PROMISING or len(problem.x) <= problem.architecture.n_weights:
        return None
    start = robust_scaling(problem.y).to_original_(module)
    fit = fit_sum(dataclasses.replace(problem, start=start), dataclasses.replace(options, n_starts=1))
    if not (fit.loss < EXPLAINED and fit.exact):
        return None
    module = robust_scaling(problem.y).to_standardized_(copy.deepcopy(fit.module))
    part, module = without_small_units(problem, module)
    smaller = None if part is problem else _exact(part, module, options, samples)
    return fit if smaller is None else smaller


@torch.no_grad()
def _relative_loss(module, samples):
    """Weighted squared errors relative to the sum of squares."""
    return float(samples.squared_errors(module).sum()) / _sum_of_squares(samples)


def _sum_of_squares(samples):
    """Sum of weighted squares about the mean."""
    return float((samples.factors * (samples.y - samples.y.mean())).square().sum())


@dataclasses.dataclass(frozen=True)
class _Posterior:
    """Samples of the posterior, each chain without a fold of the samples, in robust units.

    To first order, the mean over all chains is that of chains with all samples; each sample has a held-out prediction.
    """

    net: ArrayNetworks
    module: torch.nn.Module  # of the full widths
    samples: WeightedSamples
    params: np.ndarray  # (m, C, P)
    noise: np.ndarray  # (C,), variance at the end
    folds: list  # arrays of indices

    @classmethod
    def sampled(cls, problem, scaling):
        """Run all chains together."""
        samples = problem.samples(scaling.standardized(problem.y))
        x, y = samples.x, samples.y
        n_chains, n_iter = (int(np.clip(most * _MANY / len(x), least, most)) for least, most in (_CHAINS, _ITERATIONS))
        modules = [problem.build("sum") for _ in range(n_chains)]
        net, used = ArrayNetworks(modules[0], x), np.tile(samples.factors.numpy().T ** 2, (n_chains, 1))
        folds = np.array_split(np.arange(len(x)), n_chains)
        for row, fold in zip(used, folds):
            row[fold] = 0.0
        starts = _INITIAL_SIZE * np.array([net.params_of(module) for module in modules])
        starts[:, net.places["offset", 0]] = 0.0
        chains = PosteriorChains(net, y[:, 0].numpy(), used, starts, np.random.RandomState(problem.seed()))
        params = chains.run(n_iter)
        return cls(net, modules[0], samples, params, chains.noise, folds)

    def exact(self, problem, options, samples):
        """The exact fit that the units of a chain lead to, or None."""
        for k in np.argsort(self.noise)[:_CHAINS_TRIED]:
            part, module = self._supported(problem, k)
            if len(problem.x) <= part.architecture.n_weights:  # explains any target
                part, module = pruned_fit(part, options, module, samples, NOISE_OF_NEXT * _sum_of_squares(samples))
            set_trainable(module)
            options.minimize(module, samples, max_iter=FULL_STEPS, patience=options.patience)
            fit = _exact(part, module, options, samples)
            if fit is not None:
                return fit
        return None

    def held_out_squares(self, problem, scaling):
        """Squared errors (n,) of each chain's mean on the samples that it does not use."""
        x, squares = problem.x, np.empty(len(problem.x))
        for k, fold in enumerate(self.folds):
            rest = np.setdiff1d(np.arange(len(x)), fold)
            mean = MiddleOfNetworks(self.net, self.params[:, k], scaling)
            errors = mean(clipped_inputs(x[fold], x[rest], _MARGIN)) - problem.y[fold]
            squares[fold] = errors[:, 0].numpy() ** 2
        return squares

    def counted(self, problem, options):
        """The network of the units that the posterior supports, with its losses."""
        k = int(np.argmin(self.noise))
        _, module = self._supported(problem, k)
        set_trainable(module)
        variance = _sum_of_squares(self.samples)
        penalties = unit_penalties(module, self.noise[k])
        result = options.minimize(module, self.samples, l2=penalties, max_iter=options.n_steps(NEAR_STEPS))
        with torch.no_grad():
            loss = float(self.samples.squared_errors(module).sum()) / variance
        return module, [*[cost / variance for cost in result.history], loss]

    def _supported(self, problem, k):
        """Problem and module with the units whose mean weight norm over chain k is large, at its last state."""
        norms = [np.sqrt((W**2).sum(axis=2)).mean(axis=0) for W in self.net.weights(self.params[:, k])]
        kept = [torch.as_tensor(np.flatnonzero(norm >= _SMALL_UNIT * norm.max())) for norm in norms]
        module = copy.deepcopy(self.module)
        self.net.assign(self.params[-1, k], module)
        return with_units(problem, module, kept)


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

    predict = forward
